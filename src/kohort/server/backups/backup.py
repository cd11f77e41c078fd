"""Backs up a data directory: copies its database, and gives the copy its name if a broker can start from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from kohort.broker.backups.contents import Contents, contents_of
from kohort.config import Config
from kohort.server.stopped import broker_without_server
from kohort.storage.backup import Backup, Stopped
from kohort.storage.protocol import StorageError
from kohort.storage.stored_file import StoredFile

__all__ = ["BackedUp", "Contents", "Stopped", "StorageError", "back_up"]


class BackedUp(msgspec.Struct, frozen=True):
    size: int
    """Bytes of the backup."""
    took_ms: int
    contents: Contents


def back_up(
    data_dir: Path,
    target: Path,
    *,
    force: bool,
    max_wal_bytes: int,
    stopped: Callable[[], bool],
    told: Callable[[str], None],
) -> BackedUp:
    """Raises StorageError, and Stopped soon after `stopped` returns True. `told` gets a line about what is removed."""
    began = time.monotonic()
    backup = Backup(data_dir, target, force=force, max_wal_bytes=max_wal_bytes, stopped=stopped)
    for path in backup.prepare():
        told(f"removed {path}, which an interrupted backup has left")
    try:
        backup.copy()
        size, contents = _replayed(data_dir, backup.partial)
        backup.finish()
    finally:
        backup.discard()
    return BackedUp(size, round((time.monotonic() - began) * 1000), contents)


def _replayed(data_dir: Path, copy: Path) -> tuple[int, Contents]:
    """A copy that no server could start from is no backup, and must not replace one."""
    try:
        with closing(StoredFile(copy)) as file:
            return file.size, contents_of(broker_without_server(Config(), file).load().state)
    except Exception as error:  # code that reads damaged data may fail in any way
        why = " ".join(str(error).replace(str(copy.absolute()), "the copy").split()) or type(error).__name__
        raise StorageError(
            f"no server can start from the data of {data_dir}, so no backup was written: {why}; kohort verify lists "
            "the faults of a stopped data directory"
        ) from error
