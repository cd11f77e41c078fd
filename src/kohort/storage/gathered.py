"""Gathered appends: a commit writes its small appends as one row, and those of many commits move into their logs later.

A turn with commits of many groups appends a batch of two hundred bytes to each of dozens of logs. Written to the logs,
each batch changes pages of its own, a third of a megabyte of WAL in all; as one row of the table `gathered` they are a
page. Gathered batches stay in memory too. When there are many, those of each log are joined into one batch, written as
any other, and the rows are deleted. Only the broker's own records are gathered (`Append.joinable`): no client has seen
how their batches are cut.

Row 0 says which rows there are, so that a vanished one is noticed. The layout is in sqlite_format.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import error

from kohort.storage.protocol import Append, LogKey, Operation, StoredBatch
from kohort.storage.sqlite_format import (
    GATHERED_CRC,
    GATHERED_LOG,
    GATHERED_RANGE,
    LogRow,
    gathered_checksum,
    range_row,
)
from kohort.wire.batches import join_batches, read_header
from kohort.wire.errors import ProtocolError

SMALL = 4096
"""The largest batch that is gathered, in bytes. A larger batch would cost too much, because it is written twice."""
JOINABLE = 1_024
"""The largest batch that is joined with others, in bytes: joining saves a row a batch, and costs by the record.
Compiled, a commit of ten partitions costs 4 µs less with it, one of forty would cost 2 µs more."""
JOINED = 65_536
"""About the size of a joined batch, in bytes."""


class GatheredLog:
    """The gathered batches of one log."""

    __slots__ = ("batches", "size")

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        """In order, without a gap between them."""
        self.size = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1

    def since(self, offset: int) -> list[StoredBatch]:
        """The batches from the batch with `offset` (or the next one after it) on."""
        return self.batches[bisect_left(self.batches, offset, key=lambda batch: batch.last_offset) :]


class Gathered:
    def __init__(self, first: int = 1, last: int = 0) -> None:
        self.logs: dict[LogKey, GatheredLog] = {}
        self.size = 0
        """Bytes of all batches."""
        self._first = first
        self._last = last
        self._new: list[bytes] = []
        """Parts of the row that the commit under way writes."""

    def add(self, operations: Sequence[Operation], logs: Mapping[LogKey, LogRow]) -> int:
        """Gather the small appends that `operations` begin with. Returns how many these are."""
        new = self._new
        for count, operation in enumerate(operations):
            if not isinstance(operation, Append) or not operation.joinable or len(operation.batches) != 1:
                return count
            batch = operation.batches[0]
            key = operation.log
            log = logs[key]
            gathered = self.logs.get(key)
            end_offset = log.end_offset if gathered is None else gathered.end_offset
            if len(batch.data) > SMALL or batch.base_offset != end_offset:
                return count
            self._keep(key, batch)
            new.append(GATHERED_LOG.pack(log.id))
            new.append(batch.data)
        return len(operations)

    def _keep(self, key: LogKey, batch: StoredBatch) -> None:
        log = self.logs.get(key)
        if log is None:
            log = self.logs[key] = GatheredLog()
        log.batches.append(batch)
        log.size += len(batch.data)
        self.size += len(batch.data)

    def rows(self) -> list[tuple[int, bytes]]:
        """The rows of the table that the present commit must write, by id."""
        if not self._new:
            return []
        self._last += 1
        content = b"".join(self._new)
        self._new.clear()
        return [(0, range_row(self._first, self._last)), (self._last, gathered_checksum(self._last, content) + content)]

    def take(self, *, join: bool) -> tuple[dict[LogKey, list[StoredBatch]], list[tuple[int, bytes]]]:
        """Empties itself. Returns the batches, joined or as they came, and the new row 0; delete all other rows."""
        logs = {key: joined(log.batches) if join else log.batches for key, log in self.logs.items()}
        self.logs = {}
        self.size = 0
        self._new.clear()
        self._first = self._last + 1
        return logs, [(0, range_row(self._first, self._last))]

    def load(self, row_id: int, data: bytes, keys: dict[int, LogKey], ends: dict[LogKey, int]) -> None:
        """Take a stored row; ValueError if it is damaged. `keys` are the logs by their numbers, `ends` their end
        offsets, which are updated."""
        content = data[GATHERED_CRC.size :]
        if data[: GATHERED_CRC.size] != gathered_checksum(row_id, content):
            raise ValueError("a row of gathered batches does not match its checksum")
        for log_id, batch in _batches_in(content):
            key = keys.get(log_id)
            if key is None or ends[key] != batch.base_offset:
                raise ValueError(f"a gathered batch at offset {batch.base_offset} does not follow its log")
            ends[key] = batch.last_offset + 1
            self._keep(key, batch)


def loaded(rows: Sequence[tuple[int, bytes]], keys: dict[int, LogKey], ends: dict[LogKey, int]) -> Gathered:
    """The gathered batches of a table's rows, ordered by id. Raises ValueError for damaged rows."""
    try:
        (zero, range_data), *others = rows
        first, last = GATHERED_RANGE.unpack_from(range_data)
        if (
            zero != 0
            or range_data != range_row(first, last)
            or [row_id for row_id, _ in others] != [*range(first, last + 1)]
        ):
            raise ValueError("a row of gathered batches is missing")
        gathered = Gathered(first, last)
        for row_id, data in others:
            gathered.load(row_id, data, keys, ends)
    except (TypeError, error, ProtocolError) as problem:
        raise ValueError(f"the table of gathered batches: {problem}") from None
    return gathered


def batches_of(log_id: int, rows: Iterable[tuple[int, bytes]]) -> list[StoredBatch]:
    """The batches of one log in these rows of the table, row 0 left out. Raises ValueError for damaged rows."""
    found: list[StoredBatch] = []
    number = GATHERED_LOG.pack(log_id)
    try:
        for row_id, data in rows:
            content = data[GATHERED_CRC.size :]
            if data[: GATHERED_CRC.size] != gathered_checksum(row_id, content):
                raise ValueError("a row of gathered batches does not match its checksum")
            if number in content:  # most rows have no batch of the log, and to take one apart costs more
                found += [batch for of_log, batch in _batches_in(content) if of_log == log_id]
    except (TypeError, error, ProtocolError) as problem:
        raise ValueError(f"the table of gathered batches: {problem}") from None
    return found


def _batches_in(content: bytes) -> Iterator[tuple[int, StoredBatch]]:
    position = 0
    while position < len(content):
        (log_id,) = GATHERED_LOG.unpack_from(content, position)
        position += GATHERED_LOG.size
        header = read_header(content, position)
        data = content[position : position + header.size]
        position += header.size
        yield log_id, stored(data)


def joined(batches: Sequence[StoredBatch]) -> list[StoredBatch]:
    """The same records in fewer batches. Batches are joined only if one header can describe them all."""
    made: list[StoredBatch] = []
    run: list[StoredBatch] = []
    size = 0
    for batch in batches:
        more = size + len(batch.data)
        if run and (len(batch.data) > JOINABLE or more > JOINED or batch.leader_epoch != run[0].leader_epoch):
            made.append(_join(run))
            run, more = [], len(batch.data)
        run.append(batch)
        size = more
    made.append(_join(run))
    return made


def _join(run: Sequence[StoredBatch]) -> StoredBatch:
    return run[0] if len(run) == 1 else stored(join_batches([batch.data for batch in run]))


def stored(data: bytes) -> StoredBatch:
    header = read_header(data)
    return StoredBatch(
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        data,
        header.producer_id,
        header.partition_leader_epoch,
    )
