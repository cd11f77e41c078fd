"""`kohort serve`: flags to a configuration, and the server's process."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from kohort.config import SETTINGS, Config, ConfigError, load

BAD_SETTING = 2

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog="Any setting, by Kafka's property name, comes from --config, from the environment "
    "(KOHORT_NUM_PARTITIONS=6), from --set, or from the flag; the later one wins. "
    "Exit codes: 0 stopped by a signal, 2 wrong usage or setting, 69 cannot listen on an address, "
    "70 a bug, 74 the data directory or its disk failed."
)
def serve(
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of the data; made when missing.")
    ] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Keep everything in memory, nothing on disk.")] = False,
    listeners: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,...", help="Where to listen, one a broker; port 0 picks a free one."),
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(help="Brokers to present; a single listener then stands for consecutive ports.")
    ] = None,
    advertised_listeners: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT],...", help="What clients are told instead of the listeners.")
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
    flags = {
        "data.dir": data_dir,
        "listeners": listeners,
        "brokers": None if brokers is None else str(brokers),
        "advertised.listeners": advertised_listeners,
    }
    try:
        chosen = chosen_config(
            config, setting or [], {name: text for name, text in flags.items() if text is not None}, in_memory
        )
    except ConfigError as error:
        typer.echo(f"kohort: {error}", err=True)
        raise typer.Exit(BAD_SETTING) from None
    from kohort.server.serve import run

    sys.exit(run(chosen))


def chosen_config(file: Path | None, settings: list[str], flags: dict[str, str], in_memory: bool) -> Config:
    """Raises ConfigError."""
    overrides: dict[str, str] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set takes name=value, not {text!r}")
        overrides[name.strip()] = value
    overrides.update(flags)
    if in_memory:
        if "data.dir" in overrides:
            raise ConfigError("--in-memory and a data directory exclude each other")
        overrides["data.dir"] = ""
    else:
        if "data.dir" in overrides and not overrides["data.dir"].strip():
            raise ConfigError("data.dir is empty; --in-memory keeps everything in memory")
    found = load(overrides, file=file)
    if not found.data_dir and not in_memory:
        found = load({**overrides, "data.dir": str(default_data_dir())}, file=file)
    return found


def default_data_dir() -> Path:
    """The user's data directory, as the system has it."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "kohort"
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_DATA_HOME")
    return Path(base) / "kohort" if base else Path.home() / ".local" / "share" / "kohort"


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
