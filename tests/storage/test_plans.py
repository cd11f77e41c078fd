"""How much of the database a look for one producer reads: little, however large the log is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from storage_batches import LOG, commit, make_batch

from kohort.storage.protocol import ABORT_MARKER, TRANSACTIONAL, Append, CreateLog, StoredBatch
from kohort.storage.sqlite import SqliteStorage

STEPS = 100
"""Instructions of SQLite's machine between two counts."""
BATCHES = 3_000


def some(offset: int) -> StoredBatch:
    """Of fifty producers; number 7 has an open transaction, and number 8 has aborted one."""
    producer_id = offset % 50
    if producer_id == 7:
        return make_batch(offset, producer_id=7, kind=TRANSACTIONAL, transaction_start=7)
    if producer_id == 8:
        first = offset == 8
        kind, start = (TRANSACTIONAL, 8) if first else (ABORT_MARKER, 8 if offset == 58 else -1)
        return make_batch(offset, producer_id=8, kind=kind, transaction_start=start)
    return make_batch(offset, producer_id=producer_id)


@pytest.mark.parametrize(
    "look",
    [
        lambda storage: storage.last_of_producer(LOG, 3),
        lambda storage: storage.last_of_producer(LOG, 999),
        lambda storage: storage.producer_batches(LOG, 3, 5),
        lambda storage: storage.producer_batches(LOG, 999, 5),
        lambda storage: storage.producers(LOG, 3, 2),
        lambda storage: storage.producers_ending_before(LOG, 20),
        lambda storage: storage.open_transactions(LOG),
        lambda storage: storage.aborted_transactions(LOG),
        lambda storage: storage.kept_producers(LOG),
    ],
)
def test_a_look_by_producer_does_not_read_the_log(tmp_path: Path, look: Callable[[SqliteStorage], object]) -> None:
    with closing(SqliteStorage(tmp_path)) as storage:
        commit(storage, [CreateLog(LOG), Append(LOG, tuple(map(some, range(BATCHES))))])
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += STEPS

        storage._db.set_progress_handler(count, STEPS)
        look(storage)
        storage._db.set_progress_handler(None, STEPS)
        assert counted < BATCHES
