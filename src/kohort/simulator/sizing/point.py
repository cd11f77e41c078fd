"""One point of a grid as data: a group, the settings of its members, and the pattern that is played.

`normal` sets fields that a protocol does not support to neutral values, so that equivalent points are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

Millis = int

EAGER, COOPERATIVE, CONSUMER = "eager", "cooperative", "consumer"

ASSIGNORS: dict[str, tuple[str, ...]] = {
    EAGER: ("range", "roundrobin", "sticky"),
    COOPERATIVE: ("cooperative-sticky",),
    CONSUMER: ("uniform", "range", "rack", "lag"),
}
"""Protocol: its assignors, the usual one first. The assignors of the classic protocols run in a member, the others on
the server."""

PROTOCOLS = {
    EAGER: "classic, eager: everybody stops, then joins (a global barrier)",
    COOPERATIVE: "classic, cooperative: partitions that move are given up in one rebalance and taken in a second one",
    CONSUMER: "KIP-848: the server hands over partition by partition",
}

PATTERNS = {
    "steady": "nothing but the failure rate, for the time to observe",
    "rolling": "every member is restarted, in batches, leaving in good order",
    "rolling-static": "a rolling restart of static members (group.instance.id), which come back within their session",
    "rolling-hold": "a rolling restart under a rollout hold, released when all are back (consumer protocol only)",
    "stop-start": "all members stop together and start again together",
    "scale-out": "COUNT members join, one after another",
    "scale-in": "COUNT members leave, one after another",
    "crash": "COUNT members are killed together and started again",
    "crash-static": "COUNT static members (group.instance.id) are killed together and started again",
    "zone": "COUNT members are killed together and stay away",
    "flap": "one member is killed and started again, over and over, for the time to observe",
    "failover": "the coordinator dies and starts again",
}

CLIENT_NAMES = ("java", "librdkafka")
"""See clients.py."""

HEARTBEAT_MS = {EAGER: 3_000, COOPERATIVE: 3_000, CONSUMER: 5_000}
"""The defaults of Kafka's clients and server."""

BOUNDS: dict[str, tuple[int, int]] = {
    "members": (1, 100_000),
    "partitions": (1, 1_000_000),
    "topics": (1, 1_000),
    "groups": (1, 100_000),
    "shards": (1, 10_000),
    "handover": (0, 1_000_000),
    "handover_interval_ms": (1, 3_600_000),
    "count": (0, 100_000),
    "batch": (0, 100_000),
    "heartbeat_ms": (0, 600_000),
    "session_ms": (1_000, 1_800_000),
    "rebalance_ms": (1_000, 1_800_000),
    "latency_ms": (1, 10_000),
    "commit_ms": (100, 600_000),
    "poll_ms": (0, 600_000),
    "revoke_ms": (0, 600_000),
    "start_ms": (0, 600_000),
    "restart_ms": (0, 600_000),
    "pause_ms": (0, 3_600_000),
    "down_ms": (1, 600_000),
    "observe_ms": (1_000, 86_400_000),
}


