"""A data directory that is locked, damaged, foreign or of a newer format; a disk that is full.

Damage is either noticed or does no harm: nothing wrong is ever read.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crashed_directory import crashed
from storage_batches import LOG, OTHER, OWN, commit, make_batch, own_append, own_records

from kohort.broker.logs.partition import Partition
from kohort.broker.topics.topic_configs import resolve
from kohort.config import Config
from kohort.storage import checkpoint
from kohort.storage.protocol import (
    ABORT_MARKER,
    TRANSACTIONAL,
    Append,
    BatchInfo,
    CreateLog,
    KeepProducers,
    LogInfo,
    LogKey,
    Replace,
    StorageError,
    StoredBatch,
    Trim,
    WrongDirectory,
)
from kohort.storage.sqlite import SqliteStorage
from kohort.storage.sqlite_file import FILE_NAME
from kohort.storage.sqlite_format import PAGE_SIZE

WITHOUT_TRANSACTIONS = """
DROP INDEX aborts;
DROP TABLE kept_producers;
DROP VIEW log_batches;
ALTER TABLE logs DROP COLUMN open_transactions;
ALTER TABLE logs DROP COLUMN aborts;
ALTER TABLE batches DROP COLUMN kind;
ALTER TABLE batches DROP COLUMN transaction_start;
ALTER TABLE batches DROP COLUMN coordinator_epoch;
"""
"""Makes a file of format 2."""

NOBODY = b"\x90"
"""What the broker keeps of no producers."""

Content = tuple[list[LogInfo], list[list[StoredBatch]], list[list[BatchInfo]]]


def filled(directory: Path) -> Content:
    chance = random.Random(3)
    with closing(SqliteStorage(directory)) as storage:
        commit(storage, [CreateLog(LOG), CreateLog(OTHER), CreateLog(OWN)])
        for n in range(60):
            made = tuple(
                make_batch(end, 2, timestamp=n, size=chance.choice([80, 300, 20_000]), producer_id=n % 4)
                for end in (6 * n, 6 * n + 2, 6 * n + 4)
            )
            commit(storage, [Append(LOG, made), Append(OTHER, (make_batch(n),)), own_append(n, size=250)])
            if n == 30:
                commit(storage, [Trim(OWN, 3)])  # which moves what is gathered into its log
        commit(storage, [Replace(LOG, 0, 10, (make_batch(4, 2, timestamp=0),))])
        return everything(storage)


def everything(storage: SqliteStorage) -> Content:
    keys = (LOG, OTHER, OWN)
    return (
        storage.logs(),
        [storage.read(key, 0, 1 << 30) for key in keys],
        [list(storage.batches(key)) for key in keys],
    )


def read_all(directory: Path) -> Content:
    with closing(SqliteStorage(directory)) as storage:
        return everything(storage)


def log_bases(directory: Path) -> list[int]:
    return [batch.base_offset for batch in read_all(directory)[1][0]]


def alter(directory: Path, *scripts: str) -> None:
    """Change the database as another program would."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        for script in scripts:
            db.executescript(script)


def assert_right_or_noticed(read: Callable[[], Any], right: Any, how: str) -> None:
    try:
        found = read()
    except StorageError as error:
        found = right if FILE_NAME in str(error) else f"an error that does not name the file: {error}"
    assert found == right, how


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    directory = tmp_path_factory.mktemp("original")
    return directory, filled(directory)


def spoiled(original: Path, directory: Path, data: bytes) -> Path:
    shutil.copytree(original, directory, dirs_exist_ok=True)
    (directory / FILE_NAME).write_bytes(data)
    return directory


@pytest.mark.parametrize("seed", range(150))
def test_a_flipped_bit_is_noticed_or_harmless(original: tuple[Path, Content], tmp_path: Path, seed: int) -> None:
    directory, content = original
    data = bytearray((directory / FILE_NAME).read_bytes())
    chance = random.Random(seed)
    # Half of the flips hit what structures the file: the first bytes of a page.
    position = chance.randrange(len(data))
    if seed % 2:
        position = position // 8192 * 8192 + chance.randrange(64)
    data[position] ^= 1 << chance.randrange(8)
    spoiled(directory, tmp_path, bytes(data))
    assert_right_or_noticed(lambda: read_all(tmp_path), content, f"seed {seed}, byte {position}")


