"""The limit of requests in memory, over all connections (queued.max.request.bytes).

It counts bytes that were read and not handled yet: incomplete frames, frames that wait for a turn, frames that wait
behind a parked request.

A *large* reader holds, or will hold with the rest of its frame, more than SMALL_BYTES. The frame's length comes first,
so the room for the whole frame is promised before the frame is read; a large reader without a promise waits, in order
of arrival. Large readers get three quarters of the limit. The last quarter is left for small requests: heartbeats,
commits, metadata. One reader at a time is read although its frame exceeds the room:
otherwise a frame larger than the room would wait for ever. The limit may be exceeded by this one frame, but not while
the process is short of memory (`narrow`): then it waits for memory, and if it is on its way already, its reader is
closed.

While readers wait, those that keep the room occupied are closed, all of them in one sweep:

- the large readers that send less than MIN_RATE for STALLED_S, because they stall in the middle of a frame, because
  their requests wait behind one that is parked, or because they read no answers;
- the readers that hold the most, if the limit is exceeded although nothing waits for a turn, or exceeded by a quarter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

SMALL_BYTES = 65_536
"""Up to this size a request finds room in the last quarter of the limit. Requests of group members are smaller, except
those of leaders of large groups."""
MIN_RATE = 65_536
"""Bytes per second. The slowest links of clients (an old mobile network) reach it."""
STALLED_S = 2.0
"""A reader below the rate for this long, sweep by sweep, has stalled. It is more than one sweep, because one lost TCP
segment may stop a client for a second."""
LONG_WAIT_S = 4.0
"""When the first waiting reader has waited this long, stallers have been closed, and it needs more than that."""
OVERTAKING = 32
"""This many waiting readers may get room before an earlier one whose frame is larger."""
NAMED = 5
"""Clients that one line of the log names."""
WHY = "queued.max.request.bytes"


class Reader(Protocol):
    """The part of a connection that the limit uses."""

    peer: str
    missing: int
    """Bytes that the incomplete frame still needs."""

    @property
    def held_bytes(self) -> int:
        """Bytes that are held for it, without those that a turn has taken."""

    @property
    def is_awaited(self) -> bool:
        """Only the client can make its bytes fewer: by sending the rest, or by reading answers."""

    def pause_reading(self, why: str) -> None: ...
    def resume_reading(self, why: str) -> None: ...
    def abort(self) -> None: ...


class _Large:
    """A large reader that may read."""

    __slots__ = ("promised", "received", "since", "slow_s")

    def __init__(self, promised: int, now: float) -> None:
        self.promised = promised
        """Bytes of its frame that are not here yet."""
        self.since = now
        self.received = 0
        """Bytes since then."""
        self.slow_s = 0.0
        """How long it has been below the rate."""


class Inflow:
    """`clock` returns seconds, `readers` all open readers. `closing` logs that clients are closed: why, which (the
    first few) and how many."""

    def __init__(
        self,
        limit: int,
        clock: Callable[[], float],
        readers: Callable[[], Iterable[Reader]],
        closing: Callable[[str, list[str], int], None],
    ) -> None:
        self.limit = limit
        self.room = limit - limit // 4
        """What large readers may fill."""
        self._most: int | None = None
        """What a process short of memory may hold, with the one frame that exceeds the room."""
        self.total = 0
        self.promised = 0
        self._clock = clock
        self._readers = readers
        self._closing = closing
        self._large: dict[Reader, _Large] = {}
        self._waiting: dict[Reader, float] = {}
        """Readers that are paused, and since when; the first one has waited longest."""
        self._favoured: Reader | None = None
        """The reader whose frame may exceed the room."""
        self._gone: dict[Reader, int] = {}
        """Aborted readers whose bytes are released as soon as the event loop says that they are closed."""
        self._gone_bytes = 0
        self._excess = limit + limit // 4
        """Above this total, readers are closed at once."""

    def narrow(self, most: int) -> None:
        """Hold no more than `most` bytes, if possible. Large readers get less room; small requests wait for nobody."""
        self.room = max(most - self.limit // 4, 0)
        self._most = most if most < self.limit else None
        favoured = self._favoured
        if favoured is not None and favoured.missing and not self._leaves_memory(0):
            self._close([favoured], "its request is larger than the memory that is left")
        self._admit_waiting()

    def grew(self, reader: Reader, size: int, *, finished: bool) -> None:
        """`size` more bytes are held for a reader. `finished`: they completed a frame."""
        self.total += size
        missing = reader.missing
        if missing + reader.held_bytes <= SMALL_BYTES:
            if self._large:
                self._release(reader)
            if self.total > self.limit:
                self._wait(reader)
            return
        large = self._large.get(reader)
        if large is None:
            if reader in self._waiting:  # it was read once more
                self._check_excess()
            elif self._fits(missing) or self._may_exceed(missing):
                self._admit(reader)
            else:
                self._wait(reader)
            return
        large.received += size
        self.promised += missing - large.promised
        large.promised = missing
        if finished and reader is not self._favoured and self.total + self.promised > self.room:
            self._wait(reader)

    def shrank(self, size: int) -> None:
        self.total -= size
        assert self.total >= 0
        if self.total <= self.limit:
            self._excess = self.limit + self.limit // 4
        if self._waiting:
            self._admit_waiting()

    def forget(self, reader: Reader, size: int) -> None:
        """Release a closed reader and the bytes that were held for it."""
        self._waiting.pop(reader, None)
        self._gone_bytes -= self._gone.pop(reader, 0)
        self._release(reader)
        self.shrank(size)

    def sweep(self) -> None:
        """Call this about once a second."""
        now = self._clock()
        slow = []
        for reader, large in list(self._large.items()):
            if reader.held_bytes + reader.missing <= SMALL_BYTES:
                self._release(reader)
                continue
            seconds = now - large.since
            # After a pause of the server itself, the bytes that arrived meanwhile may not be read yet.
            is_slow = reader.is_awaited and seconds < STALLED_S and large.received < MIN_RATE * seconds
            large.slow_s = large.slow_s + seconds if is_slow else 0.0
            large.since, large.received = now, 0
            if large.slow_s >= STALLED_S:
                slow.append(reader)
        if not self._waiting:
            return
        self._close(slow, "stalled in the middle of a request while memory is short")
        since = next(iter(self._waiting.values()), now)
        if now - since >= LONG_WAIT_S:
            if self.total - self._gone_bytes > self.limit:
                self._close_largest(self.limit // 2)
            self._favour()

    # -- large readers

    def _fits(self, missing: int) -> bool:
        return self.total - self._gone_bytes + self.promised + missing <= self.room

    def _may_exceed(self, missing: int) -> bool:
        """True if the frame of one reader may exceed the room: no other frame is on its way."""
        return not self.promised and self._fits(0) and self._leaves_memory(missing)

    def _leaves_memory(self, missing: int) -> bool:
        return self._most is None or self.total - self._gone_bytes + self.promised + missing <= self._most

    def _admit(self, reader: Reader) -> None:
        if not self._fits(reader.missing):
            self._favoured = reader
        self._large[reader] = _Large(reader.missing, self._clock())
        self.promised += reader.missing

    def _release(self, reader: Reader) -> None:
        if reader is self._favoured:
            self._favoured = None
        large = self._large.pop(reader, None)
        if large is not None:
            self.promised -= large.promised

    def _favour(self) -> None:
        if self._favoured is not None:
            return
        reader = next((one for one in self._waiting if one.missing and self._leaves_memory(one.missing)), None)
        if reader is not None:
            self._resume(reader)

    # -- waiting readers

    def _wait(self, reader: Reader) -> None:
        self._release(reader)
        if reader not in self._waiting and reader not in self._gone:
            self._waiting[reader] = self._clock()
            reader.pause_reading(WHY)
        self._check_excess()

    def _resume(self, reader: Reader) -> None:
        del self._waiting[reader]
        if reader.held_bytes + reader.missing > SMALL_BYTES:
            self._admit(reader)
        reader.resume_reading(WHY)

    def _admit_waiting(self) -> None:
        """Let those read that have room."""
        if self.total - self._gone_bytes > self.limit:
            return
        refused = 0
        for reader in list(self._waiting):
            missing = reader.missing
            if reader.held_bytes + missing <= SMALL_BYTES or self._fits(missing) or self._may_exceed(missing):
                self._resume(reader)
                continue
            refused += 1
            if refused > OVERTAKING:
                return

    # -- closing

    def _check_excess(self) -> None:
        """Each paused reader may have got one read beyond the limit: with many of them that is too much."""
        total = self.total - self._gone_bytes
        if total > self._excess:
            self._close_largest(self.limit // 2)
            # What turns have taken is not closed away: do not look at all readers again for each read.
            self._excess = max(self._excess, self.total - self._gone_bytes + self.limit // 8)

    def _close_largest(self, rest: int) -> None:
        """Close the readers with the most bytes until no more than `rest` are held outside of turns."""
        held = {
            reader: size
            for reader in self._readers()
            if (size := reader.held_bytes) and reader is not self._favoured and reader not in self._gone
        }
        total = sum(held.values())
        largest = []
        for reader in sorted(held, key=held.__getitem__, reverse=True):
            if total <= rest:
                break
            total -= held[reader]
            largest.append(reader)
        self._close(largest, "holds most of the requests in memory, which is short")

    def _close(self, readers: list[Reader], why: str) -> None:
        if not readers:
            return
        self._closing(f"{why} ({WHY})", [reader.peer for reader in islice(readers, NAMED)], len(readers))
        for reader in readers:
            size = self._gone[reader] = reader.held_bytes
            self._gone_bytes += size
            self._waiting.pop(reader, None)
            self._release(reader)
            reader.abort()
        self._admit_waiting()
