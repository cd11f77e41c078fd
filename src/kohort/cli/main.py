"""The `kohort` command: a server's start and `--version` without typer, everything else with it."""

from __future__ import annotations

import errno
import os
import sys

from kohort.cli.plain import plain_start, version_line

COPIES = frozenset(("import-offsets", "export-offsets"))
"""The commands of `kohort gateway` that are no servers."""


def main(words: list[str] | None = None) -> None:
    """`words` are the arguments; None for those of the process."""
    given = sys.argv[1:] if words is None else words
    try:
        if given == ["--version"]:
            print(version_line(), flush=True)
        elif (plain := plain_start(given)) is not None:
            from kohort.cli.start import start

            sys.exit(start(**plain))
        else:
            _run(given)
    except ModuleNotFoundError as error:
        from kohort.cli.commands import explain_missing

        explain_missing(error, " ".join(given[: 2 if given[:1] == ["pipeline"] else 1]) or "kohort")
    except KeyboardInterrupt:
        sys.exit(130)  # as shells have it
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EPIPE):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try again at exit
        sys.exit(1 if error.errno == errno.EPIPE else f"kohort: cannot write the output: {error.strerror}")


def _run(words: list[str]) -> None:
    from kohort.cli.commands import app

    serves = words[:1] == ["serve"] or (words[:1] == ["gateway"] and not COPIES & set(words))
    if serves:  # which has its own signal handlers, in the main thread
        app(words, prog_name="kohort")
    else:
        from kohort.cli.interrupt import interrupts

        interrupts.run(lambda: app(words, prog_name="kohort"))
