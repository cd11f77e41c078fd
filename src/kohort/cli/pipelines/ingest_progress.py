"""Progress of an ingest on stderr: a live line on a terminal, or a line or a JSON object for each batch.

Stdout has the result alone.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from kohort.spark.lake.ingest import IngestProgress

PARTS_OF_SECOND = 4
GAP = "   "


class Progress(StrEnum):
    AUTO = "auto"
    LINES = "lines"
    JSON = "json"
    NONE = "none"


class Display:
    """A context manager; `now` shows the current step, `batch` the figures of a batch."""

    def __init__(self, form: Progress, *, quiet: bool, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        if form is Progress.AUTO:
            live = self._console.is_terminal and not quiet
            self._form = None if live else Progress.NONE
        else:
            self._form = form
        self._live: Live | None = None
        self._doing = "starting Spark"
        self._last: IngestProgress | None = None

    def __enter__(self) -> Self:
        if self._form is None:
            self._live = Live(
                self._shown(),
                console=self._console,
                transient=True,
                refresh_per_second=PARTS_OF_SECOND,
                redirect_stdout=False,
                redirect_stderr=True,
            )
            self._live.start()
        elif self._form is Progress.LINES:
            self._say(self._doing)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def now(self, text: str) -> None:
        self._doing = text
        self._show()

    def batch(self, progress: IngestProgress) -> None:
        self._last = progress
        if self._form is Progress.LINES:
            self._say(GAP.join(_parts(progress, aligned=True)))
        elif self._form is Progress.JSON:
            self._say(json.dumps(dataclasses.asdict(progress)))
        self._show()

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(self._shown())

    def _shown(self) -> Any:
        parts = [self._doing] if self._last is None else _parts(self._last)
        return _Line(parts)


class _Line:
    """Parts side by side; on a narrow terminal over several lines, with no part broken."""

    def __init__(self, parts: list[str]) -> None:
        self._parts = parts
        self._spinner = Spinner("dots")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        spinner = self._spinner.render(console.get_time())
        yield Text(f"{spinner} " + "\n  ".join(wrapped(self._parts, options.max_width - 2)), overflow="ellipsis")


def wrapped(parts: list[str], width: int) -> list[str]:
    """Lines of at most `width`, except for a part that is wider."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(GAP) + len(part) <= width:
            lines[-1] += GAP + part
        else:
            lines.append(part)
    return lines


def _parts(progress: IngestProgress, *, aligned: bool = False) -> list[str]:
    """The figures of a batch, `aligned` in columns for lines below each other."""
    pad: Callable[[str, int], str] = (lambda text, width: text.rjust(width)) if aligned else (lambda text, _: text)
    parts = [
        f"batch {pad(str(progress.batch), 4)}",
        f"{pad(f'{progress.rows:,}', 12)} rows",
        f"lag {pad('unknown' if progress.lag is None else f'{progress.lag:,}', 12)}",
        f"{pad(f'{progress.rows_per_second:,.0f}', 9)} rows/s",
    ]
    if progress.dead_letters:
        parts.append(f"{progress.dead_letters:,} dead letters")
    if progress.files:
        parts.append(f"{amount(progress.bytes)} in {progress.files:,} files")
    return [*parts, f"{progress.seconds:.1f} s"]


def amount(size: int) -> str:
    """Bytes, as people read them: `12.3 MB`, in powers of 1000."""
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
