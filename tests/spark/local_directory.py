"""Local files with the calls of `kohort.spark.files.directory.Directory`, without Spark; they can crash at the n-th
change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kohort.spark.files.directory import FileInfo, FileSystemError


class Crash(BaseException):
    """The process has died: nothing after this happens."""


@dataclass
class Fate:
    """How many changes are still made before the crash; None for all. A change that crashes may be made or not.
    Just before change number `before` another process acts."""

    left: int | None = None
    made: bool = False
    before: int = -1
    acts: Callable[[], object] = lambda: None
    changes: int = 0

    def change(self) -> bool:
        """True if the change is made. Raises Crash instead of returning where the process died before it."""
        if self.changes == self.before:
            self.acts()
        self.changes += 1
        if self.left is None:
            return False
        self.left -= 1
        if self.left >= 0:
            return False
        if self.made:
            return True
        raise Crash


@dataclass(frozen=True)
class LocalDirectory:
    where: Path
    fate: Fate = field(default_factory=Fate)
    scheme: str = "file"

    def __truediv__(self, name: str) -> LocalDirectory:
        return LocalDirectory(self.where / name, self.fate, self.scheme)

    def __str__(self) -> str:
        return str(self.where)

    @property
    def path(self) -> str:
        return str(self.where)

    @property
    def parent(self) -> LocalDirectory:
        return LocalDirectory(self.where.parent, self.fate, self.scheme)

    def exists(self) -> bool:
        return self.where.exists()

    def names(self) -> list[str]:
        return sorted(os.listdir(self.where)) if self.where.is_dir() else []

    def files(self) -> Iterator[FileInfo]:
        for path in sorted(self.where.rglob("*")):
            if path.is_file():
                status = path.stat()
                yield FileInfo(path.relative_to(self.where).as_posix(), status.st_size, int(status.st_mtime * 1000))

    def read_text(self) -> str:
        return self.where.read_text(encoding="utf-8")

    def write_text(self, text: str) -> None:
        last = self.fate.change()
        self.where.parent.mkdir(parents=True, exist_ok=True)
        self.where.write_text(text, encoding="utf-8")
        self._die(last)

    def write_new(self, text: str) -> bool:
        last = self.fate.change()
        self.where.parent.mkdir(parents=True, exist_ok=True)
        made = not self.where.exists()
        if made:
            self.where.write_text(text, encoding="utf-8")
        self._die(last)
        return made

    def write_over(self, text: str) -> None:
        self.write_text(text)

    def modified_ms(self) -> int | None:
        return int(self.where.stat().st_mtime * 1000) if self.where.exists() else None

    def move(self, target: LocalDirectory) -> None:
        last = self.fate.change()
        target.where.parent.mkdir(parents=True, exist_ok=True)
        if target.where.exists() or not self.where.exists():
            raise FileSystemError(f"{self} cannot be renamed to {target}")
        os.rename(self.where, target.where)
        self._die(last)

    def remove(self) -> None:
        last = self.fate.change()
        if self.where.is_dir():
            shutil.rmtree(self.where)
        else:
            self.where.unlink(missing_ok=True)
        self._die(last)

    def _die(self, last: bool) -> None:
        if last:
            raise Crash
