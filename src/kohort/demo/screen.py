"""The demo's output: headings, lines with a clock, check marks, and progress bars on a terminal.

It fits 80 columns, and works in a pipe (no bars, no colours) and in encodings without check marks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

INDENT = "   "

Advance = Callable[[str, int], None]
"""Sets the bar of a name."""


class Screen:
    """Thread-safe."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._began = time.time()
        self._chapter = 0
        self._marks = ("✓", "✗") if _can_print(self._console.encoding, "✓✗") else ("ok", "FAILED")

    def title(self, text: str) -> None:
        self._print(f"[bold]{escape(text)}[/bold]")

    def chapter(self, text: str) -> None:
        self._chapter += 1
        self._print(f"\n[bold cyan]{self._chapter}. {escape(text)}[/bold cyan]")

    def say(self, text: str = "") -> None:
        self._print(f"{INDENT}{escape(text)}" if text else "")

    def command(self, text: str) -> None:
        self._print(f"{INDENT}[bold]{escape(text)}[/bold]")

    def start_clock(self) -> None:
        self._began = time.time()

    def at(self, moment: float, text: str) -> None:
        """A line with its time (seconds since 1970), shown since the clock was started."""
        self._print(f"{INDENT}[dim]{max(0.0, moment - self._began):5.1f} s[/dim]  {escape(text)}")

    def check(self, passed: bool, text: str) -> None:
        mark = f"[green]{self._marks[0]}[/green]" if passed else f"[bold red]{self._marks[1]}[/bold red]"
        self._print(f"{INDENT}{mark} {escape(text)}")

    @contextmanager
    def bars(self, **totals: int) -> Iterator[Advance]:
        """A bar for each name, up to its total; removed when the block ends."""
        progress = Progress(
            TextColumn(INDENT + "{task.description:9}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:>7,} of {task.total:,}"),
            _Rate(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        with progress:
            tasks = {name: progress.add_task(name, total=total) for name, total in totals.items()}
            yield lambda name, completed: progress.update(tasks[name], completed=completed)

    def _print(self, markup: str) -> None:
        self._console.print(markup, soft_wrap=True)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


def _can_print(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
