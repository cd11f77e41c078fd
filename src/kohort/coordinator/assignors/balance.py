"""How many partitions of which kind each group of members gets: this decides the balance of an assignment.

Members in the same rack that may own the same partitions are one *cell*. Partitions that the same cells may own and
that are near the same cells are one *kind*. There are few cells and kinds even if members and partitions are many, so
the search runs on small numbers. Inside a cell, members differ by at most one partition: the fullest have `top`
partitions, the emptiest `bottom`.

Balance: while the top of one cell is at least two above the bottom of another one that its partitions can reach,
directly or through other cells, partitions are passed on along that path. If the fullest cell reaches no emptier one,
it and all cells that it reaches are finished. The result is the most even assignment that the subscriptions allow, over
all topics together (semi-matching: Harvey and others, 2006).

Nearness: a partition that is far from its owner goes to a near cell, which passes on one of its own, and so on, until a
cell can keep one more without harm to balance, or the path closes at its start. No step moves a near partition away, so
each round brings at least one partition near its owner and keeps the balance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import msgspec

MAX_ROUNDS = 20_000
"""Limit of steps in the search for balance or nearness, which then ends; real groups need a few hundred."""

Path: TypeAlias = list[tuple[int, int]]
"""Cells, each with the kind of which it passes partitions on."""

Reached: TypeAlias = dict[int, tuple[int, int] | None]
"""For each reached cell, the cell and the kind by which it was reached."""


class Kind(msgspec.Struct, frozen=True):
    cells: tuple[int, ...]
    """The cells that may own partitions of this kind."""
    near: Mapping[int, None] = msgspec.field(default_factory=dict)
    """Those of them in a rack that has these partitions; an ordered set."""


class Counts(msgspec.Struct):
    kinds: Sequence[Kind]
    sizes: Sequence[int]
    """Members in each cell; at least one."""
    held: list[dict[int, int]]
    """For each cell, the number of its partitions of each kind; no zeros."""
    totals: list[int]

    def top(self, cell: int) -> int:
        return -(-self.totals[cell] // self.sizes[cell])

    def bottom(self, cell: int) -> int:
        return self.totals[cell] // self.sizes[cell]

    def give(self, cell: int, kind: int, amount: int) -> None:
        held = self.held[cell]
        held[kind] = held.get(kind, 0) + amount
        if not held[kind]:
            del held[kind]
        self.totals[cell] += amount

    def push(self, path: Path, end: int, amount: int) -> None:
        """Each cell of the path passes `amount` partitions on to the next one, the last one to `end`."""
        for (cell, kind), receiver in zip(path, [cell for cell, _ in path[1:]] + [end], strict=True):
            self.give(cell, kind, -amount)
            self.give(receiver, kind, amount)


def fill(counts: Counts, free: Sequence[int]) -> None:
    """Give the free partitions of each kind to the emptiest cell; among equals, to a near one."""
    choosy = sorted(range(len(free)), key=lambda kind: (sum(counts.sizes[c] for c in counts.kinds[kind].cells), kind))
    for kind in choosy:
        near, left = counts.kinds[kind].near, free[kind]
        if not left or not counts.kinds[kind].cells:
            continue
        heap = [(counts.bottom(cell), cell not in near, cell) for cell in counts.kinds[kind].cells]
        heapify(heap)
        while left:
            bottom, far, cell = heappop(heap)
            amount = min(left, counts.sizes[cell] * (bottom + 1) - counts.totals[cell])
            counts.give(cell, kind, amount)
            left -= amount
            heappush(heap, (bottom + 1, far, cell))


def balance(counts: Counts) -> None:
    still_open = set(range(len(counts.sizes)))
    for _ in range(MAX_ROUNDS):
        if not still_open:
            return
        fullest = min(still_open, key=lambda cell: (-counts.top(cell), cell))
        came_from = _reach(counts, fullest)
        emptiest = min(came_from, key=lambda cell: (counts.bottom(cell), cell))
        if counts.top(fullest) - counts.bottom(emptiest) < 2:
            still_open.difference_update(came_from)
            continue
        path = _path(came_from, emptiest)
        level = sum(counts.totals[cell] for cell in came_from) // sum(counts.sizes[cell] for cell in came_from)
        amount = min(
            counts.totals[fullest] - counts.sizes[fullest] * level,
            counts.sizes[emptiest] * level - counts.totals[emptiest],
            *(counts.held[cell][kind] for cell, kind in path),
        )
        counts.push(path, emptiest, max(1, amount))


def bring_near(counts: Counts) -> None:
    rounds = MAX_ROUNDS
    # A partition that one cell passes on can be what an earlier one lacked.
    found = True
    while found:
        found = False
        for cell in range(len(counts.sizes)):
            while rounds and _bring_one_near(counts, cell):
                rounds -= 1
                found = True


def _reach(counts: Counts, start: int) -> Reached:
    """All cells that partitions of `start` can reach, each by the shortest path."""
    came_from: Reached = {start: None}
    spread: set[int] = set()
    queue = [start]
    for cell in queue:
        for kind in counts.held[cell]:
            if kind in spread:
                continue
            spread.add(kind)
            for receiver in counts.kinds[kind].cells:
                if receiver not in came_from:
                    came_from[receiver] = (cell, kind)
                    queue.append(receiver)
    return came_from


def _path(came_from: Reached, end: int) -> Path:
    path: Path = []
    step = came_from[end]
    while step is not None:
        path.append(step)
        step = came_from[step[0]]
    path.reverse()
    return path


def _bring_one_near(counts: Counts, start: int) -> bool:
    """Move a far partition of `start` to a near cell along a path that ends at a cell with room or at `start`."""
    came_from: Reached = {}
    queue: list[int] = []
    for kind in counts.held[start]:
        near = counts.kinds[kind].near
        if near and start not in near:
            for cell in near:
                if cell not in came_from:
                    came_from[cell] = (start, kind)
                    queue.append(cell)
    spread: set[tuple[int, bool]] = set()
    for cell in queue:
        if counts.top(start) > counts.bottom(cell):
            _walk(counts, _path(came_from | {start: None}, cell), cell)
            return True
        for kind in counts.held[cell]:
            near = counts.kinds[kind].near
            is_near = cell in near
            if (kind, is_near) in spread:
                continue
            spread.add((kind, is_near))
            for receiver in near if is_near else counts.kinds[kind].cells:
                if receiver == start:
                    _walk(counts, [*_path(came_from | {start: None}, cell), (cell, kind)], start)
                    return True
                if receiver not in came_from:
                    came_from[receiver] = (cell, kind)
                    queue.append(receiver)
    return False


def _walk(counts: Counts, path: Path, end: int) -> None:
    start = path[0][0]
    amount = min(counts.held[cell][kind] for cell, kind in path)
    if end != start:
        # At most as many as keep the balance: a fullest member loses one, an emptiest member gets one.
        fullest = counts.totals[start] - counts.sizes[start] * (counts.top(start) - 1)
        emptiest = counts.sizes[end] * (counts.bottom(end) + 1) - counts.totals[end]
        amount = min(amount, fullest, emptiest)
    counts.push(path, end, amount)
