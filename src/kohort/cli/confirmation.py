"""The question before something is deleted, and the options of commands that ask it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kohort.cli.connect import fail

WRONG_USAGE = 2
DRY_RUN = "this is a dry run; --execute does it"

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Execute = Annotated[bool, typer.Option("--execute/--dry-run", help="Do it, or only show what would be done.")]
YesToExecute = Annotated[bool, typer.Option("--yes", "-y", help="With --execute: do not ask.")]


def confirm(question: str, *, yes: bool, declined: str, err: bool = False) -> None:
    """End the command unless the user agrees, on a terminal or with `--yes`. `declined`: what was not done then.

    `err`: ask on stderr, because stdout gets a document.
    """
    if yes:
        return
    sys.stdout.flush()
    if not sys.stdin.isatty():
        fail(f"{declined}: this is no terminal to confirm on; add --yes", WRONG_USAGE)
    if not typer.confirm(question, err=err):
        fail(declined)
