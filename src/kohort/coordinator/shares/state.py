"""The hard state of a share-partition: the fold of its records. Only `apply` of its shard changes it."""

from __future__ import annotations

import msgspec

from kohort.coordinator.shares.cells import Cell, count_terminal, cut, merge
from kohort.coordinator.shares.events import RESET

UNKNOWN = -1


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The whole state."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start: int
    complete: int
    created_ms: int
    written_ms: int
    cells: tuple[Cell, ...] = ()


class Update(msgspec.Struct, frozen=True, gc=False):
    """What has changed since the last snapshot."""

    snapshot_epoch: int
    leader_epoch: int
    start: int
    complete: int
    cells: tuple[Cell, ...] = ()


class ShareState(msgspec.Struct):
    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start: int = RESET
    """SPSO: everything below is finished."""
    complete: int = 0
    """How many offsets from `start` on are finished."""
    cells: list[Cell] = []
    updates: int = 0
    """How many updates followed the last snapshot."""
    created_ms: int = 0

    def apply(self, value: Snapshot | Update) -> None:
        """An update never takes the start back."""
        self.snapshot_epoch = value.snapshot_epoch
        self.leader_epoch = value.leader_epoch
        if isinstance(value, Snapshot):
            self.state_epoch, self.created_ms = value.state_epoch, value.created_ms
            self.start, self.updates = value.start, 0
            self.cells = list(value.cells)
            self.complete = value.complete
        else:
            self.updates += 1
            merge(self.cells, value.cells)
            # A write that comes late may have a lower start, and then its count is not that of the present one.
            if value.start >= self.start:
                is_late = value.start == self.start and value.complete < self.complete
                self.complete = self.complete if is_late else value.complete
            self.start = max(self.start, value.start)
        cut(self.cells, self.start)
        if self.complete == UNKNOWN:
            self.complete = count_terminal(self.cells, self.start)

    @property
    def end(self) -> int:
        """Behind the last offset that something is stored of."""
        return self.cells[-1][1] + 1 if self.cells else self.start