@pytest.mark.parametrize("seed", range(25))
def test_a_truncated_file_is_noticed(original: tuple[Path, Content], tmp_path: Path, seed: int) -> None:
    directory, _ = original
    data = (directory / FILE_NAME).read_bytes()
    keep = random.Random(seed).randrange(1, len(data) - 1)
    with pytest.raises(StorageError, match=FILE_NAME):
        read_all(spoiled(directory, tmp_path, data[:keep]))


def test_a_zeroed_page_is_noticed(original: tuple[Path, Content], tmp_path: Path) -> None:
    directory, content = original
    data = (directory / FILE_NAME).read_bytes()
    for page in range(1, len(data) // 8192, 7):
        zeroed = data[: page * 8192] + bytes(8192) + data[page * 8192 + 8192 :]
        spoiled(directory, tmp_path, zeroed)
        assert_right_or_noticed(lambda: read_all(tmp_path), content, f"page {page}")


def test_not_a_database(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"hello " * 1000)
    with pytest.raises(StorageError, match=r"kohort\.db is damaged.*Restore"):
        SqliteStorage(tmp_path)


def test_a_database_of_another_program(tmp_path: Path) -> None:
    alter(tmp_path, "CREATE TABLE t (x)")
    with pytest.raises(StorageError, match="another program"):
        SqliteStorage(tmp_path)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a.txt"], r"files that are not kohort's \(a\.txt\); choose an empty or a new one"),
        (["e", "d", "c", "b", "a"], r"\(a, b, c and 2 more\)"),
        (["meta.properties", "orders-0"], "Apache Kafka's data"),
    ],
)
def test_a_directory_of_something_else(tmp_path: Path, names: list[str], told: str) -> None:
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(WrongDirectory, match=told):
        SqliteStorage(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_files_beside_the_data_and_of_an_empty_file_system(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".keep").write_text("")
    SqliteStorage(tmp_path).close()
    (tmp_path / "notes.txt").write_text("")
    SqliteStorage(tmp_path).close()


def test_a_newer_format(tmp_path: Path) -> None:
    SqliteStorage(tmp_path).close()
    alter(tmp_path, "PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="newer kohort"):
        SqliteStorage(tmp_path)


def test_a_database_of_the_former_format_is_opened(tmp_path: Path) -> None:
    """Format 1 has no gathered batches."""
    with closing(SqliteStorage(tmp_path)) as storage:
        commit(storage, [CreateLog(LOG), CreateLog(OWN), Append(LOG, (make_batch(0),))])
    alter(tmp_path, f"{WITHOUT_TRANSACTIONS} DROP TABLE gathered; PRAGMA user_version = 1;")
    for n in range(3):
        assert log_bases(tmp_path) == [0]
        with closing(SqliteStorage(tmp_path)) as storage:
            commit(storage, [own_append(n)])
            assert [record.offset for record in own_records(storage)] == list(range(n + 1))


def test_a_database_without_transactions_gets_them(tmp_path: Path) -> None:
    """Format 2: the rows stay as they are."""
    before = filled(tmp_path)
    alter(tmp_path, f"{WITHOUT_TRANSACTIONS} PRAGMA user_version = 2;")
    with closing(SqliteStorage(tmp_path)) as storage:
        assert everything(storage) == before
        assert storage.open_transactions(OTHER) == []
        end = storage.logs()[1].end_offset
        data = make_batch(end, producer_id=7, kind=TRANSACTIONAL, transaction_start=end)
        commit(storage, [Append(OTHER, (data,)), KeepProducers(OTHER, b"kept")])
    with closing(SqliteStorage(tmp_path)) as storage:
        assert [batch.base_offset for batch in storage.open_transactions(OTHER)] == [end]
        assert storage.kept_producers(OTHER) == b"kept"
        assert storage.open_transactions(LOG) == []


def with_transactions(directory: Path) -> None:
    """A log with an open transaction, one that was aborted, and a kept producer."""
    made = (
        make_batch(0, producer_id=7, kind=TRANSACTIONAL, transaction_start=0),
        make_batch(1, producer_id=8, kind=TRANSACTIONAL, transaction_start=1),
        make_batch(2, producer_id=8, kind=ABORT_MARKER, transaction_start=1, coordinator_epoch=3),
    )
    with closing(SqliteStorage(directory)) as storage:
        commit(storage, [CreateLog(LOG), Append(LOG, made), KeepProducers(LOG, NOBODY)])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE batches SET kind = 0 WHERE base_offset = 0",
        "UPDATE batches SET kind = 2 WHERE base_offset = 2",
        "UPDATE batches SET transaction_start = 0 WHERE base_offset = 2",
        "UPDATE batches SET coordinator_epoch = 4 WHERE base_offset = 2",
        "UPDATE logs SET open_transactions = 0",
        "UPDATE logs SET aborts = 2",
        "UPDATE kept_producers SET data = 7",
        "UPDATE kept_producers SET data = substr(data, 1, 4)",
        "UPDATE kept_producers SET data = X'00' || substr(data, 2)",
    ],
)
def test_damaged_rows_of_transactions(tmp_path: Path, statement: str) -> None:
    with_transactions(tmp_path)
    alter(tmp_path, statement)
    with pytest.raises(StorageError, match="damaged"):
        read_whole(tmp_path)


