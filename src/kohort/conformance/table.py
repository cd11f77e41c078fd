"""The outcome of a run, row by row: what is kept, what is different, what was not shown and why; and as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kohort.conformance import rows
from kohort.conformance.reference import NAME
from kohort.conformance.run import DIFFERENT, KEPT, NOT_SHOWN, Difference, Play

FORMAT = 1
"""Of the document."""


@dataclass(frozen=True, slots=True)
class Result:
    """The state of a row; `why` it was not shown; the files that show it."""

    row: rows.Row
    state: str
    files: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"row": self.row.name, "says": self.row.says, "state": self.state}
        if self.files:
            found["files"] = list(self.files)
        if self.differences:
            found["clients"] = self.row.clients
            found["differences"] = [each.as_json() for each in self.differences]
        if self.why:
            found["why"] = self.why
        return found


def results(plays: Sequence[Play], wanted: Callable[[str], bool]) -> list[Result]:
    """A row is different if one difference is about it, and kept if a file shows it that differs nowhere about it."""
    return [_result(row, plays) for row in rows.rows().values() if wanted(row.name)]


def _result(row: rows.Row, plays: Iterable[Play]) -> Result:
    of_row = [play for play in plays if row.name in play.rows]
    found = tuple(each for play in of_row for each in play.differences if row.name in each.rows)
    if found:
        return Result(row, DIFFERENT, tuple(dict.fromkeys(each.file for each in found)), found)
    keeping = tuple(play.file for play in of_row if row.name in play.kept)
    if keeping:
        return Result(row, KEPT, keeping)
    return Result(row, NOT_SHOWN, why=_why(row, of_row))


def _why(row: rows.Row, of_row: Sequence[Play]) -> str:
    """Why a row is not shown. Files that differ about another row are named before files that were not played."""
    reasons = dict.fromkeys(f"{play.file}: {play.why}" for play in of_row if play.why)
    differing = [play.file for play in of_row if play.differences]
    if differing:
        return f"{', '.join(differing)}: an earlier answer, about another row, is different"
    return "; ".join(reasons) or rows.why_not_shown().get(row.name, "no file shows it")


def counts(found: Iterable[Result]) -> dict[str, int]:
    states = [result.state for result in found]
    return {state: states.count(state) for state in (KEPT, DIFFERENT, NOT_SHOWN)}


def document(found: Sequence[Result], plays: Sequence[Play], asked: Mapping[str, Any]) -> dict[str, Any]:
    """`asked`: the cluster and the form of the run."""
    return {
        "format": FORMAT,
        "reference": NAME,
        **asked,
        "counts": counts(found),
        "rows": [result.as_json() for result in found],
        "files": [
            {"file": play.file, "state": play.state, **({"why": play.why} if play.why else {}), "seconds": play.seconds}
            for play in plays
        ],
    }


def different_rows(table: Mapping[str, Any]) -> set[str]:
    """The rows that a document says are different. Raises ValueError if it is none of this format."""
    try:
        if table["format"] != FORMAT:
            raise ValueError(f"format {table['format']}; this kohort reads format {FORMAT}")
        return {str(row["row"]) for row in table["rows"] if row["state"] == DIFFERENT}
    except (KeyError, TypeError):
        raise ValueError("no table of kohort conformance") from None
