"""Copies groups' committed offsets between the upstream cluster and a gateway, with both as a client sees them.

A group is copied while it has no members on either side. Offsets keep their leader epochs, because the records are the
same. An offset never goes back, unless that is asked for: to import once more after the switch must not undo what
consumers have committed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kohort.client.admin.groups import Committed, GroupDescription
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition

COMMITTED = 1_000
"""Offsets of one request."""
AT_REST = ("Empty", "Dead", "")


@dataclass(frozen=True, slots=True)
class GroupCopy:
    """What a copy would change in one group."""

    group: str
    changes: dict[TopicPartition, tuple[Committed | None, Committed]]
    """Before and after."""
    backwards: dict[TopicPartition, tuple[Committed, Committed]]
    """Left out, because the offset would go back."""
    equal: int
    """Offsets that are the same on both sides."""
    why_not: str = ""
    """Why the group is left out."""


def planned(
    source: Cluster, target: Cluster, groups: Iterable[str], names: tuple[str, str], *, rewind: bool
) -> Iterator[GroupCopy]:
    """`names`: what the two clusters are called."""
    wanted = list(groups)
    of_source, of_target = source.describe_groups(wanted), target.describe_groups(wanted)
    for group in wanted:
        for found, name in ((of_source[group], names[0]), (of_target[group], names[1])):
            if why := _busy(found, name):
                yield GroupCopy(group, {}, {}, 0, why)
                break
        else:
            yield _copy_of(group, source.committed(group), target.committed(group), rewind=rewind)


def _busy(group: GroupDescription, cluster: str) -> str:
    if not group.members and group.state in AT_REST:
        return ""
    return f"it has members at {cluster} ({group.state}); stop its consumers first"


def _copy_of(
    group: str, wanted: dict[TopicPartition, Committed], present: dict[TopicPartition, Committed], *, rewind: bool
) -> GroupCopy:
    changes: dict[TopicPartition, tuple[Committed | None, Committed]] = {}
    backwards: dict[TopicPartition, tuple[Committed, Committed]] = {}
    equal = 0
    for place, offset in sorted(wanted.items()):
        before = present.get(place)
        if before is None:
            changes[place] = None, offset
        elif before.offset == offset.offset:
            equal += 1
        elif before.offset > offset.offset and not rewind:
            backwards[place] = before, offset
        else:
            changes[place] = before, offset
    return GroupCopy(group, changes, backwards, equal)


def carry_out(target: Cluster, copy: GroupCopy, check: Callable[[], None]) -> None:
    """Raises KafkaError. `check` is called between requests."""
    places = list(copy.changes)
    for first in range(0, len(places), COMMITTED):
        check()
        target.commit(copy.group, {place: copy.changes[place][1] for place in places[first : first + COMMITTED]})
