"""Replaces files of a directory by others with the same rows, so that no reader counts a row twice.

On a local file system of Linux the whole directory is exchanged in one step (renameat2): a listing shows all of the old
files or all of the new ones; a reader that has listed the old files must list again. Files that stay are in both
directories, as hard links. A file that is renamed into the directory meanwhile may land in the old one. So the old one
is emptied file by file into the new one and then removed; a rename after that fails, and its caller repeats it.

Elsewhere the old files are removed and then the new ones are renamed into their place. For that moment a reader may
miss rows; it never sees a row twice.

A journal is written before the swap and removed after it; `finish` completes an interrupted swap. The caller holds a
lock, so there is one swap at a time. No file is removed unless the files that replace it exist.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import link, listdir, mkdir, rename, rmdir, unlink
from pathlib import Path

from kohort.spark.files.directory import FileSystemError
from kohort.spark.files.hadoop import HadoopDirectory

AT_FDCWD = -100
RENAME_EXCHANGE = 2
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class Swap:
    """A planned swap. Paths are relative to the table's directory."""

    directory: str
    replaced: tuple[str, ...]
    """Names of old files in the directory."""
    merged: tuple[tuple[str, str], ...]
    """The staged path of each new file, and its name in the directory."""
    aside: str | None
    """The directory to exchange with; None to move files one by one."""

    def to_json(self) -> str:
        return json.dumps({"version": 1, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Swap:
        value = json.loads(text)
        merged = tuple((staged, name) for staged, name in value["merged"])
        return cls(value["directory"], tuple(value["replaced"]), merged, value["aside"])


def swap(table: HadoopDirectory, journal: HadoopDirectory, decided: Swap) -> None:
    """Make a swap. Raises OSError."""
    if decided.aside is not None:
        directory, aside = Path(table.path) / decided.directory, Path(table.path) / decided.aside
        if _build(directory, aside, Path(table.path), decided):
            journal.write_text(decided.to_json())
            if exchange(directory, aside):
                _empty(aside, directory, decided.replaced)
                journal.remove()
                return
        _discard(aside)
        decided = Swap(decided.directory, decided.replaced, decided.merged, None)
    journal.write_text(decided.to_json())
    _one_by_one(table, decided)
    journal.remove()


def finish(table: HadoopDirectory, journal: HadoopDirectory) -> None:
    """Complete an interrupted swap if it was visible already, else undo it."""
    decided = Swap.from_json(journal.read_text())
    if decided.aside is None:
        _one_by_one(table, decided)
    else:
        directory, aside = Path(table.path) / decided.directory, Path(table.path) / decided.aside
        if all((directory / name).exists() for _, name in decided.merged):
            _empty(aside, directory, decided.replaced)
        else:
            _discard(aside)
    journal.remove()


def _one_by_one(table: HadoopDirectory, decided: Swap) -> None:
    for staged, name in decided.merged:
        if not (table / staged).exists() and not (table / decided.directory / name).exists():
            raise FileSystemError(f"{table / staged} is missing; the files that it was made from stay")
    for name in decided.replaced:
        (table / decided.directory / name).remove()
    for staged, name in decided.merged:
        if (table / staged).exists():
            (table / staged).move(table / decided.directory / name)


# -- exchange


def _build(directory: Path, aside: Path, table: Path, decided: Swap) -> bool:
    """Build the new directory: the new files, and links to those that stay. False if the file system has no links."""
    mkdir(aside)
    gone = _with_checksums(decided.replaced)
    staying = [name for name in listdir(directory) if name not in gone]
    try:
        for staged, name in decided.merged:
            link(table / staged, aside / name)
        for name in staying:
            link(directory / name, aside / name)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return False  # also if a subdirectory stays
    return True


def _empty(aside: Path, directory: Path, replaced: Sequence[str]) -> None:
    """Remove the old directory, after moving files that arrived in it meanwhile to the new one."""
    gone = _with_checksums(replaced)
    while aside.exists():
        for name in listdir(aside):
            if name in gone or (directory / name).exists():
                unlink(aside / name)
            else:
                rename(aside / name, directory / name)
        try:
            rmdir(aside)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise


def _discard(aside: Path) -> None:
    """Remove a directory of links."""
    if aside.exists():
        for name in listdir(aside):
            unlink(aside / name)
        rmdir(aside)


def _with_checksums(names: Sequence[str]) -> set[str]:
    """The names, and the names of the files with their checksums, which Hadoop keeps for local files."""
    return {*names, *(f".{name}.crc" for name in names)}


def exchange(one: Path, other: Path) -> bool:
    """Exchange two directories in one step. False if the system or the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(one))
