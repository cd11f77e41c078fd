"""Checks the operations of a commit, for all engines.

Operations are checked in order, each against the logs as the operations before it leave them, before an engine changes
anything. A refused operation is a bug of the broker: nothing of the commit is done, and the process stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kohort.storage.protocol import (
    Append,
    CreateLog,
    DeleteLog,
    LogKey,
    Operation,
    Replace,
    StorageError,
    StoredBatch,
    Trim,
)


@dataclass(slots=True)
class Extent:
    """The offsets of a log, as far as a check needs them."""

    start_offset: int
    end_offset: int


def check_operations(operations: Sequence[Operation], extent_of: Callable[[LogKey], Extent | None]) -> None:
    """Raises StorageError at the first operation that makes no sense. `extent_of` gives None for an unknown log."""
    pending: dict[LogKey, Extent | None] = {}
    for operation in operations:
        key = operation.log
        if key not in pending:
            known = extent_of(key)
            pending[key] = None if known is None else Extent(known.start_offset, known.end_offset)
        pending[key] = _after(operation, pending[key])


def _after(operation: Operation, extent: Extent | None) -> Extent | None:
    if isinstance(operation, CreateLog):
        if extent is not None:
            raise _refused(operation, "it exists already")
        return Extent(operation.start_offset, operation.start_offset)
    if extent is None:
        raise _refused(operation, "there is no such log")
    match operation:
        case DeleteLog():
            return None
        case Append(batches=batches):
            extent.end_offset = _check_order(operation, batches, extent.end_offset)
        case Trim(start_offset=start_offset):
            if start_offset > extent.end_offset:
                raise _refused(operation, f"its end offset is {extent.end_offset}, below {start_offset}")
            extent.start_offset = max(extent.start_offset, start_offset)
        case Replace(first=first, last=last, batches=batches):
            _check_order(operation, batches, first)
            if last >= extent.end_offset or last < first:
                raise _refused(operation, f"{first} to {last} is not within it (end offset {extent.end_offset})")
    return extent


def _check_order(operation: Operation, batches: Iterable[StoredBatch], least: int) -> int:
    """Batches must ascend without overlap from `least` on. Returns the offset after them."""
    for batch in batches:
        if batch.base_offset < least or batch.last_offset < batch.base_offset:
            raise _refused(operation, f"the batch {batch.base_offset} to {batch.last_offset} begins before {least}")
        least = batch.last_offset + 1
    return least


def _refused(operation: Operation, why: str) -> StorageError:
    name = type(operation).__name__
    return StorageError(f"{name} of log {operation.log.topic_id.hex()}-{operation.log.partition}: {why}")
