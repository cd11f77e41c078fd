"""The options of `groupMode=member`: how the driver takes part in its group. Names and defaults of Kafka's consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Protocol = Literal["auto", "classic", "consumer"]

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")

KAFKA = {
    "kafka.group.protocol",
    "kafka.group.instance.id",
    "kafka.group.remote.assignor",
    "kafka.partition.assignment.strategy",
    "kafka.session.timeout.ms",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.client.rack",
}
"""All of them."""
ONLY_MEMBERS = {"kafka.group.instance.id", "kafka.group.remote.assignor"}
"""Refused without groupMode=member. The others are taken, for queries of Spark's Kafka source that set them."""


STARTING = ("group", "earliest", "latest", "group-or-earliest", "group-or-latest", "group-or-fail")


class MemberOptionError(ValueError):
    """An option of a member is missing, has a bad value, or does nothing without another; the message names it."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Durations are milliseconds."""

    protocol: Protocol = "auto"
    """auto: KIP-848's where the cluster has it, else the classic one."""
    instance_id: str | None = None
    remote_assignor: str | None = None
    """The server's assignor, with KIP-848's protocol."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """The members' assignors, best first, with the classic protocol."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    """kafka.max.poll.interval.ms: how long a batch in progress may go on when the group wants partitions back."""
    rack: str | None = None


def member_options(given: Mapping[str, str]) -> MemberOptions | None:
    """From options with names in lower case; None unless groupMode is member. Raises MemberOptionError."""
    mode = given.get("groupmode", "committer").strip().lower()
    if mode not in ("committer", "member"):
        raise MemberOptionError(f"groupMode is {given['groupmode']!r}; it takes committer or member")
    if mode == "committer":
        for name in sorted(ONLY_MEMBERS & set(given)):
            raise MemberOptionError(f"option {name} needs groupMode=member")
        return None
    if not given.get("group.id") and not given.get("kafka.group.id"):
        raise MemberOptionError("groupMode=member needs the option group.id")
    if given.get("assign", "").strip():
        raise MemberOptionError("groupMode=member lets the group assign partitions: not with the option assign")
    starting = given.get("startingoffsets", "group").strip().lower()
    by_time = {"startingtimestamp", "startingoffsetsbytimestamp"} & set(given)
    if starting not in STARTING or by_time:
        raise MemberOptionError(
            "groupMode=member starts at the group's committed offsets; startingOffsets takes earliest or latest (or "
            f"group-or-earliest, group-or-latest, group-or-fail), for partitions that have none; "
            f"not {', '.join(sorted(by_time)) or given['startingoffsets']}"
        )
    protocol = given.get("kafka.group.protocol", "auto").strip().lower()
    if protocol not in ("auto", "classic", "consumer"):
        raise MemberOptionError(f"kafka.group.protocol is {protocol!r}; it takes classic, consumer or auto")
    defaults = MemberOptions()
    session = _duration(given, "kafka.session.timeout.ms", defaults.session_timeout_ms)
    heartbeat = _duration(given, "kafka.heartbeat.interval.ms", min(defaults.heartbeat_interval_ms, session // 3))
    if not heartbeat < session:
        raise MemberOptionError("kafka.heartbeat.interval.ms must be below kafka.session.timeout.ms")
    return MemberOptions(
        protocol=protocol,  # type: ignore[arg-type]  # one of the three
        instance_id=given.get("kafka.group.instance.id") or None,
        remote_assignor=given.get("kafka.group.remote.assignor") or None,
        assignors=_assignors(given.get("kafka.partition.assignment.strategy")) or defaults.assignors,
        session_timeout_ms=session,
        heartbeat_interval_ms=heartbeat,
        rebalance_timeout_ms=_duration(given, "kafka.max.poll.interval.ms", defaults.rebalance_timeout_ms),
        rack=given.get("kafka.client.rack") or None,
    )


def _assignors(text: str | None) -> tuple[str, ...]:
    """By name, or by the class names of Kafka's Java client."""
    names = tuple(dict.fromkeys(_assignor(part.strip()) for part in (text or "").split(",") if part.strip()))
    for name in names:
        if name not in ASSIGNORS:
            raise MemberOptionError(
                f"kafka.partition.assignment.strategy: no assignor {name!r}; there are {', '.join(ASSIGNORS)}"
            )
    return names


def _assignor(name: str) -> str:
    classes = {
        "RangeAssignor": "range",
        "RoundRobinAssignor": "roundrobin",
        "StickyAssignor": "sticky",
        "CooperativeStickyAssignor": "cooperative-sticky",
    }
    return classes.get(name.rpartition(".")[2], name)


def _duration(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or int(text) < 1:
        raise MemberOptionError(f"{name} is {text!r}; it takes milliseconds, a whole number from 1 on")
    return int(text)
