"""Copies of a database that is in use: whole or not there. Directories that are restored: whole, or without a start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from crashed_directory import crashed
from storage_batches import LOG, OWN, commit, make_batch, own_append

from kohort.storage import backup as backup_module
from kohort.storage import seal
from kohort.storage.backup import Backup, Stopped
from kohort.storage.directory import RESTORING
from kohort.storage.protocol import Append, CreateLog, StorageError, StoredBatch
from kohort.storage.restored_directory import RestoredDirectory
from kohort.storage.sqlite import SqliteStorage
from kohort.storage.sqlite_file import FILE_NAME
from kohort.storage.stored_file import ReadOnlyFile, StoredFile

GIGABYTE = 1 << 30


def never() -> bool:
    return False


def filled(directory: Path, batches: int = 50) -> SqliteStorage:
    storage = SqliteStorage(directory)
    commit(storage, [CreateLog(LOG), CreateLog(OWN)])
    for n in range(batches):
        commit(storage, [Append(LOG, (make_batch(n, size=3_000),)), own_append(n)])
    return storage


def backup(
    directory: Path, target: Path, *, force: bool = False, limit: int = GIGABYTE, stopped: Callable[[], bool] = never
) -> list[Path]:
    made = Backup(directory, target, force=force, max_wal_bytes=limit, stopped=stopped)
    removed = made.prepare()
    try:
        made.copy()
        made.finish()
    finally:
        made.discard()
    return removed


def batches_of(path: Path) -> list[StoredBatch]:
    with closing(StoredFile(path)) as file:
        assert file.structural_faults() == []
        return file.read(LOG, 0, GIGABYTE)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[SqliteStorage]:
    with closing(filled(tmp_path / "data")) as storage:
        yield storage


@pytest.fixture
def in_the_middle(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let something happen while the copy is read: SQLite calls it again and again."""

    def happen(what: Callable[[], object]) -> None:
        class Slow(ReadOnlyFile):
            def __init__(self, path: Path, *, immutable: bool, checks_wal: bool = False) -> None:
                super().__init__(path, immutable=immutable, checks_wal=checks_wal)
                self.db.set_progress_handler(lambda: what() and None, 20)

        monkeypatch.setattr(backup_module, "ReadOnlyFile", Slow)
        monkeypatch.setattr(backup_module, "LOOK_S", 0.001)

    return happen


def test_the_copy_is_of_one_instant(
    running: SqliteStorage, tmp_path: Path, in_the_middle: Callable[[Callable[[], object]], None]
) -> None:
    """Commits go on while it is read."""
    counted = [50]

    def commit_more() -> None:
        commit(running, [Append(LOG, (make_batch(counted[0]),)), own_append(counted[0])])
        counted[0] += 1

    in_the_middle(commit_more)
    backup(running.path.parent, tmp_path / "b.db")
    assert counted[0] > 51
    batches = batches_of(tmp_path / "b.db")
    assert [batch.base_offset for batch in batches] == list(range(len(batches)))
    with closing(StoredFile(tmp_path / "b.db")) as file:
        ends = {info.key: info.end_offset for info in file.logs()}
    assert ends[LOG] == ends[OWN] < counted[0]


def test_a_stopped_directory(tmp_path: Path) -> None:
    filled(tmp_path / "data").close()
    backup(tmp_path / "data", tmp_path / "b.db")
    assert len(batches_of(tmp_path / "b.db")) == 50
    SqliteStorage(tmp_path / "data").close()


