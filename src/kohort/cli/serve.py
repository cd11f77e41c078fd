"""`kohort serve` as typer has it: help, completion, and every command line that `plain_start` does not read."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from kohort.cli.option_objects import App
from kohort.cli.start import start
from kohort.config import SETTINGS

app = App()

PORT = re.compile("--p[a-z]*t")


class ServeCommand(TyperCommand):
    """Names `--listeners` to a user who looks for an option `--port`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer does not export the class of an unknown option
            if PORT.fullmatch(getattr(error, "option_name", "")):
                error.possibilities = ["--listeners HOST:PORT"]  # type: ignore[attr-defined]
            raise


@app.command(
    cls=ServeCommand,
    epilog="Any setting, by Kafka's property name, comes from --config, from the environment "
    "(KOHORT_NUM_PARTITIONS=6), from --set, or from the flag; the later one wins. "
    "Exit codes: 0 stopped by a signal, 2 wrong usage or setting, 69 cannot listen on an address, "
    "70 a bug, 71 no memory or threads, 74 the data directory, its disk or the database failed, "
    "75 another node has taken over, or the database cannot be reached: start again.",
)
def serve(
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of the data; made when missing.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="postgresql://...",
            help="The data is in PostgreSQL instead of a directory (experimental).",
        ),
    ] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Keep everything in memory, nothing on disk.")] = False,
    listeners: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,...", help="Where to listen, one a broker; port 0 picks a free one."),
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(help="Number of brokers; a single listener then means consecutive ports.")
    ] = None,
    advertised_listeners: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT],...", help="Addresses for clients, instead of the listeners.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A .properties or .toml file of settings.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")
    ] = None,
    list_settings: Annotated[
        bool, typer.Option("--list-settings", help="Print all settings with their defaults and exit.")
    ] = False,
) -> None:
    """Run a server: a Kafka broker and group coordinator.

    Without flags it listens on 127.0.0.1:9092 and keeps its data in your data directory (the ready line names it).
    """
    if list_settings:
        typer.echo(described_settings())
        return
    code = start(
        data_dir=data_dir,
        storage=storage,
        in_memory=in_memory,
        listeners=listeners,
        brokers=brokers,
        advertised_listeners=advertised_listeners,
        config=config,
        setting=setting,
    )
    sys.exit(code)


def described_settings() -> str:
    """All settings with default and meaning, within the width of the terminal."""
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    lines = []
    for name, setting in SETTINGS.items():
        default = setting.default
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        lines.append(f"{name}={shown}")
        doc = setting.metadata["doc"]
        if setting.metadata["one_of"]:
            doc += f" ({', '.join(setting.metadata['one_of'])})"
        lines.extend(textwrap.wrap(doc, width, initial_indent="    ", subsequent_indent="    "))
    return "\n".join(lines)
