"""What is stored of the offsets of a share-partition: sorted ranges, each with a state and a count of deliveries.

An offset that no cell has was never given back or finished. Of two cells of an offset, the one with the higher count
holds; of equal counts the one with the higher state (PersisterStateBatchCombiner).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
"""Delivery states. ACQUIRED is never stored. ARCHIVING is an offset whose dead letter is not written yet."""
Cell = tuple[int, int, int, int]
"""First offset, last offset, state, count of deliveries."""


def is_terminal(state: int) -> bool:
    return state in (ACKNOWLEDGED, ARCHIVED)


def _last(cell: Cell) -> int:
    return cell[1]


def _first(cell: Cell) -> int:
    return cell[0]


def index_at(cells: Sequence[Cell], offset: int) -> int:
    """The index of the first cell that ends at `offset` or behind it."""
    return bisect_left(cells, offset, key=_last)


def put(cells: list[Cell], cell: Cell) -> None:
    """Append a cell that begins behind the last one; neighbours that are alike become one."""
    if cells:
        before = cells[-1]
        if before[1] + 1 == cell[0] and before[2:] == cell[2:]:
            cells[-1] = (before[0], cell[1], cell[2], cell[3])
            return
    cells.append(cell)


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Sorted, without overlaps, and without what is no range."""
    found: list[Cell] = []
    for cell in sorted(cells):
        if cell[0] > cell[1]:
            continue
        if not found or found[-1][1] < cell[0]:
            put(found, cell)
        else:
            merge(found, [cell])
    return found


def merge(cells: list[Cell], changes: Sequence[Cell]) -> None:
    """Put `changes`, which are in order, into `cells`."""
    if not changes:
        return
    low = index_at(cells, changes[0][0] - 1)
    high = bisect_left(cells, changes[-1][1] + 2, low, key=_first)
    cells[low:high] = _merged(cells[low:high], changes)


def _merged(known: Sequence[Cell], changes: Sequence[Cell]) -> list[Cell]:
    found: list[Cell] = []
    i = j = 0
    a: Cell | None = known[0] if known else None
    b: Cell | None = changes[0]
    while a is not None or b is not None:
        if b is None or (a is not None and a[1] < b[0]):
            assert a is not None
            put(found, a)
            i += 1
            a = known[i] if i < len(known) else None
        elif a is None or b[1] < a[0]:
            put(found, b)
            j += 1
            b = changes[j] if j < len(changes) else None
        elif a[0] < b[0]:
            put(found, (a[0], b[0] - 1, a[2], a[3]))
            a = (b[0], a[1], a[2], a[3])
        elif b[0] < a[0]:
            put(found, (b[0], a[0] - 1, b[2], b[3]))
            b = (a[0], b[1], b[2], b[3])
        else:
            last = min(a[1], b[1])
            holds = a if (a[3], a[2]) >= (b[3], b[2]) else b
            put(found, (a[0], last, holds[2], holds[3]))
            if a[1] > last:
                a = (last + 1, a[1], a[2], a[3])
            else:
                i += 1
                a = known[i] if i < len(known) else None
            if b[1] > last:
                b = (last + 1, b[1], b[2], b[3])
            else:
                j += 1
                b = changes[j] if j < len(changes) else None
    return found


def cut(cells: list[Cell], start: int) -> None:
    """Drop what is below `start`."""
    gone = index_at(cells, start)
    del cells[:gone]
    if cells and cells[0][0] < start:
        _, last, state, count = cells[0]
        cells[0] = (start, last, state, count)


def cut_changes(changes: Sequence[Cell], start: int) -> tuple[Cell, ...]:
    if not changes or changes[0][0] >= start:
        return tuple(changes)
    kept = list(changes)
    cut(kept, start)
    return tuple(kept)


def finished_up_to(start: int, cells: Sequence[Cell], changes: Sequence[Cell]) -> int:
    """Where the finished prefix ends that begins at `start`, once `changes` are in `cells`."""
    i, j = 0, 0
    while True:
        while j < len(changes) and changes[j][1] < start:
            j += 1
        if j < len(changes) and changes[j][0] <= start:
            if not is_terminal(changes[j][2]):
                return start
            start = changes[j][1] + 1
            continue
        while i < len(cells) and cells[i][1] < start:
            i += 1
        if i == len(cells) or cells[i][0] > start or not is_terminal(cells[i][2]):
            return start
        start = min(cells[i][1], changes[j][0] - 1 if j < len(changes) else cells[i][1]) + 1


def count_terminal(cells: Iterable[Cell], start: int) -> int:
    """How many finished offsets there are from `start` on."""
    return sum(last - max(first, start) + 1 for first, last, state, _ in cells if is_terminal(state) and last >= start)


def archiving(cells: Iterable[Cell]) -> list[Cell]:
    """Those whose dead letters are not written yet."""
    return [cell for cell in cells if cell[2] == ARCHIVING]