def test_a_directory_after_a_crash(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    crashed(directory, 9)
    backup(directory, tmp_path / "b.db")
    assert len(batches_of(tmp_path / "b.db")) == 5


def test_only_its_user_may_read_it(running: SqliteStorage, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        backup(running.path.parent, tmp_path / "b.db")
    finally:
        os.umask(before)
    assert (tmp_path / "b.db").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.db", "data"]


def test_an_existing_file(running: SqliteStorage, tmp_path: Path) -> None:
    target = tmp_path / "b.db"
    target.write_bytes(b"precious")
    with pytest.raises(StorageError, match=r"b\.db exists; choose another name, or replace it with --force"):
        backup(running.path.parent, target)
    assert target.read_bytes() == b"precious"
    backup(running.path.parent, target, force=True)
    assert len(batches_of(target)) == 50


@pytest.mark.parametrize("force", [False, True])
def test_the_end_of_a_copy_in_the_middle(
    running: SqliteStorage, tmp_path: Path, in_the_middle: Callable[[Callable[[], object]], None], force: bool
) -> None:
    target = tmp_path / "b.db"
    if force:
        target.write_bytes(b"precious")
    looks = [0]

    def stopped() -> bool:
        looks[0] += 1
        return True

    def wait_for_looks() -> None:
        while looks[0] < 2:  # between the first and the second one, the copy is interrupted
            time.sleep(0.001)

    in_the_middle(wait_for_looks)
    with pytest.raises(Stopped):
        backup(running.path.parent, target, force=force, stopped=stopped)
    assert target.exists() == force
    assert not force or target.read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.db", "data"] if force else ["data"]


def test_a_write_ahead_log_that_grows(
    running: SqliteStorage, tmp_path: Path, in_the_middle: Callable[[Callable[[], object]], None]
) -> None:
    wal = Path(f"{running.path}-wal")
    limit = wal.stat().st_size + 100_000
    looks = [0]

    def looked() -> bool:
        looks[0] += 1
        return False

    end = [50]

    def write() -> None:
        while wal.stat().st_size <= limit:
            commit(running, [Append(LOG, (make_batch(end[0], size=20_000),))])
            end[0] += 1
            looks[0] = 0
        while looks[0] < 3:
            time.sleep(0.001)

    in_the_middle(write)
    with pytest.raises(StorageError, match=r"kohort\.db-wal has grown above --max-wal, to [\d,]+ bytes"):
        backup(running.path.parent, tmp_path / "b.db", limit=limit, stopped=looked)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    commit(running, [Append(LOG, (make_batch(end[0]),))])


def test_what_killed_backups_have_left(running: SqliteStorage, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead = [tmp_path / f"b.db.partial-{process.pid}", tmp_path / f"b.db.partial-{process.pid}-journal"]
    others = [tmp_path / "other.db.partial-1"]
    for path in (*dead, *others, tmp_path / f"b.db.partial-{os.getpid()}"):
        path.write_bytes(b"half")
    removed = backup(running.path.parent, tmp_path / "b.db")
    assert set(removed) == {*dead, tmp_path / f"b.db.partial-{os.getpid()}"}
    assert others[0].exists()
    assert len(batches_of(tmp_path / "b.db")) == 50


def test_another_backup_to_the_same_file(running: SqliteStorage, tmp_path: Path) -> None:
    (tmp_path / f"b.db.partial-{os.getppid()}").write_bytes(b"half")
    with pytest.raises(StorageError, match=rf"process {os.getppid()} writes a backup to .*b\.db; if it is another"):
        backup(running.path.parent, tmp_path / "b.db")
    assert (tmp_path / f"b.db.partial-{os.getppid()}").read_bytes() == b"half"


def test_places_that_are_refused(running: SqliteStorage, tmp_path: Path) -> None:
    directory = running.path.parent
    for target, told in (
        (directory / FILE_NAME, "lies in the data directory"),
        (directory / ".." / "data" / "b.db", "lies in the data directory"),
        (tmp_path, "is a directory; name the file"),
        (tmp_path / "none" / "b.db", "none is not a directory"),
    ):
        with pytest.raises(StorageError, match=told):
            backup(directory, target, force=True)
    with pytest.raises(StorageError, match=r"is not a data directory of kohort: it has no kohort\.db"):
        backup(tmp_path / "none", tmp_path / "b.db")


def test_a_full_disk(running: SqliteStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(StorageError, match=r"the backup takes about [\d,]+ bytes, and the disk of .* has 1,000 left"):
        backup(running.path.parent, tmp_path / "b.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_what_is_no_backup(tmp_path: Path) -> None:
    filled(tmp_path / "data").close()
    copied = tmp_path / "copy.db"
    copied.write_bytes((tmp_path / "data" / FILE_NAME).read_bytes())
    assert len(batches_of(copied)) == 50, "the database of a stopped directory is as good"
    (tmp_path / "copy.db-wal").write_bytes(b"x")
    (tmp_path / "empty.db").write_bytes(b"")
    (tmp_path / "text.db").write_bytes(b"hello " * 2000)
    for name, told in (
        ("copy.db", r"copy\.db is not a backup: its write-ahead log copy\.db-wal lies beside it"),
        ("none.db", r"none\.db does not exist"),
        ("empty.db", r"empty\.db has no data of kohort"),
        ("text.db", r"text\.db is damaged: file is not a database"),
    ):
        with pytest.raises(StorageError, match=told):
            StoredFile(tmp_path / name)
    assert not list(tmp_path.glob("*-shm"))


# -- restored directories


def restored(directory: Path, file: Path) -> RestoredDirectory:
    made = RestoredDirectory(directory)
    made.copy(file, never)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    filled(tmp_path / "data").close()
    backup(tmp_path / "data", tmp_path / "b.db")
    return tmp_path / "b.db"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_restored_directory(file: Path, tmp_path: Path, is_there: bool) -> None:
    directory = tmp_path / "new"
    if is_there:
        directory.mkdir()
        (directory / ".keep").write_bytes(b"")
    made = restored(directory, file)
    assert (made.prepared / FILE_NAME).stat().st_size == file.stat().st_size - seal.SIZE
    SqliteStorage(made.prepared).close()
    made.finish()
    made.discard()
    names = {path.name for path in directory.iterdir()}
    assert names - {".keep"} == {FILE_NAME, "kohort.lock"}
    assert (directory / FILE_NAME).stat().st_mode & 0o777 == 0o600
    with closing(SqliteStorage(directory)) as storage:
        assert len(storage.read(LOG, 0, GIGABYTE)) == 50


def test_an_interrupted_restore_does_not_start_and_is_repeated(file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "new"
    made = restored(directory, file)
    with pytest.raises(StorageError, match="in use by another kohort"):
        SqliteStorage(directory)
    made._lock.release()  # as a kill -9 does
    for is_moved in (False, True):
        if is_moved:  # between the last steps
            os.replace(made.prepared / FILE_NAME, directory / FILE_NAME)
        with pytest.raises(StorageError, match="has a restore that was interrupted; repeat kohort restore"):
            SqliteStorage(directory)
        with pytest.raises(StorageError, match="has a restore that was interrupted"):
            StoredFile(directory)
        made = restored(directory, file)
        made._lock.release()
    made = restored(directory, file)
    made.finish()
    assert {path.name for path in directory.iterdir()} == {FILE_NAME, "kohort.lock"}
    SqliteStorage(directory).close()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_restore_that_is_stopped_leaves_nothing(file: Path, tmp_path: Path, is_there: bool) -> None:
    directory = tmp_path / "new"
    if is_there:
        directory.mkdir()
    made = RestoredDirectory(directory)
    with pytest.raises(Stopped):
        made.copy(file, lambda: True)
    made.discard()
    assert directory.exists() == is_there
    assert not is_there or not list(directory.iterdir())


def test_a_directory_that_is_not_empty(file: Path, tmp_path: Path) -> None:
    for names, told in ((["kohort.db"], r"\(kohort\.db\)"), (["a", "b", "c", "d"], r"\(a, b, c and 1 more\)")):
        directory = tmp_path / names[0]
        directory.mkdir()
        for name in names:
            (directory / name).write_bytes(b"")
        with pytest.raises(StorageError, match=f"is not empty {told}; choose a new or an empty directory"):
            RestoredDirectory(directory)
        assert sorted(path.name for path in directory.iterdir()) == names
    with pytest.raises(StorageError, match="is a file"):
        RestoredDirectory(file)
    assert RESTORING not in os.listdir(tmp_path)
