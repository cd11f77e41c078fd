"""A data directory as a kill -9 leaves it, for tests of damage and of the engine's thread."""

from __future__ import annotations

import shutil
from pathlib import Path

from storage_batches import LOG, OWN, commit, make_batch, own_append

from kohort.storage.protocol import Append, CreateLog
from kohort.storage.sqlite import SqliteStorage
from kohort.storage.sqlite_file import FILE_NAME


def crashed(directory: Path, commits: int) -> list[int]:
    """A data directory as a kill -9 leaves it, the WAL full of commits. Returns where each commit ends in the WAL."""
    running = directory / "running"
    storage = SqliteStorage(running)
    wal = running / f"{FILE_NAME}-wal"
    commit(storage, [CreateLog(LOG), CreateLog(OWN)])
    ends = []
    for n in range(commits):
        large = [Append(LOG, (make_batch(n // 2, size=5000),))] if n % 2 == 0 else []
        commit(storage, [own_append(n), *large])
        ends.append(wal.stat().st_size)
    for name in (FILE_NAME, f"{FILE_NAME}-wal"):
        shutil.copy(running / name, directory / name)
    storage.close()
    shutil.rmtree(running)
    return ends
