"""The limit of answers in memory, over all connections (queued.max.response.bytes).

It counts bytes that the operating system has not taken yet, and those of answers that the broker is still making
(broker/works.py). Above the limit, the connections with the most bytes are aborted until the rest is below it: other
clients must not pay for one that does not read.
"""

from __future__ import annotations

from typing import Protocol


class Writer(Protocol):
    """The part of a connection that the limit uses."""

    @property
    def unsent(self) -> int:
        """Bytes of answers that have not left."""

    def abort_for(self, reason: str) -> None: ...


class Outflow:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._writers: dict[Writer, None] = {}
        """Those that had unsent bytes when they were looked at last."""

    @property
    def unsent(self) -> int:
        """Bytes of answers that have not left."""
        return sum(writer.unsent for writer in self._writers)

    def sent(self, writer: Writer) -> None:
        """An answer was written."""
        if writer.unsent:
            self._writers[writer] = None

    def forget(self, writer: Writer) -> None:
        self._writers.pop(writer, None)

    def room(self, unfinished: int = 0, largest: int = 0) -> int:
        """Abort the largest writers above the limit. Returns the bytes that it leaves to answers that are being made.

        These take `unfinished` bytes now. A writer with less than the `largest` of them stays: the broker drops that
        one."""
        unsent = {writer: size for writer in self._writers if (size := writer.unsent)}
        self._writers = dict.fromkeys(unsent)
        total = sum(unsent.values())
        for writer in sorted(unsent, key=unsent.__getitem__, reverse=True):
            if total + unfinished <= self.limit or unsent[writer] < largest:
                break
            total -= unsent[writer]
            writer.abort_for(f"{unsent[writer]} bytes of its answers are unread, and memory is short")
        return max(self.limit - total, 0)
