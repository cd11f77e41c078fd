"""What an assignor would move: its answer for a group as it is, checked, and compared with what the members have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec, MemberSpec, TopicId

Partition = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class Change:
    """One member, before and after. Partitions that do not exist any more count for nothing."""

    member: MemberSpec
    before: int
    after: int
    gets: Assignment
    gives_up: Assignment
    lag_before: int
    """The sum over its partitions, as far as it is known."""
    lag_after: int


@dataclass(frozen=True, slots=True)
class DryRun:
    changes: tuple[Change, ...]
    """All members, in the order of their ids."""
    partitions: int
    """Of all topics of the group."""
    moved: int
    """From one member to another."""
    taken: int
    """That nobody has now."""
    released: int
    """That somebody has now, and nobody would."""
    unassigned: int
    """That nobody would have, whoever has them now."""


def what_would_move(group: GroupSpec, assignor: Assignor) -> DryRun | str:
    """What would move, or why the assignor's answer would be refused. What the assignor raises is such a reason."""
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
    """Of two members that claim a partition the first one has it."""
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
