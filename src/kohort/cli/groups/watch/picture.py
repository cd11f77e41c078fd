"""The figures on a terminal, drawn anew twice a second on a screen of their own; the last picture stays afterwards.

Names of groups and clients are hostile input: lines are printed as text without rich's markup, and `pictured` has taken
control characters out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from kohort.cli.groups.watch.screen import View, pictured

PICTURES_A_SECOND = 2


class Picture:
    """As many lines as the terminal has, none of them wider than it."""

    def __init__(self, view: Callable[[], View], hint: str = "") -> None:
        self._view = view
        self.hint = hint
        """At the end of the first line, if there is room."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in pictured(
            replace(self._view(), hint=self.hint), options.max_width, options.height or console.height - 1
        ):
            yield Text(line.text, style=line.style, no_wrap=True, overflow="crop")


class Drawing:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self) -> None:
        self._live.refresh()


@contextmanager
def drawing(view: Callable[[], View], console: Console | None = None) -> Iterator[Drawing]:
    """Draw what `view` returns, until the end of the block."""
    console = console or Console(highlight=False)
    picture = Picture(view, "Ctrl-C ends")
    with Live(
        picture,
        console=console,
        screen=True,
        refresh_per_second=PICTURES_A_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as live:
        yield Drawing(live)
    picture.hint = ""
    console.print(picture, end="")
