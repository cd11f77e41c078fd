"""A balanced and sticky assignment: the number work of `counts.py` carried out on real partitions.

Balance is worth more than nearness to a rack, and both are worth more than stickiness; but nothing moves without a gain
in one of the first two. Three steps:

1. Owners as they are, and what nobody owns, become counts of kinds by cells. The counts are filled, balanced, and, if
   racks matter, brought near.
2. Where a cell ended with fewer of a kind than it had, its fullest members let go of some. They join what nobody owns.
3. Inside a cell the members share alike. Those who have more than their share keep what it allows, those who had one
   more than the others are the ones that may have one more; the rest goes round among those who lack some. Moves that
   turn out to be for nothing are taken back.

What a member lets go of is taken from the topic that it has most of, and of such topics from the one that has lost the
least, so that what a newcomer gets is of many topics, as what it would have got had it been there from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from kohort.coordinator.assignors.counts import Counts, Kind, balance, bring_near, fill
from kohort.coordinator.assignors.spec import Assignment, GroupSpec
from kohort.coordinator.assignors.units import NOBODY, Units, alike, assignments, units_of

MAX_ROUNDS = 10
"""Two are the rule where racks matter: the second one finds nothing."""


def allotted(group: GroupSpec, *, racks: bool) -> dict[str, Assignment]:
    """Every member's partitions, as even as subscriptions allow; with `racks`, near their owners where that is free."""
    units = units_of(group)
    cells = _cells(units, racks)
    kinds, kind_of = _kinds(units, cells, racks)
    for _ in range(MAX_ROUNDS if racks else 1):
        # What is taken back can open a way for one more partition to come near.
        if not _round(units, cells, kinds, kind_of):
            break
    return assignments(units, units.owners)


def _round(units: Units, cells: _Cells, kinds: Sequence[Kind], kind_of: Sequence[int]) -> bool:
    """The three steps, once. Whether anything changed."""
    before = list(units.owners)
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
    _carry_out(units, cells, kind_of, held, counts)
    if len(cells.members) > 1:
        _take_back(units.owners, before, lambda unit, member: cells.cell_of[member] in kinds[kind_of[unit]].near)
    return units.owners != before


class _Cells(msgspec.Struct, frozen=True):
    members: list[list[int]]
    cell_of: list[int]
    """By member."""
    of_class: list[list[int]]
    rack: list[str | None]


def _cells(units: Units, racks: bool) -> _Cells:
    cells = _Cells(members=[], cell_of=[0] * len(units.members), of_class=[], rack=[])
    for indexes in units.classes:
        by_rack: dict[str | None, int] = {}
        for index in indexes:
            rack = units.members[index].rack if racks else None
            cell = by_rack.setdefault(rack, len(cells.members))
            if cell == len(cells.members):
                cells.members.append([])
                cells.rack.append(rack)
            cells.members[cell].append(index)
            cells.cell_of[index] = cell
        cells.of_class.append(list(by_rack.values()))
    return cells


def _kinds(units: Units, cells: _Cells, racks: bool) -> tuple[list[Kind], list[int]]:
    """The kinds, and for each unit which it is of."""
    kinds: list[Kind] = []
    kind_of: list[int] = []
    known: dict[tuple[int, frozenset[str]], int] = {}
    nowhere: frozenset[str] = frozenset()
    manned = frozenset(rack for rack in cells.rack if rack is not None)
    for place, first in enumerate(alike(units)):
        count = units.starts[place + 1] - units.starts[place]
        where = _racks_of(units, place, manned) if racks else [nowhere] * count
        for racks_of_unit in where:
            kind = known.setdefault((first, racks_of_unit), len(kinds))
            if kind == len(kinds):
                accepting = tuple(cell for number in units.topic_classes[place] for cell in cells.of_class[number])
                near = dict.fromkeys(cell for cell in accepting if cells.rack[cell] in racks_of_unit)
                kinds.append(Kind(accepting, near))
            kind_of.append(kind)
    return kinds, kind_of


def _racks_of(units: Units, place: int, manned: frozenset[str]) -> list[frozenset[str]]:
    """For each partition of a topic the racks with members that it can be read in: its replicas' and its leader's."""
    topic = units.topics[place]
    nowhere: frozenset[str] = frozenset()
    result = []
    for partition in range(units.starts[place + 1] - units.starts[place]):
        replicas = topic.racks[partition] if partition < len(topic.racks) else nowhere
        leader = topic.leader_racks[partition] if partition < len(topic.leader_racks) else None
        result.append(manned & replicas if leader is None else manned & (replicas | {leader}))
    return result


def _carry_out(
    units: Units, cells: _Cells, kind_of: Sequence[int], before: Sequence[dict[int, int]], counts: Counts
) -> None:
    """Change the owners to what the counts say, with as few moves as that takes."""
    of_member: list[list[int]] = [[] for _ in units.members]
    pools: list[list[int]] = [[] for _ in counts.kinds]
    for unit, owner in enumerate(units.owners):
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
        _share(units, members, of_member, incoming)


def _released(
    members: Sequence[int], of_member: list[list[int]], kind_of: Sequence[int], kind: int, amount: int
) -> list[int]:
    """Take so many partitions of a kind from those members of a cell that have most partitions."""
    gone: list[int] = []
    of_kind = {member: [unit for unit in of_member[member] if kind_of[unit] == kind] for member in members}
    fullest = [(-len(of_member[member]), -member) for member in members if of_kind[member]]
    heapify(fullest)
    while len(gone) < amount:
        size, member = heappop(fullest)
        gone.append(of_kind[-member].pop())
        if of_kind[-member]:
            heappush(fullest, (size + 1, member))
    let_go = frozenset(gone)
    for member in members:
        if not let_go.isdisjoint(of_member[member]):
            of_member[member] = [unit for unit in of_member[member] if unit not in let_go]
    return gone


def _share(units: Units, members: Sequence[int], of_member: list[list[int]], incoming: list[int]) -> None:
    """Divide what a cell has among its members."""
    total = len(incoming) + sum(len(of_member[member]) for member in members)
    least, extras = divmod(total, len(members))
    quotas: dict[int, int] = {}
    for member in sorted(members, key=lambda member: -min(len(of_member[member]), least + 1)):
        quotas[member] = least + (len(quotas) < extras)
    topic_of = _topic_of(units) if any(len(of_member[member]) > quotas[member] for member in members) else []
    lost = [0] * len(units.topics)
    for member in members:
        incoming += _let_go(of_member[member], quotas[member], topic_of, lost)
    incoming.sort(reverse=True)
    for member in members:
        for unit in of_member[member]:
            units.owners[unit] = member
    lacking = [member for member in members if len(of_member[member]) < quotas[member]]
    while lacking:
        for member in lacking:
            unit = incoming.pop()
            of_member[member].append(unit)
            units.owners[unit] = member
        lacking = [member for member in lacking if len(of_member[member]) < quotas[member]]


def _take_back(owners: list[int], before: list[int], is_near: Callable[[int, int], bool]) -> None:
    """Undo moves that the way of counting brought about and balance does not need.

    A partition goes back to whom it was taken from if that member has ended with fewer; then only who has the one more
    changes. Two partitions go back if each was taken from the member that has the other. Neither may cost nearness.
    """
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


def _topic_of(units: Units) -> list[int]:
    return [place for place in range(len(units.topics)) for _ in range(units.starts[place], units.starts[place + 1])]


def _let_go(owned: list[int], quota: int, topic_of: Sequence[int], lost: list[int]) -> list[int]:
    """Take from `owned` what is above the quota."""
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
