"""A dry run: an assignor's checked answer for a group, compared with the present assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec, MemberSpec, TopicId

Partition = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class Change:
    """One member, before and after. Partitions that no longer exist do not count."""

    member: MemberSpec
    before: int
    after: int
    gets: Assignment
    gives_up: Assignment
    lag_before: int
    """The sum over its partitions with a known lag."""
    lag_after: int


@dataclass(frozen=True, slots=True)
class DryRun:
    changes: tuple[Change, ...]
    """All members, in the order of their ids."""
    partitions: int
    """The partitions of all topics of the group."""
    moved: int
    """Partitions that would go from one member to another."""
    taken: int
    """Partitions without an owner now that would get one."""
    released: int
    """Partitions with an owner now that would have none."""
    unassigned: int
    """Partitions that would have no owner."""


def what_would_move(group: GroupSpec, assignor: Assignor) -> DryRun | str:
    """The moves, or the reason for which the assignor's answer would be refused."""
    answer = assigned(assignor, group)
    if isinstance(answer, str):
        return answer
    had = _owners(group, {member_id: member.owned for member_id, member in sorted(group.members.items())})
    has = _owners(group, answer)
    before, after = _by_member(had), _by_member(has)
    lags = {topic_id: topic.lag or () for topic_id, topic in group.topics.items()}
    total = sum(max(topic.partitions, 0) for topic in group.topics.values())
    return DryRun(
        tuple(
            _change(member, before.get(member_id, set()), after.get(member_id, set()), lags)
            for member_id, member in sorted(group.members.items())
        ),
        total,
        moved=sum(1 for partition, owner in has.items() if had.get(partition, owner) != owner),
        taken=len(has.keys() - had.keys()),
        released=len(had.keys() - has.keys()),
        unassigned=total - len(has),
    )


def _owners(group: GroupSpec, assignments: Mapping[str, Assignment]) -> dict[Partition, str]:
    """If two members claim a partition, the first one owns it."""
    owners: dict[Partition, str] = {}
    for member_id, assignment in assignments.items():
        for topic_id, indexes in assignment.items():
            topic = group.topics.get(topic_id)
            for index in indexes:
                if topic is not None and 0 <= index < topic.partitions:
                    owners.setdefault((topic_id, index), member_id)
    return owners


def _by_member(owners: Mapping[Partition, str]) -> dict[str, set[Partition]]:
    found: dict[str, set[Partition]] = {}
    for partition, member_id in owners.items():
        found.setdefault(member_id, set()).add(partition)
    return found


def _change(
    member: MemberSpec, before: set[Partition], after: set[Partition], lags: Mapping[TopicId, tuple[int, ...]]
) -> Change:
    return Change(
        member,
        len(before),
        len(after),
        gets=_assignment(after - before),
        gives_up=_assignment(before - after),
        lag_before=_sum(before, lags),
        lag_after=_sum(after, lags),
    )


def _assignment(partitions: Iterable[Partition]) -> Assignment:
    found: dict[TopicId, tuple[int, ...]] = {}
    for topic_id, index in sorted(partitions):
        found[topic_id] = (*found.get(topic_id, ()), index)
    return found


def _sum(partitions: Iterable[Partition], lags: Mapping[TopicId, tuple[int, ...]]) -> int:
    return sum(max(lags[topic_id][index], 0) for topic_id, index in partitions if index < len(lags[topic_id]))
