"""The options of `groupMode=member`, with the names and defaults of Kafka's consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kohort.spark.options.values import OptionError, choice, number

Protocol = Literal["auto", "classic", "consumer"]

CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""The assignors, by the class names of Kafka's Java client."""

SETTINGS = {
    "kafka.group.protocol",
    "kafka.group.instance.id",
    "kafka.group.remote.assignor",
    "kafka.partition.assignment.strategy",
    "kafka.session.timeout.ms",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.client.rack",
}
"""The settings of Kafka's consumer that groupMode=member uses."""
ONLY_MEMBERS = {"kafka.group.instance.id", "kafka.group.remote.assignor"}
"""Refused without groupMode=member. The others are accepted, since queries of Spark's Kafka source set them."""

STARTING = ("group", "earliest", "latest", "group-or-earliest", "group-or-latest", "group-or-fail")


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Durations are milliseconds."""

    protocol: Protocol = "auto"
    """auto: KIP-848's protocol if the cluster has it, else the classic one."""
    instance_id: str | None = None
    remote_assignor: str | None = None
    """The server's assignor for KIP-848's protocol."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """The members' assignors for the classic protocol, best first."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    """kafka.max.poll.interval.ms: how long a batch may still run after the group has revoked its partitions."""
    rack: str | None = None


def member_options(given: Mapping[str, str]) -> MemberOptions | None:
    """From options with names in lower case; None unless groupMode is member. Raises OptionError."""
    if choice(given, "groupMode", "committer", "member") == "committer":
        for name in sorted(ONLY_MEMBERS & set(given)):
            raise OptionError(f"option {name} needs groupMode=member")
        return None
    if not given.get("group.id") and not given.get("kafka.group.id"):
        raise OptionError("groupMode=member needs the option group.id")
    if given.get("assign", "").strip():
        raise OptionError("groupMode=member does not go with the option assign: the group assigns the partitions")
    starting = given.get("startingoffsets", "group").strip().lower()
    by_time = [name for name in ("startingOffsetsByTimestamp", "startingTimestamp") if name.lower() in given]
    if starting not in STARTING or by_time:
        raise OptionError(
            "groupMode=member starts at the group's committed offsets; for partitions without one, startingOffsets "
            "takes earliest or latest (or group-or-earliest, group-or-latest, group-or-fail); "
            f"not {', '.join(by_time) or given['startingoffsets']}"
        )
    defaults = MemberOptions()
    session = number(given, "kafka.session.timeout.ms", 1, defaults.session_timeout_ms)
    heartbeat = number(given, "kafka.heartbeat.interval.ms", 1, min(defaults.heartbeat_interval_ms, session // 3))
    if not heartbeat < session:
        raise OptionError("kafka.heartbeat.interval.ms must be below kafka.session.timeout.ms")
    return MemberOptions(
        protocol=choice(given, "kafka.group.protocol", "auto", "classic", "consumer"),
        instance_id=given.get("kafka.group.instance.id") or None,
        remote_assignor=given.get("kafka.group.remote.assignor") or None,
        assignors=_assignors(given.get("kafka.partition.assignment.strategy")) or defaults.assignors,
        session_timeout_ms=session,
        heartbeat_interval_ms=heartbeat,
        rebalance_timeout_ms=number(given, "kafka.max.poll.interval.ms", 1, defaults.rebalance_timeout_ms),
        rack=given.get("kafka.client.rack") or None,
    )


def _assignors(text: str | None) -> tuple[str, ...]:
    """Names of assignors, from names or class names of Kafka's Java client."""
    given = [part.strip() for part in (text or "").split(",") if part.strip()]
    names = tuple(dict.fromkeys(CLASSES.get(name.rpartition(".")[2], name) for name in given))
    for name in names:
        if name not in CLASSES.values():
            raise OptionError(
                f"kafka.partition.assignment.strategy: no assignor {name!r}; there are {', '.join(CLASSES.values())}"
            )
    return names
