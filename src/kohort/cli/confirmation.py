"""The question before something is deleted."""

from __future__ import annotations

import sys

import typer

from kohort.cli.connect import fail

WRONG_USAGE = 2


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
