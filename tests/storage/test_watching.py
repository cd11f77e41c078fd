"""The engine's thread: no passing error ends it, and what other programs do to the files is noticed."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from crashed_directory import crashed
from storage_batches import LOG, commit, make_batch

from kohort.storage import checkpoint, sqlite_file
from kohort.storage.directory import LOCK_NAME
from kohort.storage.protocol import Append, CreateLog, StorageError
from kohort.storage.sqlite import SqliteStorage
from kohort.storage.sqlite_file import FILE_NAME

WAL = f"{FILE_NAME}-wal"
NAMES_THE_PROCESS = sys.platform == "linux"


class Watched(SqliteStorage):
    """Keeps what its thread reports."""

    def __init__(self, directory: Path) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[Exception] = []
        super().__init__(directory, self, self.failures.append)
        self.end = 0
        if self.log_info(LOG) is None:
            commit(self, [CreateLog(LOG)])

    def info(self, name: str, **values: Any) -> None:
        self.said.append((name, values))

    warning = info

    def write(self, commits: int = 1) -> None:
        for _ in range(commits):
            commit(self, [Append(LOG, (make_batch(self.end, size=50_000),))])
            self.end += 1

    def heard(self, part: str) -> list[dict[str, Any]]:
        return [values for name, values in self.said if part in name]


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES", 50_000)
    monkeypatch.setattr(checkpoint, "WAL_LIMIT", 300_000)
    monkeypatch.setattr(checkpoint, "TICK_S", 0.02)
    monkeypatch.setattr(checkpoint, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(checkpoint, "SLOW_COMMIT_S", 0.1)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Watched]:
    with closing(Watched(tmp_path / "data")) as opened:
        yield opened


def eventually(condition: Callable[[], object], limit_s: float = 10) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


@contextmanager
def other_program(directory: Path, statements: str) -> Iterator[subprocess.Popen[str]]:
    """Runs statements in a connection, which it keeps open until the block ends."""
    code = (
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for statement in sys.argv[2].split(';'): db.execute(statement).fetchall()\n"
        "print('done', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(directory / FILE_NAME), statements]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "done\n"
        try:
            yield process
        finally:
            process.kill()


# -- the thread


@contextmanager
def no_more_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_checkpoint_that_finds_too_many_files_open_is_tried_again(storage: Watched) -> None:
    with no_more_files():
        storage.write(40)
        eventually(lambda: storage.heard("cannot be copied"))
        assert (storage.path.with_name(WAL)).stat().st_size < 1_500_000, "the commits copy meanwhile"
    eventually(lambda: storage.heard("is copied again"))
    assert storage.heard("cannot be copied")[0]["error"] == "unable to open database file"
    assert len(storage.heard("cannot be copied")) == 1, "the rate is limited"
    storage.write(40)
    eventually(lambda: storage.path.with_name(WAL).stat().st_size < 1_500_000)
    assert not storage.failures


def test_a_checkpoint_that_never_works_stops_the_engine_at_a_limit(
    storage: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "WAL_MAX", 100_000)
    with no_more_files(), suppress(StorageError):
        storage.write(10)
    eventually(lambda: storage.failures)
    assert "because it cannot be copied: unable to open database file" in str(storage.failures[0])


def test_a_bug_in_the_thread_is_reported_and_ends_the_writing(
    storage: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(self: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(checkpoint.Checkpointer, "_checkpoint", bug)
    storage.write()
    eventually(lambda: storage.failures)
    assert isinstance(storage.failures[0], ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        storage.write()
    with pytest.raises(StorageError, match="an earlier write"):
        storage.write()


# -- files that are gone


def replace(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").rename(path)


HARMS: dict[str, Callable[[Path], object]] = {
    "the directory is deleted": lambda directory: shutil.rmtree(directory, ignore_errors=True),
    "the directory is moved": lambda directory: directory.rename(directory.with_name("moved")),
    "the database is deleted": lambda directory: (directory / FILE_NAME).unlink(),
    "the database is replaced": lambda directory: replace(directory / FILE_NAME),
    "the log is deleted": lambda directory: (directory / WAL).unlink(),
}


@pytest.mark.parametrize("harm", [harm for harm in HARMS if "the log" not in harm])
def test_no_commit_succeeds_without_its_files(storage: Watched, harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage._file.watched, "check", lambda: None)  # the commit itself notices
    storage.write()
    HARMS[harm](storage.path.parent)
    with pytest.raises(StorageError, match=r"kohort\.db was deleted or replaced"):
        storage.write()


@pytest.mark.parametrize(
    "harm", [*HARMS.values(), lambda directory: (directory / LOCK_NAME).unlink()], ids=[*HARMS, "the lock is deleted"]
)
def test_an_idle_engine_notices_too(storage: Watched, harm: Callable[[Path], object]) -> None:
    harm(storage.path.parent)
    eventually(lambda: storage.failures)
    assert "was deleted or replaced while kohort used it" in str(storage.failures[0])


def test_a_log_that_was_deleted_is_never_copied_from_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite creates a missing log when a connection begins to read, and reads no frame from it."""
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES", 1 << 30)
    with closing(Watched(tmp_path)) as storage:
        storage.write(5)
        wal = storage.path.with_name(WAL)
        monkeypatch.setattr(storage._checkpointer, "_is_due", lambda: wal.unlink() or True)  # the files were checked
        eventually(lambda: storage.failures)
        assert "kohort.db-wal was deleted or replaced" in str(storage.failures[0])
    with closing(SqliteStorage(tmp_path)) as again:
        assert len(again.read(LOG, 0, 1 << 30)) == 5


