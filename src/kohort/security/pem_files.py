"""What Python's ssl module needs to read keys, and what it says when it cannot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_file(text: str | None) -> Iterator[str | None]:
    """Python's ssl reads keys from files only. This one is this user's alone, and lives for an instant; None for no
    text."""
    if not text:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def short(error: OSError) -> str:
    """An error of ssl or of a file, in a few words."""
    return str(getattr(error, "reason", None) or error.strerror or error).lower().replace("_", " ")