def read_whole(directory: Path) -> None:
    with closing(SqliteStorage(directory)) as storage:
        list(storage.batches(LOG))
        storage.kept_producers(LOG)


@pytest.mark.parametrize("name", ["aborts", "batches_by_producer"])
def test_a_lost_entry_of_an_index_hides_no_transaction(tmp_path: Path, name: str) -> None:
    """The index is emptied behind SQLite's back: its root page becomes an empty leaf."""
    with_transactions(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [page] = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    for suffix in ("-wal", "-shm"):
        (tmp_path / (FILE_NAME + suffix)).unlink(missing_ok=True)
    empty = b"\x0a" + bytes(4) + (PAGE_SIZE).to_bytes(2, "big") + bytes(1)
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek((page - 1) * PAGE_SIZE)
        file.write(empty + bytes(PAGE_SIZE - len(empty)))
    with closing(SqliteStorage(tmp_path)) as storage:
        info = storage.log_info(LOG)
        if name == "aborts":
            with pytest.raises(StorageError, match="damaged"):
                storage.aborted_transactions(LOG)
        else:
            assert len(storage.open_transactions(LOG)) < info.open_transactions
            settings = resolve({}, Config())
            with pytest.raises(StorageError, match="damaged"):
                _ = Partition(LOG, settings, 0, storage, info).last_stable_offset


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM gathered WHERE id = 0",
        "DELETE FROM gathered WHERE id = 1",
        "DELETE FROM gathered WHERE id = 2",
        "DELETE FROM gathered",
        "UPDATE gathered SET id = 9 WHERE id = 2",
        "UPDATE gathered SET data = substr(data, 1, 30) WHERE id = 2",
        "UPDATE gathered SET data = NULL WHERE id = 2",
        "UPDATE gathered SET data = (SELECT data FROM gathered WHERE id = 1) WHERE id = 2",
        "UPDATE logs SET end_offset = 1",
    ],
)
def test_gathered_batches_do_not_vanish_silently(tmp_path: Path, statement: str) -> None:
    with closing(SqliteStorage(tmp_path)) as storage:
        commit(storage, [CreateLog(OWN)])
        for n in range(3):
            commit(storage, [own_append(n)])
    if "NULL" in statement:
        alter(
            tmp_path,
            "CREATE TABLE g (id INTEGER PRIMARY KEY, data BLOB); INSERT INTO g SELECT * FROM gathered;",
            "DROP TABLE gathered; ALTER TABLE g RENAME TO gathered;",
        )
    alter(tmp_path, statement)
    with pytest.raises(StorageError, match="is damaged"):
        SqliteStorage(tmp_path)


