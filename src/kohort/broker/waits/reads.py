"""Reads that a step needs and does not wait for: asked for with the turn, and done by the edge beside later turns
(outcomes.py). They are those of fetches, searches by time, which requests in steps yield, and those of compaction.

A fetch of records that are not in memory (logs/tails.py) is parked here with its reads. The turn hands them out
(`Turn.reads`), each outcome arrives as `ReadDone`, and the fetch is evaluated anew when all of its reads are there: by
the high watermark, the last stable offset, the start of the log and the topics of that moment. So its answer is one
view, and a read only provides bytes:

- a read is of a log, which is never reused: if its topic is deleted, or created anew, nobody asks for what it found;
- what was appended since lies above what the reader had to stop at; what was trimmed is out of range;
- what compaction has replaced meanwhile is dropped from what was found (`replaced`): the list of aborted transactions
  has forgotten those of the replaced batches.

A batch that is larger than its read's share of the answer is of use only if it is the first one of the answer. Others
are dropped as soon as they are read: the first batches of fifty partitions may be much more than one answer.

What is read and not answered yet has a limit in bytes over all connections. Beyond it, reads wait in the order in which
they were asked for. A connection has one fetch at a time, with at most READS reads and the bytes of one answer, so the
order is fair. The reads of a connection that has gone are not handed out; one that was counts until it is done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable

from kohort.broker.messages import changed
from kohort.broker.turn import ByTime, ReadAsked, ReadDone
from kohort.broker.waits.fetch_waits import FetchWait
from kohort.coordinator.events import RequestId
from kohort.storage.protocol import NO_END, LogKey, StoredBatch

READS = 50
"""Reads of one fetch. Partitions beyond them are empty in its answer, as those beyond its limit of bytes are."""
AT_ONCE = 8
"""Reads that are handed out and not done. The first batch of each may be larger than what it may find."""
MEMORY_SHARE = 16
"""What is read has this part of queued.max.response.bytes, besides it."""
NOBODYS = RequestId(0)
"""In place of a request: no request has this id."""


class FailedRead(Exception):
    """A read failed, and may succeed later."""


class Read:
    """One read, and what it has found."""

    __slots__ = ("_replaced", "asked", "done", "found", "is_cut", "request_id", "size")

    def __init__(self, asked: ReadAsked, request_id: RequestId) -> None:
        self.asked = asked
        self.request_id = request_id
        self.found: tuple[StoredBatch, ...] | None = None
        """The batches; None until it is done."""
        self.done: ReadDone | None = None
        """The outcome, without the batches."""
        self.size = asked.max_bytes
        """Of what it may find; when it is done, of what it has found."""
        self.is_cut = False
        """Compaction has replaced some of what it found."""
        self._replaced: list[tuple[int, int]] = []
        """What compaction has replaced since the read was asked for, while it is not done."""

    def take(self, done: ReadDone) -> None:
        self.done = changed(done, batches=())  # what is cut from `found` must not stay in memory
        self.found = done.batches
        self.size = sum([len(batch.data) for batch in done.batches])
        for first, last in self._replaced:
            self.replace(first, last)

    def cut(self) -> None:
        """Forget the batches: the fetch asks again if it needs them."""
        self.found = ()
        self.size = 0
        self.is_cut = True

    def replace(self, first: int, last: int) -> None:
        """The batches that begin between these offsets are replaced."""
        if self.found is None:
            self._replaced.append((first, last))
        elif self.found and first <= self.found[-1].base_offset and last >= self.found[0].base_offset:
            self.is_cut = True
            self.found = tuple([batch for batch in self.found if batch.base_offset < first])


class Reads:
    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.size = 0
        """Of what is read and not answered."""
        self._last_id = 0
        self._queue: OrderedDict[int, Read] = OrderedDict()
        """Reads that are not handed out yet."""
        self._handed_out: dict[int, Read] = {}
        self._fetches: dict[RequestId, FetchWait] = {}
        self._singles: dict[int, Read] = {}
        """Reads for which requests in steps and upkeep wait, by their ids."""
        self.is_stopped = False
        """Nothing is read any more."""

    def __len__(self) -> int:
        """How many fetches have reads."""
        return len(self._fetches)

    def park(self, wait: FetchWait, asked: Iterable[tuple[LogKey, int, int, int]]) -> None:
        """`asked`: log, offset, most bytes and end offset of each read that the fetch needs."""
        request_id = wait.context.request_id
        wait.reads = {}
        for log, offset, max_bytes, end_offset in asked:
            self._last_id += 1
            read = Read(ReadAsked(self._last_id, log, offset, max_bytes, end_offset), request_id)
            self._queue[self._last_id] = wait.reads[log] = read
        wait.reads_left = len(wait.reads)
        self._fetches[request_id] = wait

    def search(self, request_id: RequestId, log: LogKey, offset: int, by_time: ByTime) -> Generator[Read, None, Read]:
        """For a request in steps: yields a search once, and goes on when it is done."""
        read = self._single(request_id, log, offset, 0, NO_END, by_time)
        try:
            yield read
        finally:
            self.drop(read)
        return read

    def ask(self, log: LogKey, offset: int, max_bytes: int, end_offset: int) -> Read:
        """A read of the broker's own, for upkeep, which looks for its end in each turn."""
        return self._single(NOBODYS, log, offset, max_bytes, end_offset, None)

    def _single(
        self, request_id: RequestId, log: LogKey, offset: int, max_bytes: int, end: int, by_time: ByTime | None
    ) -> Read:
        self._last_id += 1
        read = Read(ReadAsked(self._last_id, log, offset, max_bytes, end, by_time), request_id)
        self._queue[self._last_id] = self._singles[self._last_id] = read
        return read

    def is_asked(self, request_id: RequestId) -> bool:
        """Whether this request in steps waits for a read."""
        return any(read.request_id == request_id for read in self._singles.values())

    def drop(self, read: Read) -> None:
        """Nobody wants its outcome any more."""
        self._queue.pop(read.asked.read_id, None)
        self._singles.pop(read.asked.read_id, None)

    def hand_out(self) -> tuple[ReadAsked, ...]:
        """What the turn asks for: as many reads as the limit allows, and one if none is under way. The reads of a fetch
        are handed out one after the other, so at most one fetch waits because of others."""
        handed_out = []
        while self._queue and len(self._handed_out) < AT_ONCE and not self.is_stopped:
            read = next(iter(self._queue.values()))
            if self._handed_out and self.size + read.size > self.most_bytes:
                break
            self._queue.popitem(last=False)
            self._handed_out[read.asked.read_id] = read
            self.size += read.size
            handed_out.append(read.asked)
        return tuple(handed_out)

    def done(self, done: ReadDone) -> FetchWait | RequestId | None:
        """Takes an outcome. Returns the fetch that has all of its reads now, or the request in steps that goes on. The
        fetch stays here until it is answered, or the answer is dropped (`remove`)."""
        read = self._handed_out.pop(done.read_id)
        self.size -= read.size
        if self._singles.pop(done.read_id, None) is not None:
            read.take(done)
            return None if read.request_id == NOBODYS else read.request_id
        wait = self._fetches.get(read.request_id)
        if wait is None or wait.reads.get(read.asked.log) is not read:
            return None  # its connection has gone
        read.take(done)
        if read.size > read.asked.max_bytes and any(other.found for other in wait.reads.values() if other is not read):
            read.cut()
        self.size += read.size
        wait.reads_left -= 1
        return None if wait.reads_left else wait

    def remove(self, request_id: RequestId) -> None:
        """The fetch is answered, or its client has gone."""
        wait = self._fetches.pop(request_id, None)
        if wait is None:
            return
        for read in wait.reads.values():
            if self._queue.pop(read.asked.read_id, None) is None and read.asked.read_id not in self._handed_out:
                self.size -= read.size
        wait.reads = {}

    def give(self, wait: FetchWait) -> int:
        """The answer takes more than this turn, and its memory is counted elsewhere. Returns the bytes."""
        size = 0
        for read in wait.reads.values():
            size += read.size
            read.size = 0
        self.size -= size
        return size

    def stop(self) -> list[FetchWait]:
        """No more reads. Returns the fetches that wait, without what was read for them."""
        self.is_stopped = True
        waits = list(self._fetches.values())
        for wait in waits:
            self.remove(wait.context.request_id)
        return waits

    def replaced(self, log: LogKey, first: int, last: int) -> None:
        """Compaction has replaced the batches of a log that begin between `first` and `last`."""
        for wait in self._fetches.values():
            read = wait.reads.get(log)
            if read is not None:
                read.replace(first, last)
