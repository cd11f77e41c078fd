"""The rows of docs/conformance.md, and which clients suffer if one is different.

rows.txt is written from the page by `pytest --rewrite tests/structure/test_conformance.py`; clients.txt by people.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from kohort.conformance.files import FOLDER

ROWS = FOLDER / "rows.txt"
CLIENTS = FOLDER / "clients.txt"
NOT_PLAYED = FOLDER / "rows_not_shown.txt"
TAB = "\t"


class Row(NamedTuple):
    name: str
    says: str
    clients: str

    @property
    def letters(self) -> str:
        return letters_of(self.name)


def letters_of(name: str) -> str:
    return name.rstrip("0123456789")


@cache
def rows() -> dict[str, Row]:
    """All rows by name, in the order of the page."""
    clients = pairs(CLIENTS.read_text(encoding="utf-8"))
    found = {}
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        name, _, says = line.partition(TAB)
        found[name] = Row(name, says, clients.get(name) or clients[letters_of(name)])
    return found


def pairs(text: str) -> dict[str, str]:
    """The lines `NAME: text` of a file, without comments."""
    lines = (line.partition(":") for line in text.splitlines() if line[:1] not in ("", "#"))
    return {name.strip(): said.strip() for name, _, said in lines}


@cache
def why_not_shown() -> dict[str, str]:
    """Rows that no file shows, and why."""
    return pairs(NOT_PLAYED.read_text(encoding="utf-8"))


def chosen(text: str) -> Callable[[str], bool]:
    """The rows of `J,S,TX`, `J3` or `J1-J9`; all for "". Raises ValueError, which says what is wrong."""
    known = rows()
    wanted: set[str] = set()
    letters = {row.letters for row in known.values()}
    for word in filter(None, (part.strip().upper() for part in text.split(","))):
        span = re.fullmatch(r"([A-Z]+)(\d+)-(?:\1)?(\d+)", word)
        found = [name for name in known if word in (name, letters_of(name))]
        if span is not None:
            numbers = range(int(span[2]), int(span[3]) + 1)
            found = [name for name in (f"{span[1]}{number}" for number in numbers) if name in known]
        if not found:
            near = difflib.get_close_matches(word, [*letters, *known], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{word!r} is no row and no letter of rows ({', '.join(sorted(letters))}){hint}")
        wanted.update(found)
    return wanted.__contains__ if wanted else known.__contains__
