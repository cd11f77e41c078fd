"""A balanced and sticky assignment: the counts of `balance.py` carried out on the partitions.

Balance comes before nearness to a rack, and both before stickiness; but no partition moves unless balance or nearness
gains. Three steps:

1. The present owners and the free partitions become counts of kinds by cell. The counts are filled, balanced and, with
   racks, brought near.
2. If a cell ends with fewer partitions of a kind than it had, its fullest members release some. They become free.
3. Inside a cell the partitions are shared evenly. Members above their share keep what it allows; members that had one
   more than the others are the ones that may have one more; the remaining partitions go to the members in turn.
   Unnecessary moves are undone.

A member releases partitions of the topic of which it has most, and among such topics of the one that has lost least. So
a new member gets partitions of many topics, as if it had been there from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from kohort.coordinator.assignors.balance import Counts, Kind, balance, bring_near, fill
from kohort.coordinator.assignors.group_index import NOBODY, GroupIndex, alike, assignments, index_of
from kohort.coordinator.assignors.spec import Assignment, GroupSpec

MAX_ROUNDS = 10
"""With racks two passes are usual: the second one finds nothing."""


def place_partitions(group: GroupSpec, *, racks: bool) -> dict[str, Assignment]:
    """Each member's partitions, as even as subscriptions allow; with `racks`, near their owners if balance allows."""
    indexed = index_of(group)
    cells = _cells(indexed, racks)
    kinds, kind_of = _kinds(indexed, cells, racks)
    for _ in range(MAX_ROUNDS if racks else 1):
        # An undone move can let one more partition come near.
        if not _round(indexed, cells, kinds, kind_of):
            break
    return assignments(indexed, indexed.owners)


def _round(indexed: GroupIndex, cells: _Cells, kinds: Sequence[Kind], kind_of: Sequence[int]) -> bool:
    """The three steps, once. True if anything changed."""
    before = list(indexed.owners)
    held: list[dict[int, int]] = [{} for _ in cells.members]
    free = [0] * len(kinds)
    for unit, owner in enumerate(before):
        kind = kind_of[unit]
        if owner == NOBODY:
            free[kind] += 1
        else:
            of_cell = held[cells.cell_of[owner]]
            of_cell[kind] = of_cell.get(kind, 0) + 1
    counts = Counts(
        kinds=kinds,
        sizes=[len(members) for members in cells.members],
        held=[dict(of_cell) for of_cell in held],
        totals=[sum(of_cell.values()) for of_cell in held],
    )
    fill(counts, free)
    balance(counts)
    bring_near(counts)
    _carry_out(indexed, cells, kind_of, held, counts)
    if len(cells.members) > 1:
        _undo_needless(indexed.owners, before, lambda unit, member: cells.cell_of[member] in kinds[kind_of[unit]].near)
    return indexed.owners != before


class _Cells(msgspec.Struct, frozen=True):
    members: list[list[int]]
    cell_of: list[int]
    """By member."""
    of_class: list[list[int]]
    rack: list[str | None]


def _cells(indexed: GroupIndex, racks: bool) -> _Cells:
    cells = _Cells(members=[], cell_of=[0] * len(indexed.members), of_class=[], rack=[])
    for indexes in indexed.classes:
        by_rack: dict[str | None, int] = {}
        for index in indexes:
            rack = indexed.members[index].rack if racks else None
            cell = by_rack.setdefault(rack, len(cells.members))
            if cell == len(cells.members):
                cells.members.append([])
                cells.rack.append(rack)
            cells.members[cell].append(index)
            cells.cell_of[index] = cell
        cells.of_class.append(list(by_rack.values()))
    return cells


def _kinds(indexed: GroupIndex, cells: _Cells, racks: bool) -> tuple[list[Kind], list[int]]:
    """The kinds, and the kind of each unit."""
    kinds: list[Kind] = []
    kind_of: list[int] = []
    known: dict[tuple[int, frozenset[str]], int] = {}
    nowhere: frozenset[str] = frozenset()
    with_members = frozenset(rack for rack in cells.rack if rack is not None)
    for place, first in enumerate(alike(indexed)):
        where = _racks_of(indexed, place, with_members) if racks else [nowhere] * len(indexed.units(place))
        for racks_of_unit in where:
            kind = known.setdefault((first, racks_of_unit), len(kinds))
            if kind == len(kinds):
                accepting = tuple(cell for number in indexed.topic_classes[place] for cell in cells.of_class[number])
                near = dict.fromkeys(cell for cell in accepting if cells.rack[cell] in racks_of_unit)
                kinds.append(Kind(accepting, near))
            kind_of.append(kind)
    return kinds, kind_of


def _racks_of(indexed: GroupIndex, place: int, with_members: frozenset[str]) -> list[frozenset[str]]:
    """For each partition of a topic, the racks of its replicas and its leader that have members."""
    topic = indexed.topics[place]
    nowhere: frozenset[str] = frozenset()
    result = []
    for partition in range(len(indexed.units(place))):
        replicas = topic.racks[partition] if partition < len(topic.racks) else nowhere
        leader = topic.leader_racks[partition] if partition < len(topic.leader_racks) else None
        result.append(with_members & replicas if leader is None else with_members & (replicas | {leader}))
    return result