def test_a_directory_serves_one_process(tmp_path: Path) -> None:
    holder = SqliteStorage(tmp_path)
    with pytest.raises(StorageError, match=rf"{tmp_path} is in use by another kohort \(process {os.getpid()}\)"):
        SqliteStorage(tmp_path)
    code = "import sys, pathlib, kohort.storage.sqlite as s; s.SqliteStorage(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    other = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert "is in use by another kohort" in other.stderr
    holder.close()
    SqliteStorage(tmp_path).close()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for directory in (file, file / "data"):
        with pytest.raises(WrongDirectory, match=f"cannot use the data directory {directory}: {file} is a file"):
            SqliteStorage(directory)


def test_a_full_disk_stops_writes_and_loses_nothing(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path)
    commit(storage, [CreateLog(LOG)])
    pages = storage._db.execute("PRAGMA page_count").fetchone()[0]
    storage._db.execute(f"PRAGMA max_page_count = {pages + 30}")
    acknowledged = 0
    with pytest.raises(StorageError, match="is full; free some space"):  # noqa: PT012
        while acknowledged < 1000:
            commit(storage, [Append(LOG, (make_batch(acknowledged, size=10_000),))])
            acknowledged += 1
    with pytest.raises(StorageError, match="an earlier write"):
        commit(storage, [Append(LOG, (make_batch(acknowledged),))])
    storage.close()
    assert log_bases(tmp_path) == list(range(acknowledged))


def test_closing_in_the_middle_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES", 50_000)
    monkeypatch.setattr(checkpoint, "WAL_LIMIT", 300_000)
    for end in range(0, 200, 10):
        with closing(SqliteStorage(tmp_path)) as storage:
            if end == 0:
                commit(storage, [CreateLog(LOG)])
            for n in range(end, end + 10):
                commit(storage, [Append(LOG, (make_batch(n, size=50_000),))])
        assert not (tmp_path / f"{FILE_NAME}-wal").exists()
    assert log_bases(tmp_path) == list(range(200))


def own_offsets(directory: Path) -> list[int]:
    """Of a directory that `crashed` has left, if the other log has what was committed with these records."""
    with closing(SqliteStorage(directory)) as storage:
        found = [record.offset for record in own_records(storage)]
        assert [batch.base_offset for batch in storage.read(LOG, 0, 1 << 30)] == list(range((len(found) + 1) // 2))
        return found


@pytest.mark.parametrize("seed", range(20))
def test_a_bit_flipped_in_the_wal_loses_no_synced_commit_silently(tmp_path: Path, seed: int) -> None:
    ends = crashed(tmp_path, 10)
    wal = tmp_path / f"{FILE_NAME}-wal"
    data = bytearray(wal.read_bytes())
    chance = random.Random(seed)
    position = chance.randrange(ends[-2])  # before the last commit
    data[position] ^= 1 << chance.randrange(8)
    wal.write_bytes(data)
    assert_right_or_noticed(lambda: own_offsets(tmp_path), list(range(10)), f"seed {seed}, byte {position}")


@pytest.mark.parametrize("torn", [False, True])
def test_a_crash_leaves_all_whole_commits_in_the_wal(tmp_path: Path, torn: bool) -> None:
    for place in range(3):
        ends = crashed(tmp_path, 10)
        cut = (ends[-2] + 1, (ends[-2] + ends[-1]) // 2, ends[-1] - 1)[place] if torn else ends[-1]
        os.truncate(tmp_path / f"{FILE_NAME}-wal", cut)
        (tmp_path / f"{FILE_NAME}-shm").unlink(missing_ok=True)
        assert own_offsets(tmp_path) == list(range(9 if torn else 10)), cut


def test_the_view_is_readable_with_any_tool(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path)
    commit(storage, [CreateLog(LogKey(b"\xab" * 16, 2)), Append(LogKey(b"\xab" * 16, 2), (make_batch(0, 3),))])
    db = sqlite3.connect(f"file:{tmp_path / FILE_NAME}?mode=ro", uri=True)
    row = db.execute("SELECT topic_id, partition, base_offset, last_offset, size FROM log_batches").fetchone()
    assert row == ("ab" * 16, 2, 0, 2, 100)
    db.close()
    storage.close()
