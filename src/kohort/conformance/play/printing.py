"""An answer as lines of text that two servers can agree on.

Every field is printed unless it has its default, so no field is forgotten. Values that a server makes up (topic ids,
group and member ids) are printed under their names in the sequence. Of an assignment the number of partitions of each
topic is printed, since assignors may divide differently; lists whose order means nothing are sorted. Texts for
people, throttling and heartbeat intervals are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kohort.wire.embedded import assignment_in, subscription_of
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import schema_of
from kohort.wire.schemas.consumer_group_describe import DescribedAssignment
from kohort.wire.schemas.consumer_group_heartbeat import HeartbeatAssignment

LEFT_OUT = frozenset(("throttle_time_ms", "error_message", "documentation", "heartbeat_interval_ms", "client_host"))
ASSIGNMENTS = frozenset(("assignment", "member_assignment"))
SUBSCRIPTIONS = frozenset(("metadata", "member_metadata"))
EPOCHS = frozenset(("member_epoch", "group_epoch", "assignment_epoch", "generation_id"))
TIMES = frozenset(("transaction_start_time_ms", "last_timestamp", "log_append_time_ms"))
INDENT = "    "

Names = Mapping[Any, str]
"""The server's name of something, and its name in the sequence."""


def printed(message: Any, names: Names, lead: int = 0, indent: str = "", exact: bool = False) -> list[str]:
    """The content of the message: a line of its own fields, then lines of its elements. `lead`: the difference
    between this server's epochs and those in the sequence; `exact`: assignments partition by partition."""
    own: list[str] = []
    groups: list[Any] = []
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name in LEFT_OUT or value == field.default:
            continue
        if isinstance(value, HeartbeatAssignment | DescribedAssignment):
            own.append(f"{field.name}={_counts(value, names, exact)}")
        elif isinstance(value, tuple) and value and hasattr(type(value[0]), "__struct_fields__"):
            groups.append(value)
        elif field.name in EPOCHS and value > 0:
            own.append(f"{field.name}={value - lead}")
        else:
            own.append(_field(field.name, value, names, exact))
    if not own and not groups:
        return [indent + "ok"]
    first = [indent + " ".join(own)] if own else []
    inner = indent + INDENT if own else indent
    parts = [sorted(printed(element, names, lead, inner, exact) for element in group) for group in groups]
    return first + [line for part in parts for element in part for line in element]


def counted(partitions: Iterable[tuple[str, int]]) -> str:
    counts = Counter(topic for topic, _ in partitions)
    return " ".join(f"{topic}*{count}" for topic, count in sorted(counts.items())) or "nothing"


def listed(partitions: Iterable[tuple[str, int]]) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(index))
    return " ".join(f"{topic}:{'+'.join(indexes)}" for topic, indexes in by_topic.items()) or "nothing"


def _counts(assignment: Any, names: Names, exact: bool) -> str:
    rows = assignment.topic_partitions
    partitions = [(names.get(row.topic_id, "?"), index) for row in rows for index in row.partitions]
    return listed(partitions) if exact else counted(partitions)


def _field(name: str, value: Any, names: Names, exact: bool) -> str:
    if name in ("error_code", "partition_error_code"):
        return f"error={value} {ErrorCode(value).name}"
    if isinstance(value, bytes) and name in ASSIGNMENTS:
        rows = assignment_in(value)
        if rows is None and exact:
            return f"{name}={value!r}"
        partitions = [(names.get(topic, topic), index) for topic, of in (rows or {}).items() for index in of]
        return f"{name}={listed(partitions) if exact else counted(partitions)}"
    if isinstance(value, bytes) and name in SUBSCRIPTIONS:
        found = subscription_of(value)
        topics = found.topics if found is not None else ()
        return f"{name}={'+'.join(sorted(names.get(topic, topic) for topic in topics))}"
    if isinstance(value, tuple):
        return f"{name}={'+'.join(sorted(names.get(item, str(item)) for item in value)) or 'none'}"
    if name in ("partition_index", "producer_id"):
        return f"{name}={names.get((name, value), value)}"
    if name in TIMES:
        return f"{name}={'set' if value >= 0 else value}"
    if isinstance(value, str | bytes):
        return f"{name}={names.get(value, value)!r}"
    return f"{name}={value}"


def without(lines: Iterable[str], fields: Iterable[str]) -> list[str]:
    """The lines without these fields, and without those that have nothing else."""
    pattern = re.compile(rf"\b(?:{'|'.join(sorted(fields))})=(?:'[^']*'|\S*)")
    found = [" ".join(pattern.sub("", line).split()) for line in lines]
    return sorted(line.removesuffix(" ok") for line in found if line not in ("", "ok"))
