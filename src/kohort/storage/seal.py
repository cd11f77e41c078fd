"""The seal of a backup: the CRC-32C of the whole file, at its end.

The rows and batches of a database have checksums, but not the bytes between them. SQLite does not read what follows the
last page, so a sealed file is a database like any other.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import google_crc32c

_SEAL = struct.Struct(">16sI")
_MARK = b"kohort crc32c 1\n"
SIZE = _SEAL.size
"""Bytes of a seal."""
_CHUNK = 4 * 1024 * 1024


def seal(path: Path) -> None:
    checksum = _checksum(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(_SEAL.pack(_MARK, checksum))


def is_sealed(path: Path) -> bool:
    return _sealed_with(path) is not None


def is_broken(path: Path) -> bool:
    """True if a sealed file has changed since."""
    checksum = _sealed_with(path)
    return checksum is not None and checksum != _checksum(path, path.stat().st_size - SIZE)


def remove(path: Path) -> None:
    """Remove the seal, if there is one."""
    if is_sealed(path):
        os.truncate(path, path.stat().st_size - SIZE)


def _sealed_with(path: Path) -> int | None:
    """The checksum in the seal."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) < SIZE:
            return None
        file.seek(-SIZE, os.SEEK_END)
        mark, checksum = _SEAL.unpack(file.read(SIZE))
    return int(checksum) if mark == _MARK else None


def _checksum(path: Path, size: int) -> int:
    checksum = 0
    with path.open("rb") as file:
        while size > 0 and (data := file.read(min(size, _CHUNK))):
            checksum = google_crc32c.extend(checksum, data)
            size -= len(data)
    return checksum
