"""`kohort demo`: see `kohort.demo.story`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from kohort.cli.connect import fail
from kohort.cli.interrupt import INTERRUPTED
from kohort.cli.option_objects import App
from kohort.demo.flights import FLIGHTS
from kohort.demo.story import FAILURES, run

CONSOLE_PACKAGES = ("starlette", "uvicorn", "jinja2", "anyio")

app = App()


@app.command(epilog="Exit codes: 0 all checks hold, 1 one does not or the demo failed, 2 wrong usage, 130 interrupted.")
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data and the logs, and say where they are.")] = False,
    records: Annotated[int, typer.Option(min=1, max=FLIGHTS, help="Use only the first flights of the year.")] = FLIGHTS,
    console: Annotated[
        bool,
        typer.Option("--console", help="Without Spark: groups that live on until Ctrl-C, shown by the console."),
    ] = False,
) -> None:
    """Show it all: real flights, a consumer group that loses a worker, Spark. Takes a minute or two.

    Starts a server on a free port with a fresh data directory, and stops and removes it all at the end.
    """
    if not console and find_spec("pyspark") is None:
        fail("the demo needs the package pyspark; run: pip install 'kohort[demo,spark]', or see kohort demo --console")
    if console and (lacks := [name for name in CONSOLE_PACKAGES if find_spec(name) is None]):
        fail(f"demo --console needs the package {lacks[0]}; run: pip install 'kohort[demo,console]'")
    try:
        passed = run(records=records, keep=keep, console=console)
    except KeyboardInterrupt:
        typer.echo("\nkohort: interrupted; everything that was started is stopped", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except ModuleNotFoundError as error:
        fail(f"the demo needs the package {error.name}; run: pip install 'kohort[demo,spark]'")
    except FAILURES as error:
        fail(f"{error}" if keep else f"{error}\nkohort: with --keep the demo leaves its logs to look at")
    if not passed:
        fail("a check of the demo failed")
