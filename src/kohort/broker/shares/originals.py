"""The records that dead letters copy: read from the log of a share-partition, batch by batch and in bounded steps.

One batch at a time is decompressed, so its memory has the limit of one batch (message.max.uncompressed.bytes). Of its
records few others than the wanted ones are decoded; the rest is walked over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Sequence
from contextlib import suppress

from kohort.broker.logs.partition import Partition
from kohort.broker.logs.preparation import AT_ONCE, GROWS
from kohort.broker.logs.time_search import MAX_STORED_BYTES
from kohort.broker.waits.reads import Read, Reads
from kohort.storage.protocol import DamagedBatch
from kohort.wire.batches import HEADER_SIZE, BatchHeader, Record, read_header
from kohort.wire.compression import decompress, decompress_in_steps
from kohort.wire.errors import ProtocolError
from kohort.wire.records import read_decompressed, read_varint

READ_BYTES = 131_072
"""Bytes of batches that one read asks for; it finds one batch at least."""
DECODED = 50
"""Records that are decoded together, if one of them is wanted."""
WALKED = 5_000
"""Records of one step: some two milliseconds if they are walked over."""

Ranges = Sequence[tuple[int, int]]


class Originals:
    def __init__(self, log: Partition, reads: Reads) -> None:
        self._log = log
        self._reads = reads
        self._read: Read | None = None

    @property
    def waits(self) -> bool:
        """A read is not done: a step would change nothing."""
        return self._read is not None and self._read.done is None

    def of(self, wanted: Ranges) -> Generator[Record | None, None, None]:
        """The records at these offsets, which are in order; None at the end of a step. Records that are deleted or
        damaged, or cannot be read now, are left out."""
        at = max(wanted[0][0], self._log.start_offset)
        while at <= wanted[-1][1]:
            batches = yield from self._batches(at)
            if not batches:
                return
            before = at
            for data in batches:
                header = read_header(data)
                if header.last_offset >= at and _meets(wanted, max(header.base_offset, at), header.last_offset):
                    with suppress(ProtocolError, IndexError):  # it is damaged; whoever fetches it is told so
                        yield from _picked(header, data, wanted)
                at = max(at, header.last_offset + 1)
            if at == before:
                return
            at = _next(wanted, at)

    def _batches(self, offset: int) -> Generator[None, None, Sequence[bytes]]:
        try:
            found = self._log.read(offset, READ_BYTES)
        except DamagedBatch:
            return ()
        if found is not None:
            return found
        read = self._read = self._reads.ask(self._log.log, offset, READ_BYTES, self._log.high_watermark)
        try:
            while read.done is None:
                yield None
        finally:
            self._reads.drop(read)
            self._read = None
        return [batch.data for batch in read.found or ()]


def _meets(wanted: Ranges, first: int, last: int) -> bool:
    at = bisect_right(wanted, first, key=lambda one: one[0]) - 1
    if at >= 0 and wanted[at][1] >= first:
        return True
    return at + 1 < len(wanted) and wanted[at + 1][0] <= last


def _next(wanted: Ranges, offset: int) -> int:
    """The first wanted offset that is not below `offset`; behind the last one if there is none."""
    at = bisect_right(wanted, offset, key=lambda one: one[0]) - 1
    if at >= 0 and wanted[at][1] >= offset:
        return offset
    return wanted[at + 1][0] if at + 1 < len(wanted) else wanted[-1][1] + 1


def _picked(header: BatchHeader, data: bytes, wanted: Ranges) -> Generator[Record | None, None, None]:
    if header.is_control:
        return
    records = yield from _expanded(header, data[HEADER_SIZE : header.size])
    end = walked = 0
    while walked < header.record_count:
        count = min(DECODED, header.record_count - walked)
        start, first, begin = end, -1, 0
        for _ in range(count):
            length, begin = read_varint(records, end)
            first = begin if first < 0 else first
            end = begin + max(length, 0)
        low, high = header.base_offset + _delta(records, first), header.base_offset + _delta(records, begin)
        if _meets(wanted, low, high):
            columns = read_decompressed(header._replace(record_count=count), records[start:end])
            for at, offset in enumerate(columns.offsets):
                if _next(wanted, offset) == offset:
                    headers = columns.headers[at] if columns.headers is not None else ()
                    yield Record(offset, columns.timestamps[at], columns.keys[at], columns.values[at], headers)
        if high > wanted[-1][1]:
            return
        walked += count
        if walked % WALKED == 0:
            yield None


def _delta(records: bytes, begin: int) -> int:
    """What the record whose fields begin here has as its offset, above that of its batch."""
    _, place = read_varint(records, begin + 1)
    return read_varint(records, place)[0]


def _expanded(header: BatchHeader, body: bytes) -> Generator[None, None, bytes]:
    codec = header.compression
    if not codec or len(body) * GROWS[codec] <= AT_ONCE:
        return decompress(codec, body, MAX_STORED_BYTES)
    steps = decompress_in_steps(codec, body, MAX_STORED_BYTES)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            expanded: bytes = done.value
            return expanded
        yield None
