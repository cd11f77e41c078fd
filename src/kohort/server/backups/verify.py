"""Verifies a backup or a stopped data directory. Nothing is changed, and no file is created beside a backup."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import msgspec

from kohort.broker.backups.contents import Contents
from kohort.broker.backups.verification import Fault, Verification
from kohort.config import Config
from kohort.server.stopped import broker_without_server
from kohort.storage.protocol import DamagedFile, StorageError
from kohort.storage.stored_file import StoredFile

__all__ = ["Fault", "StorageError", "Verified", "verify"]


CHANGED = "some byte has changed since the backup was written: the whole file does not match its checksum"


class Verified(msgspec.Struct, frozen=True):
    size: int
    took_ms: int
    faults: tuple[Fault, ...]
    contents: Contents | None
    """None if there are faults."""


def verify(path: Path) -> Verified:
    """Raises StorageError if the file cannot be opened for another reason than damage."""
    began = time.monotonic()
    faults: list[Fault] = []
    size, contents = 0, None
    try:
        with closing(StoredFile(path)) as file:
            size = file.size
            faults += _structural(path, file)
            verification = Verification(broker_without_server(Config(), file).state, file, file.path)
            verification.run()
            faults += verification.faults
            contents = verification.contents
            if not faults and file.has_changed():
                faults.append(Fault(str(path), CHANGED))
    except DamagedFile as error:
        faults.append(Fault(str(path), _one_line(error)))
    except StorageError:
        raise
    except Exception as error:  # code that reads damaged data may fail in any way
        faults.append(Fault(str(path), f"its tables make no sense ({_one_line(error)})"))
    took_ms = round((time.monotonic() - began) * 1000)
    return Verified(size, took_ms, tuple(faults), None if faults else contents)


def _structural(path: Path, file: StoredFile) -> list[Fault]:
    try:
        return [Fault(str(path), what) for what in file.structural_faults()]
    except DamagedFile as error:
        return [Fault(str(path), _one_line(error))]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