def test_a_log_that_was_deleted_is_saved_at_the_end(storage: Watched) -> None:
    storage.write()
    (storage.path.parent / WAL).unlink()
    eventually(lambda: storage.failures)
    storage.close()
    with closing(SqliteStorage(storage.path.parent)) as again:
        assert again.log_info(LOG).end_offset == 1


def test_a_directory_in_the_place_of_the_used_one_stays_as_it_is(storage: Watched, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    crashed(tmp_path / "backup", 4)
    files = {path.name: path.read_bytes() for path in (tmp_path / "backup").iterdir() if path.is_file()}
    storage.write()
    storage.path.parent.rename(tmp_path / "moved")
    (tmp_path / "backup").rename(storage.path.parent)
    eventually(lambda: storage.failures)
    with suppress(StorageError):
        storage.write()
    storage.close()
    assert {path.name: path.read_bytes() for path in storage.path.parent.iterdir() if path.is_file()} == files
    with closing(SqliteStorage(tmp_path / "moved")) as moved:
        assert moved.log_info(LOG).end_offset >= 1


def test_a_process_may_change_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(Watched(Path("data"))) as storage:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        storage.write(5)
        eventually(lambda: storage._checkpointer._db)
        assert not storage.failures
    assert not list((tmp_path / "elsewhere").iterdir())


# -- other programs


def test_a_reader_that_holds_the_log_is_named_and_the_log_shrinks_when_it_ends(storage: Watched) -> None:
    storage.write()
    with other_program(storage.path.parent, "BEGIN; SELECT count(*) FROM logs") as reader:
        storage.write(40)
        eventually(lambda: storage.heard("another program reads"))
        size = storage.path.with_name(WAL).stat().st_size
        assert size > 1_500_000
        if NAMES_THE_PROCESS:
            [warned] = storage.heard("another program reads")
            assert warned["process"].startswith(f"process {reader.pid} (")
    eventually(lambda: storage.path.with_name(WAL).stat().st_size <= 600_000)  # without a commit
    storage.write()
    assert not storage.failures


def test_a_reader_that_holds_the_log_too_long_stops_the_engine(
    storage: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "WAL_MAX", 1_000_000)
    storage.write()
    with (
        other_program(storage.path.parent, "BEGIN; SELECT count(*) FROM logs") as reader,
        pytest.raises(StorageError, match="reads the database in one long transaction") as stopped,
    ):
        storage.write(1_000)
    assert storage.failures == [stopped.value]
    assert not NAMES_THE_PROCESS or f"because process {reader.pid} (" in str(stopped.value)
    assert storage.path.with_name(WAL).stat().st_size < 20_000_000


def test_a_program_that_holds_the_write_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 600)
    with (
        closing(Watched(tmp_path)) as storage,
        other_program(tmp_path, "BEGIN IMMEDIATE") as writer,
    ):
        with pytest.raises(StorageError, match="holds a lock on it") as stopped:
            storage.write()
        if NAMES_THE_PROCESS:
            assert f"kohort.db: process {writer.pid} (" in str(stopped.value)
            [warned] = storage.heard("a commit waits")
            assert warned["process"].startswith(f"process {writer.pid} (")


def test_a_commit_goes_on_when_the_write_lock_is_free(storage: Watched) -> None:
    with other_program(storage.path.parent, "BEGIN IMMEDIATE") as writer:
        ending = threading.Timer(0.5, writer.kill)
        ending.start()
        storage.write()
        ending.join()
    if NAMES_THE_PROCESS:
        eventually(lambda: storage.heard("is free again"))
        assert len(storage.heard("a commit waits")) == 1
    assert not storage.failures


@pytest.mark.skipif(not NAMES_THE_PROCESS, reason="the kernel's struct of a lock is known for Linux only")
def test_the_locks_of_a_recovered_database_stay(tmp_path: Path) -> None:
    """Another program truncates the -shm file if no process has locked its byte 128."""
    crashed(tmp_path, 4)
    with closing(SqliteStorage(tmp_path)):
        code = (
            "import fcntl, struct, sys; file = open(sys.argv[1], 'rb+')\n"
            "asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 128, 1, 0)\n"
            "print(struct.unpack('hhqqi4x', fcntl.fcntl(file, fcntl.F_GETLK, asked))[4])"
        )
        command = [sys.executable, "-c", code, str(tmp_path / f"{FILE_NAME}-shm")]
        holder = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
        assert int(holder) == os.getpid()


class Statements:
    """A database that only notes what it is to do."""

    def __init__(self) -> None:
        self.restarts = 0

    def execute(self, statement: str) -> Statements:
        self.restarts += "RESTART" in statement
        return self

    def fetchone(self) -> None: ...


@pytest.mark.parametrize(
    ("left", "copied", "restarts"),
    [
        pytest.param(1_000, 300_000, 1, id="little is left"),
        pytest.param(200_000, 300_000, 0, id="much is left for the thread"),
        pytest.param(200_000, 500_000, 1, id="the WAL has grown to twice its limit"),
    ],
)
def test_a_commit_that_restarts_the_wal_has_little_to_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, copied: int, restarts: int
) -> None:
    monkeypatch.setattr(checkpoint, "RESTART_BYTES", 100_000)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES", 1 << 30)
    monkeypatch.setattr(checkpoint.Checkpointer, "_run", lambda checkpointer: None)
    db = Statements()
    with closing(Watched(tmp_path / "data")) as storage:
        checkpointer = storage._checkpointer
        checkpointer._restart_due, checkpointer._copied_bytes, checkpointer._bytes = True, copied, 0
        checkpointer.after_commit(db, left)  # type: ignore[arg-type]
        assert db.restarts == restarts
        assert checkpointer._wake.is_set() == (not restarts)
