"""Imports without what a command of seconds does not use. In a process that goes on they would be missed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


@contextmanager
def without_pandas() -> Iterator[None]:
    """pyarrow imports pandas when it makes its first array, in case it is given one of pandas. That takes 0.4 s."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def import_matplotlib() -> None:
    """Without the tables of properties in the docstrings of its classes, which are half of the time of the import."""
    try:
        import matplotlib.artist as artist
    except ModuleNotFoundError:  # it is reported where it is used
        return
    changed: Any = artist
    written, changed.kwdoc = artist.kwdoc, lambda _: ""
    try:
        import matplotlib.figure  # noqa: F401
    finally:
        changed.kwdoc = written
