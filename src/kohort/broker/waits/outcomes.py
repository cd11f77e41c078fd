"""What an edge does for a read: with a reader of the storage, beside the steps."""

from __future__ import annotations

from kohort.broker.logs.time_search import Search, SearchedEnough, first_record
from kohort.broker.turn import ByTime, ReadAsked, ReadDone
from kohort.storage.protocol import DamagedBatch, DamagedFile, LogReader, StorageError


def outcome(reader: LogReader, asked: ReadAsked) -> ReadDone:
    """Raises DamagedFile, which ends the use of the storage."""
    try:
        if asked.by_time is not None:
            return _searched(reader, asked, asked.by_time)
        batches = reader.read(asked.log, asked.offset, asked.max_bytes, asked.end_offset)
        return ReadDone(asked.read_id, tuple(batches))
    except DamagedFile:
        raise
    except DamagedBatch as error:
        return ReadDone(asked.read_id, damage=str(error))
    except (StorageError, MemoryError) as error:
        return ReadDone(asked.read_id, failure=str(error) or "out of memory")


def _searched(reader: LogReader, asked: ReadAsked, by_time: ByTime) -> ReadDone:
    search = Search(by_time.left)
    try:
        located = first_record(reader, asked.log, by_time.timestamp, asked.offset, search)
    except SearchedEnough:
        return ReadDone(asked.read_id, searched_enough=True)
    return ReadDone(asked.read_id, located=located, left=search.left)
