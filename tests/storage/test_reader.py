"""Readers beside a running engine: what `Storage.read` finds, in another thread, during commits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from storage_batches import LOG, OTHER, OWN, commit, make_batch, opened_postgres, own_append

from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import (
    Append,
    CreateLog,
    DamagedBatch,
    DeleteLog,
    LogReader,
    Operation,
    Storage,
    StorageError,
    Trim,
)
from kohort.storage.sqlite import SqliteStorage

END = 1 << 40


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "postgres":
        opened: Storage = opened_postgres(request.getfixturevalue("postgres_url"))
    else:
        opened = MemoryStorage() if request.param == "memory" else SqliteStorage(tmp_path)
    with closing(opened) as storage:
        yield storage


@pytest.fixture
def reader(storage: Storage) -> Iterator[LogReader]:
    with closing(storage.reader()) as reader:
        yield reader


def test_a_reader_finds_what_the_engine_reads(storage: Storage, reader: LogReader) -> None:
    assert reader.read(LOG, 0, 100, END) == []
    batches = [make_batch(n * 2, 2, size=100 + 20_000 * (n == 3), producer_id=n) for n in range(6)]
    commit(storage, [CreateLog(LOG), CreateLog(OTHER), Append(LOG, tuple(batches[:4]))])
    commit(storage, [Append(LOG, tuple(batches[4:])), Append(OTHER, (make_batch(0),))])
    for offset in range(13):
        for most in (0, 1, 100, 250, 30_000):
            found = storage.read(LOG, offset, most)
            assert reader.read(LOG, offset, most, END) == found
            assert reader.read(LOG, offset, most, 8) == [batch for batch in found if batch.base_offset < 8]
    for at in (0, 1_000, 1_001):
        assert reader.first_at_or_after(LOG, at) == storage.first_at_or_after(LOG, at)
    assert reader.max_timestamp(LOG) == storage.max_timestamp(LOG)
    assert [*reader.batches(LOG, 3)] == [*storage.batches(LOG, 3)]
    assert next(reader.batches(LOG, 3)) == next(storage.batches(LOG, 3)), "it need not be consumed"
    commit(storage, [Trim(LOG, 5)])
    assert reader.read(LOG, 0, 1 << 20, END) == storage.read(LOG, 0, 1 << 20) == batches[2:]
    commit(storage, [DeleteLog(LOG)])
    assert reader.read(LOG, 6, 1 << 20, END) == []
    assert len(reader.read(OTHER, 0, 1 << 20, END)) == 1


def test_a_reader_finds_appends_that_are_not_in_their_logs_yet(storage: Storage, reader: LogReader) -> None:
    """SQLite gathers small appends of the broker's own records."""
    commit(storage, [CreateLog(OWN), CreateLog(LOG), own_append(0, size=5_000)])
    for base in range(1, 20):
        operations: list[Operation] = [own_append(base)]
        commit(storage, operations if base % 5 else [*operations, Append(LOG, (make_batch(base),))])
    for offset in range(21):
        for most in (0, 300, 1 << 20):
            assert reader.read(OWN, offset, most, END) == storage.read(OWN, offset, most)
    assert reader.read(OWN, 15, 1 << 20, 18) == storage.read(OWN, 15, 1 << 20)[:3]
    for at in (0, 1_000, 1_001):
        assert reader.first_at_or_after(OWN, at) == storage.first_at_or_after(OWN, at)
    assert reader.max_timestamp(OWN) == storage.max_timestamp(OWN)
    assert [*reader.batches(OWN, 4)] == [*storage.batches(OWN, 4)]


def test_a_reader_sees_commits_as_a_whole_while_they_go_on(tmp_path: Path) -> None:
    """Each commit appends to two logs and trims both; SQLite purges what was trimmed."""
    with closing(SqliteStorage(tmp_path)) as storage:
        commit(storage, [CreateLog(LOG), CreateLog(OTHER), CreateLog(OWN)])
        problems: list[object] = []
        reads = 0
        over = threading.Event()

        def read() -> None:
            nonlocal reads
            try:
                with closing(storage.reader()) as reader:
                    while not over.is_set() or not reads:
                        for log in (LOG, OTHER, OWN):
                            found = reader.read(log, 0, 1 << 20, END)
                            ends = [batch.last_offset + 1 for batch in found]
                            if [batch.base_offset for batch in found[1:]] != ends[:-1]:
                                problems.append(found)
                        reads += 1
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for n in range(150):
                operations: list[Operation] = [
                    Append(LOG, (make_batch(2 * n), make_batch(2 * n + 1, size=9_000))),
                    Append(OTHER, (make_batch(n, size=30_000),)),
                    own_append(n, size=4_000),
                ]
                if n % 10 == 9:
                    operations += [Trim(LOG, 2 * n - 20), Trim(OTHER, n - 5)]
                commit(storage, operations)
        finally:
            over.set()
            thread.join()
        assert problems == []
        assert reads > 0


def test_a_damaged_batch_is_never_handed_out_and_others_are_read(tmp_path: Path) -> None:
    with closing(SqliteStorage(tmp_path)) as storage:
        commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(0), make_batch(1), make_batch(2)))])
        storage._db.execute("UPDATE batch_data SET data = zeroblob(length(data)) WHERE id = 2")
        with closing(storage.reader()) as reader:
            with pytest.raises(DamagedBatch):
                reader.read(LOG, 1, 1, END)
            assert [batch.base_offset for batch in reader.read(LOG, 0, 1, END)] == [0]
            assert [batch.base_offset for batch in reader.read(LOG, 2, 1, END)] == [2]


def test_a_reader_writes_nothing_and_ends_with_the_engine(tmp_path: Path) -> None:
    with closing(SqliteStorage(tmp_path)) as storage:
        commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(0),))])
        reader = storage.reader()
        assert len(reader.read(LOG, 0, 1, END)) == 1
        with pytest.raises(Exception, match="readonly"):
            reader._own.db.execute("DELETE FROM logs")  # type: ignore[union-attr]
        reader.close()
        reader.close()
        assert len(reader.read(LOG, 0, 1, END)) == 1, "it connects again"
        reader.close()
    with pytest.raises(StorageError, match="closed"):
        reader.read(LOG, 0, 1, END)
