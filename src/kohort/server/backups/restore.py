"""Restores a data directory from a backup: verifies the backup, copies it, and raises the numbers in the copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from kohort.broker.backups.contents import BeyondEnd, Contents, beyond_ends, contents_of
from kohort.broker.backups.raising import Raised, raise_numbers
from kohort.config import Config
from kohort.server.stopped import broker_without_server
from kohort.storage.backup import Stopped
from kohort.storage.protocol import StorageError
from kohort.storage.restored_directory import RestoredDirectory
from kohort.storage.sqlite import SqliteStorage
from kohort.storage.stored_file import check_backup

__all__ = ["Restored", "Stopped", "StorageError", "restore"]


class Restored(msgspec.Struct, frozen=True):
    took_ms: int
    contents: Contents
    raised: Raised
    beyond_ends: tuple[BeyondEnd, ...]


def restore(backup: Path, data_dir: Path, stopped: Callable[[], bool]) -> Restored:
    """Raises StorageError, and Stopped soon after `stopped` returns True; then nothing is left of it. The backup is not
    verified."""
    began = time.monotonic()
    check_backup(backup)
    directory = RestoredDirectory(data_dir)
    try:
        directory.copy(backup, stopped)
        contents, raised, beyond = _raised(directory.prepared)
        if stopped():
            raise Stopped
        directory.finish()
    finally:
        directory.discard()
    return Restored(round((time.monotonic() - began) * 1000), contents, raised, tuple(beyond))


def _raised(directory: Path) -> tuple[Contents, Raised, list[BeyondEnd]]:
    with closing(SqliteStorage(directory)) as storage:
        try:
            state = broker_without_server(Config(), storage).load().state
            turn, raised = raise_numbers(state, state.now)
        except StorageError:
            raise
        except Exception as error:  # code that reads damaged data may fail in any way
            raise StorageError(f"no server can start from the backup: {str(error) or type(error).__name__}") from error
        storage.commit(turn.operations, storage.acquire())
        return contents_of(state), raised, beyond_ends(state)