def _carry_out(
    indexed: GroupIndex, cells: _Cells, kind_of: Sequence[int], before: Sequence[dict[int, int]], counts: Counts
) -> None:
    """Change the owners to match the counts with as few moves as possible."""
    of_member: list[list[int]] = [[] for _ in indexed.members]
    pools: list[list[int]] = [[] for _ in counts.kinds]
    for unit, owner in enumerate(indexed.owners):
        if owner == NOBODY:
            pools[kind_of[unit]].append(unit)
        else:
            of_member[owner].append(unit)
    for cell, members in enumerate(cells.members):
        for kind, amount in before[cell].items():
            leaving = amount - counts.held[cell].get(kind, 0)
            if leaving > 0:
                pools[kind] += _released(members, of_member, kind_of, kind, leaving)
    for pool in pools:
        pool.sort(reverse=True)
    for cell, members in enumerate(cells.members):
        incoming: list[int] = []
        for kind, amount in counts.held[cell].items():
            for _ in range(amount - before[cell].get(kind, 0)):
                incoming.append(pools[kind].pop())
        _share(indexed, members, of_member, incoming)


def _released(
    members: Sequence[int], of_member: list[list[int]], kind_of: Sequence[int], kind: int, amount: int
) -> list[int]:
    """Take `amount` partitions of a kind from the members of a cell that have most partitions."""
    gone: list[int] = []
    of_kind = {member: [unit for unit in of_member[member] if kind_of[unit] == kind] for member in members}
    fullest = [(-len(of_member[member]), -member) for member in members if of_kind[member]]
    heapify(fullest)
    while len(gone) < amount:
        size, member = heappop(fullest)
        gone.append(of_kind[-member].pop())
        if of_kind[-member]:
            heappush(fullest, (size + 1, member))
    released = frozenset(gone)
    for member in members:
        if not released.isdisjoint(of_member[member]):
            of_member[member] = [unit for unit in of_member[member] if unit not in released]
    return gone


def _share(indexed: GroupIndex, members: Sequence[int], of_member: list[list[int]], incoming: list[int]) -> None:
    """Share the partitions of a cell among its members."""
    total = len(incoming) + sum(len(of_member[member]) for member in members)
    least, extras = divmod(total, len(members))
    quotas: dict[int, int] = {}
    for member in sorted(members, key=lambda member: -min(len(of_member[member]), least + 1)):
        quotas[member] = least + (len(quotas) < extras)
    topic_of = _topic_of(indexed) if any(len(of_member[member]) > quotas[member] for member in members) else []
    lost = [0] * len(indexed.topics)
    for member in members:
        incoming += _release(of_member[member], quotas[member], topic_of, lost)
    incoming.sort(reverse=True)
    for member in members:
        for unit in of_member[member]:
            indexed.owners[unit] = member
    lacking = [member for member in members if len(of_member[member]) < quotas[member]]
    while lacking:
        for member in lacking:
            unit = incoming.pop()
            of_member[member].append(unit)
            indexed.owners[unit] = member
        lacking = [member for member in lacking if len(of_member[member]) < quotas[member]]


def _undo_needless(owners: list[int], before: list[int], is_near: Callable[[int, int], bool]) -> None:
    """Undo moves that come from the counting and that balance does not need.

    A partition goes back to its former owner if that member ended with fewer partitions than the new one. Two
    partitions are swapped back if each came from the present owner of the other. Neither may cost nearness."""
    sizes = Counter(owners)
    moved = [unit for unit, owner in enumerate(before) if owner != NOBODY and owner != owners[unit]]
    found = True
    while found:
        found = False
        between: dict[tuple[int, int], list[int]] = {}
        for unit in moved:
            old, new = before[unit], owners[unit]
            loss = is_near(unit, new) - is_near(unit, old)
            if old == new:
                continue
            if sizes[new] > sizes[old] and loss <= 0:
                owners[unit] = old
                sizes[new] -= 1
                sizes[old] += 1
                found = True
                continue
            opposite = between.get((new, old), [])
            other = next((other for other in opposite if is_near(other, old) - is_near(other, new) + loss <= 0), None)
            if other is None:
                between.setdefault((old, new), []).append(unit)
            else:
                opposite.remove(other)
                owners[unit], owners[other] = old, new
                found = True


def _topic_of(indexed: GroupIndex) -> list[int]:
    return [place for place in range(len(indexed.topics)) for _ in indexed.units(place)]


def _release(owned: list[int], quota: int, topic_of: Sequence[int], lost: list[int]) -> list[int]:
    """Take the partitions above the quota from `owned`."""
    gone: list[int] = []
    if len(owned) <= quota:
        return gone
    by_topic: dict[int, list[int]] = {}
    for unit in owned:
        by_topic.setdefault(topic_of[unit], []).append(unit)
    fullest = [(-len(of_topic), lost[topic], -topic) for topic, of_topic in by_topic.items()]
    heapify(fullest)
    for _ in range(len(owned) - quota):
        size, times, topic = heappop(fullest)
        gone.append(by_topic[-topic].pop())
        lost[-topic] = times + 1
        heappush(fullest, (size + 1, times + 1, topic))
    owned[:] = [unit for topic in sorted(by_topic) for unit in by_topic[topic]]
    return gone
