"""The `kohort` command: a table of sub-commands, each in a module that is imported only when it is asked for.

So `kohort topics list` does not wait for the server's imports, nor `kohort --help` for anybody's. A module of the
table holds a Typer application in `app`: a group where it has several commands, the command itself where it has one.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kohort import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("kohort.cli.serve", "Run a broker and group coordinator."),
    "topics": ("kohort.cli.topics", "Create, list, describe and delete topics."),
    "groups": ("kohort.cli.groups", "List and describe consumer groups."),
    "produce": ("kohort.cli.produce", "Produce one record a line."),
    "consume": ("kohort.cli.consume", "Print the records of a topic."),
}
"""Name: module, and the line that `kohort --help` shows without importing it."""

EPILOG = "Exit codes: 0 done, 1 failed or not found, 2 wrong usage, 3 cannot reach the cluster."


class LazyCommands(TyperGroup):
    """The commands of the table, imported on use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return typer.main.get_command(importlib.import_module(COMMANDS[cmd_name][0]).app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kohort {__version__}")
        raise typer.Exit


@app.callback()
def kohort(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Kafka's groups, for Python and Spark, without a JVM."""


def main() -> None:
    """The entry point of the `kohort` script."""
    app()
