"""How much of a new target takes effect now: a gradual hand-over and a rollout hold let the rest wait.

    gradual hand-over   at most so many partitions a time move from members that are there to members that just joined
    rollout hold        nothing moves between members, and what nobody has stays so

What is given back is a target of its own, in which every partition has one member at most. A partition that nobody
has waits for nothing but a hold, so those of a departed member are never delayed by a gradual hand-over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from kohort.coordinator.consumer.reconciliation import TopicPartition

Targets = Mapping[str, frozenset[TopicPartition]]


class Effective(msgspec.Struct, frozen=True):
    targets: Targets
    moved: int
    """Partitions that went from one member to another that has just joined."""
    waiting: int
    """Partitions that are not yet where they shall be."""


def gradual(
    full: Targets,
    present: Targets,
    *,
    newcomers: AbstractSet[str],
    at_most: int,
    may_keep: Callable[[str, TopicPartition], bool],
) -> Effective:
    """`may_keep`: whether a member that has a partition may have it further on; what it may not keep does not wait."""
    owners = _owners(present)
    targets = {member_id: set(partitions) for member_id, partitions in full.items()}
    delayed: dict[str, list[tuple[str, TopicPartition]]] = {}
    for member_id in sorted(newcomers & full.keys()):
        for partition in sorted(full[member_id]):
            owner = owners.get(partition)
            if owner is not None and owner != member_id and owner in full and may_keep(owner, partition):
                delayed.setdefault(member_id, []).append((owner, partition))
    in_turn = list(_round_robin(delayed))
    for member_id, owner, partition in in_turn[max(at_most, 0) :]:
        targets[member_id].remove(partition)
        targets[owner].add(partition)
    moved = min(len(in_turn), max(at_most, 0))
    return Effective(_frozen(targets), moved, len(in_turn) - moved)


def on_hold(
    full: Targets,
    present: Targets,
    *,
    freed: AbstractSet[TopicPartition],
    may_keep: Callable[[str, TopicPartition], bool],
) -> Effective:
    """Everybody keeps what it has. Of what nobody has, only `freed` goes where the target wants it."""
    targets: dict[str, set[TopicPartition]] = {member_id: set() for member_id in full}
    owners = _owners(present)
    for partition, owner in owners.items():
        if owner in targets and may_keep(owner, partition):
            targets[owner].add(partition)
    waiting = 0
    for member_id, partitions in full.items():
        for partition in partitions:
            if partition in freed and partition not in owners:
                targets[member_id].add(partition)
            elif partition not in targets[member_id]:
                waiting += 1
    return Effective(_frozen(targets), 0, waiting)


def _owners(present: Targets) -> dict[TopicPartition, str]:
    return {partition: member_id for member_id, partitions in present.items() for partition in partitions}


def _round_robin(
    delayed: Mapping[str, list[tuple[str, TopicPartition]]],
) -> Iterable[tuple[str, str, TopicPartition]]:
    """One partition for each newcomer, then the next one for each."""
    for turn in range(max(map(len, delayed.values()), default=0)):
        for member_id, moves in delayed.items():
            if turn < len(moves):
                yield member_id, *moves[turn]


def _frozen(targets: Mapping[str, set[TopicPartition]]) -> Targets:
    return {member_id: frozenset(partitions) for member_id, partitions in targets.items()}
