"""The operations of a commit as rows of the tables, and what they do to the index.

Operations are applied in order. Their rows are written deletions first: a batch that a turn appends and removes again
is not among the rows, and whatever else it appends does not lie in what it deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kohort.storage.postgres.batch_index import LogIndex, Row, row_of
from kohort.storage.protocol import (
    Append,
    CreateLog,
    DeleteLog,
    KeepProducers,
    LogKey,
    Operation,
    Replace,
    StoredBatch,
    Trim,
)

_COLUMN_ORDER = range(10)
"""The columns of `schema.BATCH_COLUMNS` between `log` and `data`, as a `Row` has them."""


class Changes:
    """What a commit writes."""

    def __init__(self) -> None:
        self.created: dict[int, LogIndex] = {}
        """By number."""
        self.changed: dict[int, LogIndex] = {}
        """Logs whose row changes."""
        self.gone: dict[int, LogIndex] = {}
        self.kept: dict[int, bytes] = {}
        self.deleted: list[tuple[int, int, int]] = []
        """Number of the log, first and last base offset."""
        self.batches: dict[tuple[int, int], StoredBatch] = {}
        """By number of the log and base offset."""
        self.taken: tuple[int, ...] = ()
        """Slots that this node serves from now on."""
        self.given: dict[int, int] = {}
        """Slots that go to other nodes."""

    @property
    def moves_slots(self) -> bool:
        return bool(self.taken or self.given)

    @property
    def only_appends(self) -> bool:
        return not (self.created or self.changed or self.gone or self.kept or self.deleted or self.moves_slots)

    def batch_columns(self) -> list[list[Any]]:
        """As `schema.BATCH_COLUMNS`."""
        rows: list[Row] = [row_of(batch) for batch in self.batches.values()]
        return [
            [no for no, _ in self.batches],
            *([row[n] for row in rows] for n in _COLUMN_ORDER),
            [batch.data for batch in self.batches.values()],
        ]

    def columns(self) -> list[list[Any]]:
        """The arguments of `kohort.commit_turn` behind the turn."""
        created = [(no, *log.key, *_numbers(log)) for no, log in self.created.items()]
        changed = [
            (no, *_numbers(log), no in self.gone)
            for no, log in {**self.changed, **self.gone}.items()
            if no not in self.created
        ]
        kept = [(no, data or None) for no, data in self.kept.items()]
        return [
            *_transposed(created, 7),
            *_transposed(changed, 6),
            *_transposed(kept, 2),
            *_transposed(self.deleted, 3),
            *self.batch_columns(),
        ]

    def slot_columns(self) -> list[list[int]]:
        """The arguments of `schema.SLOT_TURN` behind the others."""
        return [list(self.taken), list(self.given), list(self.given.values())]


def _numbers(log: LogIndex) -> tuple[int, int, int, int]:
    return log.start_offset, log.first_batch, log.end_offset, log.removed_opened


def _transposed(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def apply(operations: Sequence[Operation], logs: dict[LogKey, LogIndex], numbers: list[int]) -> Changes:
    """Apply valid operations to the logs (`check_operations`). `numbers` are those of the logs that are created, and
    are taken from the end. Returns what the commit writes."""
    changes = Changes()
    batches = changes.batches
    for operation in operations:
        key = operation.log
        if isinstance(operation, CreateLog):
            no, start = numbers.pop(), operation.start_offset
            logs[key] = changes.created[no] = LogIndex(no, key, start, start, operation.open_transactions)
            continue
        log = logs[key]
        match operation:
            case Append(batches=appended):
                for batch in appended:
                    log.append(batch)
                    batches[log.no, batch.base_offset] = batch
            case Trim(start_offset=start):
                log.trim(start)
                for place in [place for place in batches if place[0] == log.no and place[1] < log.first_batch]:
                    del batches[place]
                changes.changed[log.no] = log
            case Replace(first=first, last=last, batches=replaced):
                log.replace(first, last, replaced)
                for place in [place for place in batches if place[0] == log.no and first <= place[1] <= last]:
                    del batches[place]
                changes.deleted.append((log.no, first, last))
                batches.update({(log.no, batch.base_offset): batch for batch in replaced})
                changes.changed[log.no] = log
            case KeepProducers(data=data):
                log.kept_producers = data
                changes.kept[log.no] = data
            case DeleteLog():
                del logs[key]
                for place in [place for place in batches if place[0] == log.no]:
                    del batches[place]
                changes.changed.pop(log.no, None)
                if changes.created.pop(log.no, None) is None:
                    changes.gone[log.no] = log
                changes.kept[log.no] = b""
    return changes