class BadPoint(ValueError):
    """A field has an invalid value; the message names the field and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    members: int = 10
    """Of each group."""
    partitions: int = 60
    """In all, over the topics; each group reads all of them."""
    topics: int = 1
    groups: int = 1
    """Number of such groups; they share only the coordinator."""
    shards: int = 50
    """Shards of the coordinator (`offsets.topic.num.partitions`); the groups are spread over them by their names."""
    protocol: str = CONSUMER
    assignor: str = ""
    """Empty: the protocol's usual one."""
    pushed: bool = True
    """True if the server holds heartbeats (`group.heartbeat.hold.enable`)."""
    handover: int = 0
    """Consumer protocol: partitions that move at a time to members that have just joined; 0: all."""
    handover_interval_ms: Millis = 1_000
    pattern: str = "rolling"
    count: int = 0
    """For scale-out, scale-in, crash and zone: the number of members; 0: a tenth, at least one (zone: a third)."""
    batch: int = 0
    """For a rolling restart: how many members restart at a time; 0: a tenth, at least one."""
    client: str = "java"
    """The members' client: java or librdkafka (see clients.py)."""
    heartbeat_ms: Millis = 0
    """0: the default, 3 s for classic members and 5 s for the consumer protocol."""
    session_ms: Millis = 45_000
    rebalance_ms: Millis = 300_000
    """The time within which a member must revoke partitions (max.poll.interval.ms)."""
    latency_ms: Millis = 1
    """The latency of the network, one way."""
    commit_ms: Millis = 5_000
    """The interval of a member's commits (auto.commit.interval.ms)."""
    poll_ms: Millis = 100
    """The time spent on the records of one poll; a member revokes and takes partitions only between polls."""
    revoke_ms: Millis = 0
    """The revocation callback, without the commit."""
    start_ms: Millis = 0
    """The time before work on a new partition starts (state, caches), without the client's own time."""
    restart_ms: Millis = 5_000
    """The downtime of a member's process at a restart."""
    pause_ms: Millis = 10_000
    """The pause between two steps of a deployment."""
    down_ms: Millis = 3_000
    """The downtime of the coordinator in a failover."""
    aged: bool = True
    """The group has run for hours, so its members' heartbeats are spread over the interval; else they come together, as
    after a rebalance."""
    crashes_per_hour: float = 0.0
    """Crashes of a member in each group an hour; its process starts again."""
    restarts_per_hour: float = 0.0
    """Orderly restarts, likewise."""
    observe_ms: Millis = 120_000
    """The duration of a pattern that does not end by itself."""

    # -- what follows from them

    @property
    def static(self) -> bool:
        return self.pattern.endswith("-static")

    @property
    def interval_ms(self) -> Millis:
        return self.heartbeat_ms or HEARTBEAT_MS[self.protocol]

    @property
    def batch_size(self) -> int:
        return min(self.batch or max(1, self.members // 10), self.members)

    @property
    def affected(self) -> int:
        """The number of members that come or go, for patterns with such a number."""
        if self.count:
            return self.count
        return max(1, self.members // 3) if self.pattern == "zone" else max(1, self.members // 10)

    def label(self) -> str:
        """Protocol and settings as text."""
        words = [self.protocol]
        if self.assignor != ASSIGNORS[self.protocol][0]:
            words.append(self.assignor)
        if self.pushed:
            words.append("pushed")
        if self.handover:
            words.append(f"gradual {self.handover}/{self.handover_interval_ms / 1000:g} s")
        return ", ".join(words)


def normal(point: Point) -> Point:
    """The point with all defaults filled in. Raises BadPoint."""
    _check(point)
    usual = point.assignor or ASSIGNORS[point.protocol][0]
    point = replace(point, assignor=usual, heartbeat_ms=point.interval_ms)
    if point.protocol != CONSUMER or not point.handover:
        point = replace(point, handover=0, handover_interval_ms=1_000)
    return point


def _check(point: Point) -> None:
    for name, (low, high) in BOUNDS.items():
        value = getattr(point, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadPoint(f"{name}: {value!r} is not a whole number")
        if not low <= value <= high:
            raise BadPoint(f"{name}: {value} is not between {low} and {high}")
    for name in ("crashes_per_hour", "restarts_per_hour"):
        rate = getattr(point, name)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 100_000:
            raise BadPoint(f"{name}: {rate!r} is not a number between 0 and 100000")
    for name in ("pushed", "aged"):
        if not isinstance(getattr(point, name), bool):
            raise BadPoint(f"{name}: {getattr(point, name)!r} is neither true nor false")
    for name, known in (("protocol", tuple(PROTOCOLS)), ("pattern", tuple(PATTERNS)), ("client", CLIENT_NAMES)):
        if getattr(point, name) not in known:
            raise BadPoint(f"{name}: {getattr(point, name)!r} is none of {', '.join(known)}")
    if point.assignor and point.assignor not in ASSIGNORS[point.protocol]:
        raise BadPoint(
            f"assignor: {point.protocol} has no {point.assignor!r}, only {', '.join(ASSIGNORS[point.protocol])}"
        )
    if point.topics > point.partitions:
        raise BadPoint(f"topics: {point.topics} topics cannot share {point.partitions} partitions")
    if point.session_ms <= point.interval_ms:
        raise BadPoint(f"session_ms: {point.session_ms} must be more than heartbeat_ms ({point.interval_ms})")
    leaves_some = point.pattern in ("scale-in", "zone")
    if (leaves_some or point.pattern.startswith("crash")) and point.affected > point.members - leaves_some:
        raise BadPoint(f"count: {point.affected} of {point.members} members are too many for {point.pattern}")
    if point.pattern == "rolling-hold" and point.protocol != CONSUMER:
        raise BadPoint("pattern: a rollout hold is for the consumer protocol only")


FIELDS: dict[str, type] = get_type_hints(Point)
"""Name of a field: the type of its value."""


def refuse(settings: Iterable[str], names: Iterable[str], why: str) -> None:
    """Raises BadPoint if one of the names is among the settings."""
    for name in sorted(set(settings) & set(names)):
        raise BadPoint(f"settings: {name} {why}")


def point_of(values: dict[str, Any]) -> Point:
    """A point from names and values. Raises BadPoint."""
    for name in values:
        if name not in FIELDS:
            raise BadPoint(f"{name}: there is no such setting; the settings are {', '.join(FIELDS)}")
    return normal(Point(**values))
