"""How a command ends that cannot do what it was asked for.

`fail` raises `Failed`; `kohort.cli.commands` prints its message, and the exit code is the process's. So the planning of
a change serves the console too, which shows the message in a page.
"""

from __future__ import annotations

from typing import NoReturn

import typer

FAILED = 1


class Failed(typer.Exit):
    """`message` is one line: what failed, where, and what to do about it."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(code)
        self.message = message


def fail(message: str, code: int = FAILED) -> NoReturn:
    """End the command with a line on stderr."""
    raise Failed(message, code)


def complain(message: str) -> None:
    """A line on stderr."""
    typer.echo(f"kohort: {message}", err=True)
