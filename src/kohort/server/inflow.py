"""The limit of requests in memory, over all connections (queued.max.request.bytes).

It counts bytes that were read and not handled yet: incomplete frames, frames that wait for a turn, frames that wait
behind a parked request. Above the limit no connection is read, except one in the middle of a frame, the favoured one:
otherwise incomplete frames would occupy the memory for ever. A favoured connection that stalls is closed.
"""

from __future__ import annotations

from typing import Protocol

STALLED_S = 3.0


class Reader(Protocol):
    """The part of a connection that the limit uses."""

    last_active: float

    @property
    def partial(self) -> int:
        """Bytes of an incomplete frame."""

    def pause_reading(self, why: str) -> None: ...
    def resume_reading(self, why: str) -> None: ...
    def close(self, reason: str) -> None: ...


WHY = "queued.max.request.bytes"


class Inflow:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.favoured: Reader | None = None
        self._waiting: dict[Reader, None] = {}

    def grew(self, reader: Reader, size: int, *, finished: bool) -> None:
        """`size` more bytes are held for a reader. `finished`: they completed a frame."""
        self.total += size
        if self.total <= self.limit:
            return
        if reader is self.favoured:
            if not finished and reader.partial:
                return
            self.favoured = None
        self._waiting[reader] = None
        reader.pause_reading(WHY)
        self._favour()

    def shrank(self, size: int) -> None:
        self.total -= size
        assert self.total >= 0
        if self.total > self.limit:
            self._favour()
            return
        self.favoured = None
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.resume_reading(WHY)

    def forget(self, reader: Reader, size: int) -> None:
        """Release a closed reader and the bytes that were held for it."""
        self._waiting.pop(reader, None)
        if reader is self.favoured:
            self.favoured = None
        self.shrank(size)

    def close_stalled(self, now: float) -> None:
        """Call this about once a second."""
        if self.favoured is not None and self.favoured.last_active < now - STALLED_S:
            self.favoured.close(f"stalled in the middle of a request while memory is short ({WHY})")

    def _favour(self) -> None:
        if self.favoured is not None:
            return
        self.favoured = next((reader for reader in self._waiting if reader.partial), None)
        if self.favoured is not None:
            del self._waiting[self.favoured]
            self.favoured.resume_reading(WHY)
