"""The `lag` assignor: every member the same amount of work that waits, instead of the same number of partitions.

The lag of a partition is how many records the group has still to read of it. What a group has to catch up with is often
in a few partitions; whoever owns three of them is done last. This assignor evens out the sums.

Lag is a moment's figure, and a move has a price. So small differences count as none:

- *Noticeable* is a tenth of what a member has to do on average, and at least a thousand records.
- The smallest lags whose sum is not noticeable are *light*, the others *heavy*. Heavy partitions are divided by lag,
  light ones by number. A group that keeps up, or whose lag is not known, has light partitions only: then this is the
  `uniform` assignor.
- A heavy partition with an owner moves only from a member that has noticeably more than the receiver will have with it.

Heavy partitions that nobody owns go, the largest first, to the subscriber with the smallest sum (Graham's LPT: where
nothing was owned and all subscribe to the same, the largest sum is at most a third above the best possible one). Then
single moves even out what members owned before. Last the numbers are evened out with light partitions, which changes no
sum that counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

import msgspec

from kohort.coordinator.assignors.allot import allotted
from kohort.coordinator.assignors.spec import Assignment, GroupSpec
from kohort.coordinator.assignors.units import NOBODY, Units, alike, assignments, units_of

MAX_MOVES = 100_000
"""Single moves in one assignment. What is reached by then is kept."""


class LagAssignor(msgspec.Struct, frozen=True):
    name: str = "lag"
    noticeable_share: float = 0.1
    """Of the average lag of a member."""
    noticeable_records: int = 1000

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        units = units_of(group)
        lags = [lag for topic in units.topics for lag in _lags(topic.lag, max(0, topic.partitions))]
        if not units.members:
            return {}
        noticeable = max(self.noticeable_records, int(sum(lags) / len(units.members) * self.noticeable_share))
        light = _light(lags, noticeable)
        if all(light):
            return allotted(group, racks=False)
        _divide(units, [0 if is_light else lag for is_light, lag in zip(light, lags, strict=True)], noticeable)
        return assignments(units, units.owners)


def _lags(lag: tuple[int, ...] | None, partitions: int) -> list[int]:
    """One for each partition; what is unknown or negative counts as none."""
    known = [max(0, records) for records in (lag or ())[:partitions]]
    return known + [0] * (partitions - len(known))


def _light(lags: list[int], noticeable: int) -> list[bool]:
    light = [False] * len(lags)
    together = 0
    for unit in sorted(range(len(lags)), key=lambda unit: (lags[unit], unit)):
        together += lags[unit]
        if together >= noticeable:
            break
        light[unit] = True
    return light


class _Scales(msgspec.Struct):
    """Who has how much, with the lightest member of each kind of topic at hand."""

    accepts: list[list[int]]
    """For each kind its members. A kind are the topics with the same subscribers."""
    kinds_of: list[list[int]]
    """For each member the kinds that it may own."""
    weights: list[int]
    others: list[int]
    """Decides between equal weights."""
    heaps: list[list[tuple[int, int, int]]] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self.heaps = [[self._entry(member) for member in members] for members in self.accepts]
        for heap in self.heaps:
            heapify(heap)

    def _entry(self, member: int) -> tuple[int, int, int]:
        return (self.weights[member], self.others[member], member)

    def lightest(self, kind: int) -> int:
        """Entries that a change has made stale are thrown away when they come to the top."""
        heap = self.heaps[kind]
        while heap[0] != self._entry(heap[0][2]):
            heappop(heap)
        return heap[0][2]

    def add(self, member: int, weight: int, other: int) -> None:
        self.weights[member] += weight
        self.others[member] += other
        for kind in self.kinds_of[member]:
            heappush(self.heaps[kind], self._entry(member))


def _divide(units: Units, lags: list[int], noticeable: int) -> None:
    """Fill in and change the owners. A unit with a lag is heavy."""
    kind_of = [
        first for place, first in enumerate(alike(units)) for _ in range(units.starts[place], units.starts[place + 1])
    ]
    accepts = [[member for number in classes for member in units.classes[number]] for classes in units.topic_classes]
    kinds_of: list[list[int]] = [[] for _ in units.members]
    for kind in sorted(set(kind_of)):
        for member in accepts[kind]:
            kinds_of[member].append(kind)
    sums, numbers = [0] * len(units.members), [0] * len(units.members)
    for unit, owner in enumerate(units.owners):
        if owner != NOBODY:
            sums[owner] += lags[unit]
            numbers[owner] += 1
    reachable = [unit for unit in range(len(lags)) if accepts[kind_of[unit]]]
    _place_heavy(units, reachable, lags, kind_of, _Scales(accepts, kinds_of, sums, numbers), noticeable)
    _place_light(units, reachable, lags, kind_of, _Scales(accepts, kinds_of, numbers, sums))


def _place_heavy(
    units: Units, reachable: list[int], lags: list[int], kind_of: list[int], scales: _Scales, noticeable: int
) -> None:
    owners = units.owners
    heavy = [unit for unit in sorted(reachable, key=lambda unit: (-lags[unit], unit)) if lags[unit]]
    for unit in heavy:
        if owners[unit] == NOBODY:
            owners[unit] = scales.lightest(kind_of[unit])
            scales.add(owners[unit], lags[unit], 1)
    owned: list[dict[int, list[tuple[int, int]]]] = [{} for _ in units.members]
    for unit in reversed(heavy):
        owned[owners[unit]].setdefault(kind_of[unit], []).append((lags[unit], unit))

    def relieve(giver: int) -> int | None:
        best = _best_move(owned[giver], scales, giver, noticeable)
        if best is None:
            return None
        _, lag, unit, receiver = best
        owned[giver][kind_of[unit]].remove((lag, unit))
        insort(owned[receiver].setdefault(kind_of[unit], []), (lag, unit))
        owners[unit] = receiver
        scales.add(giver, -lag, -1)
        scales.add(receiver, lag, 1)
        return receiver

    _even_out(scales, relieve)


def _best_move(
    owned: dict[int, list[tuple[int, int]]], scales: _Scales, giver: int, noticeable: int
) -> tuple[int, int, int, int] | None:
    """The move after which the heavier of giver and receiver is lightest: its weight, the lag, the unit, to whom."""
    best: tuple[int, int, int, int] | None = None
    here = scales.weights[giver]
    for kind in sorted(owned):
        receiver = scales.lightest(kind)
        there = scales.weights[receiver]
        half = bisect_left(owned[kind], ((here - there) // 2 + 1, NOBODY))
        for lag, unit in owned[kind][max(0, half - 1) : half + 1]:
            after = max(here - lag, there + lag)
            if (
                receiver != giver
                and after <= here - noticeable
                and (best is None or (after, unit) < (best[0], best[2]))
            ):
                best = (after, lag, unit, receiver)
    return best


def _place_light(units: Units, reachable: list[int], lags: list[int], kind_of: list[int], scales: _Scales) -> None:
    """By number: what nobody owns to whom has least, then from whom has most, as long as that is two more."""
    owners = units.owners
    owned: list[dict[int, list[int]]] = [{} for _ in units.members]
    for unit in reachable:
        if not lags[unit]:
            if owners[unit] == NOBODY:
                owners[unit] = scales.lightest(kind_of[unit])
                scales.add(owners[unit], 1, 0)
            owned[owners[unit]].setdefault(kind_of[unit], []).append(unit)

    def relieve(giver: int) -> int | None:
        for kind in sorted(kind for kind in owned[giver] if owned[giver][kind]):
            receiver = scales.lightest(kind)
            if scales.weights[giver] - scales.weights[receiver] >= 2:
                unit = owned[giver][kind].pop()
                owned[receiver].setdefault(kind, []).append(unit)
                owners[unit] = receiver
                scales.add(giver, -1, 0)
                scales.add(receiver, 1, 0)
                return receiver
        return None

    _even_out(scales, relieve)


def _even_out(scales: _Scales, relieve: Callable[[int], int | None]) -> None:
    """Move single units, from the heaviest member first, until no move is worth it.

    Each move lowers the sum of the squares, so there is an end. A move can make room for another member that had none
    before; therefore whoever found none is asked again, until nobody moves anything.
    """
    left = MAX_MOVES
    moved = True
    while moved:
        moved = False
        waiting = [(-weight, member) for member, weight in enumerate(scales.weights)]
        heapify(waiting)
        while waiting and left:
            weight, giver = heappop(waiting)
            receiver = relieve(giver) if -weight == scales.weights[giver] else None
            if receiver is not None:
                moved = True
                left -= 1
                for member in (giver, receiver):
                    heappush(waiting, (-scales.weights[member], member))
