"""Records that are to be delivered again because an operator asks for it: finished ones become available.

The start of the share-partition goes back to the first of them. What lies between them and was finished stays finished,
and what is locked stays locked.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.coordinator.shares.cells import ACKNOWLEDGED, AVAILABLE, Cell, in_order, is_terminal, put
from kohort.coordinator.shares.state import ShareState

MOST_RANGES = 500
"""Of one share-partition in a request."""
Range = tuple[int, int]
"""First and last offset."""


def again(state: ShareState, wanted: Sequence[Range], end: int) -> tuple[int, list[Cell], int]:
    """The new start and cells, and how many offsets become available. `end`: the first offset that was never fetched.

    Offsets that are not finished are left as they are."""
    ranges = [(first, min(last, end - 1)) for first, last, *_ in in_order((a, b, 0, 0) for a, b in wanted)]
    ranges = [one for one in ranges if one[0] <= one[1]]
    if not ranges:
        return state.start, state.cells, 0
    start = min(state.start, ranges[0][0])
    old: list[Cell] = [(start, state.start - 1, ACKNOWLEDGED, 0)] if start < state.start else []
    old += state.cells
    cells: list[Cell] = []
    freed = i = 0
    for first, last, kind, count in old:
        at = first
        while at <= last:
            while i < len(ranges) and ranges[i][1] < at:
                i += 1
            inside = i < len(ranges) and ranges[i][0] <= at
            stop = min(last, ranges[i][1]) if inside else min(last, ranges[i][0] - 1) if i < len(ranges) else last
            if inside and is_terminal(kind):
                put(cells, (at, stop, AVAILABLE, 0))
                freed += stop - at + 1
            else:
                put(cells, (at, stop, kind, count))
            at = stop + 1
    return start, cells, freed
