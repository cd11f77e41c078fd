"""The interface of a file or directory at an address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self


class FileSystemError(OSError):
    """A file system refused a call; the message names the file and gives the reason."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file: its path relative to the listed directory, its length in bytes, when it was written (ms since 1970)."""

    path: str
    size: int
    modified_ms: int


class Directory(Protocol):
    """A file or directory, which need not exist. Every method raises OSError."""

    def __truediv__(self, name: str, /) -> Self: ...

    def exists(self) -> bool: ...

    def names(self) -> list[str]:
        """The names of what is directly in this directory, sorted; none if it does not exist."""

    def files(self) -> Iterator[FileInfo]:
        """All files below this directory, at any depth, in no order; none if it does not exist."""

    def read_text(self) -> str:
        """The contents of a UTF-8 file."""

    def write_text(self, text: str) -> None:
        """Write a file as a whole: an existing file stays until the new one is complete."""

    def remove(self) -> None:
        """Delete a file, or a directory and everything in it; no error if it does not exist."""
