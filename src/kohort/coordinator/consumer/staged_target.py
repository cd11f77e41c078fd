"""How much of a new target takes effect now: a gradual hand-over and a rollout freeze delay the rest.

    gradual hand-over   a limited number of partitions at a time moves from present members to newcomers
    rollout freeze      no partition moves between members, and free partitions stay free

The result is a complete target: every partition has at most one member. Only a freeze delays a partition without an
owner. So a gradual hand-over never delays the partitions of a departed member.
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
    """Partitions that moved from a present member to a newcomer."""
    waiting: int
    """Partitions that are not yet where the full target wants them."""


def gradual(
    full: Targets,
    present: Targets,
    *,
    newcomers: AbstractSet[str],
    at_most: int,
    may_keep: Callable[[str, TopicPartition], bool],
) -> Effective:
    """`may_keep`: True if a member may keep a partition that it has. A partition that it may not keep moves at
    once."""
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
    return Effective(_as_frozensets(targets), moved, len(in_turn) - moved)


def frozen(
    full: Targets,
    present: Targets,
    *,
    freed: AbstractSet[TopicPartition],
    may_keep: Callable[[str, TopicPartition], bool],
) -> Effective:
    """Every member keeps its partitions. Of the free partitions only `freed` go to their owners in the full target."""
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
    return Effective(_as_frozensets(targets), 0, waiting)


def _owners(present: Targets) -> dict[TopicPartition, str]:
    return {partition: member_id for member_id, partitions in present.items() for partition in partitions}


def _round_robin(
    delayed: Mapping[str, list[tuple[str, TopicPartition]]],
) -> Iterable[tuple[str, str, TopicPartition]]:
    """One partition for each newcomer, then a second one for each, and so on."""
    for turn in range(max(map(len, delayed.values()), default=0)):
        for member_id, moves in delayed.items():
            if turn < len(moves):
                yield member_id, *moves[turn]


def _as_frozensets(targets: Mapping[str, set[TopicPartition]]) -> Targets:
    return {member_id: frozenset(partitions) for member_id, partitions in targets.items()}
