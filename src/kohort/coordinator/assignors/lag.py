"""The `lag` assignor: each member gets the same amount of waiting work, instead of the same number of partitions.

The lag of a partition is the number of records that the group has not read yet. Often most of it is in a few
partitions, and the member that owns several of them finishes last. This assignor evens out the sums of lag.

Lag changes all the time, and a move has a price. So small differences do not count:

- *Noticeable* is a tenth of a member's average lag, and at least a thousand records.
- The smallest lags whose sum is not noticeable are *light*, the others *heavy*. Heavy partitions are divided by lag,
  light ones by number. A group that keeps up, or whose lag is unknown, has only light partitions: it gets the
  assignment of `uniform`.
- A heavy partition with an owner moves only if the owner has noticeably more than the receiver will have with it.

Free heavy partitions go, the largest first, to the subscriber with the smallest sum (Graham's LPT: if nothing was owned
and all members subscribe to the same topics, the largest sum is at most a third above the optimum). Then single moves
even out what members owned before. Last, light partitions even out the numbers, which changes no sum that counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

import msgspec

from kohort.coordinator.assignors.group_index import NOBODY, GroupIndex, alike, assignments, index_of
from kohort.coordinator.assignors.placement import place_partitions
from kohort.coordinator.assignors.spec import Assignment, GroupSpec

MAX_MOVES = 100_000
"""Limit of single moves in one assignment."""


class LagAssignor(msgspec.Struct, frozen=True):
    name: str = "lag"
    noticeable_share: float = 0.1
    """Share of a member's average lag."""
    noticeable_records: int = 1000

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        indexed = index_of(group)
        lags = [lag for topic in indexed.topics for lag in _lags(topic.lag, max(0, topic.partitions))]
        if not indexed.members:
            return {}
        noticeable = max(self.noticeable_records, int(sum(lags) / len(indexed.members) * self.noticeable_share))
        light = _light(lags, noticeable)
        if all(light):
            return place_partitions(group, racks=False)
        _divide(indexed, [0 if is_light else lag for is_light, lag in zip(light, lags, strict=True)], noticeable)
        return assignments(indexed, indexed.owners)


def _lags(lag: tuple[int, ...] | None, partitions: int) -> list[int]:
    """One lag for each partition; an unknown or negative one counts as zero."""
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
    """The weight of each member, and a heap for the lightest member of each kind of topics."""

    accepts: list[list[int]]
    """For each kind, its members. A kind is all topics with the same subscribers."""
    kinds_of: list[list[int]]
    """For each member, the kinds that it may own."""
    weights: list[int]
    others: list[int]
    """Breaks ties between equal weights."""
    heaps: list[list[tuple[int, int, int]]] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self.heaps = [[self._entry(member) for member in members] for members in self.accepts]
        for heap in self.heaps:
            heapify(heap)

    def _entry(self, member: int) -> tuple[int, int, int]:
        return (self.weights[member], self.others[member], member)

    def lightest(self, kind: int) -> int:
        """The lightest member. Stale entries are dropped when they come to the top."""
        heap = self.heaps[kind]
        while heap[0] != self._entry(heap[0][2]):
            heappop(heap)
        return heap[0][2]

    def add(self, member: int, weight: int, other: int) -> None:
        self.weights[member] += weight
        self.others[member] += other
        for kind in self.kinds_of[member]:
            heappush(self.heaps[kind], self._entry(member))


def _divide(indexed: GroupIndex, lags: list[int], noticeable: int) -> None:
    """Assign free units and move owned ones. A unit with a lag is heavy."""
    kind_of = [first for place, first in enumerate(alike(indexed)) for _ in indexed.units(place)]
    accepts = [indexed.subscribers(place) for place in range(len(indexed.topics))]
    kinds_of: list[list[int]] = [[] for _ in indexed.members]
    for kind in sorted(set(kind_of)):
        for member in accepts[kind]:
            kinds_of[member].append(kind)
    sums, numbers = [0] * len(indexed.members), [0] * len(indexed.members)
    for unit, owner in enumerate(indexed.owners):
        if owner != NOBODY:
            sums[owner] += lags[unit]
            numbers[owner] += 1
    reachable = [unit for unit in range(len(lags)) if accepts[kind_of[unit]]]
    _place_heavy(indexed, reachable, lags, kind_of, _Scales(accepts, kinds_of, sums, numbers), noticeable)
    _place_light(indexed, reachable, lags, kind_of, _Scales(accepts, kinds_of, numbers, sums))


def _place_heavy(
    indexed: GroupIndex, reachable: list[int], lags: list[int], kind_of: list[int], scales: _Scales, noticeable: int
) -> None:
    owners = indexed.owners
    heavy = [unit for unit in sorted(reachable, key=lambda unit: (-lags[unit], unit)) if lags[unit]]
    for unit in heavy:
        if owners[unit] == NOBODY:
            owners[unit] = scales.lightest(kind_of[unit])
            scales.add(owners[unit], lags[unit], 1)
    owned: list[dict[int, list[tuple[int, int]]]] = [{} for _ in indexed.members]
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
    """The move after which the heavier of giver and receiver is lightest: its weight, lag, unit and receiver."""
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


def _place_light(
    indexed: GroupIndex, reachable: list[int], lags: list[int], kind_of: list[int], scales: _Scales
) -> None:
    """By number: free units go to the member with fewest; then units move while members differ by two or more."""
    owners = indexed.owners
    owned: list[dict[int, list[int]]] = [{} for _ in indexed.members]
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
    """Move single indexed, from the heaviest member first, until no move is worth it.

    Each move lowers the sum of the squares, so the loop ends. A move can make another one possible, so all members are
    tried again until none moves anything."""
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
