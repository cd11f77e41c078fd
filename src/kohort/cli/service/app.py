"""`kohort service`: prints a unit of systemd that runs a server."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.configs.words import is_secret
from kohort.cli.option_objects import App, pairs
from kohort.cli.service.unit import OF_STATE, unit
from kohort.config import Config, ConfigError, load

app = App(no_args_is_help=True)


@app.callback()
def service() -> None:
    """Print a unit of systemd for a server (docs/how-to/service.md)."""


@app.command("print")
def print_unit(
    user: Annotated[str, typer.Option(metavar="NAME", help="The user of the process; it must exist.")] = "kohort",
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the data.")] = OF_STATE / "kohort",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .properties or .toml file of settings, for example secrets.")
    ] = None,
    listeners: Annotated[str | None, typer.Option(metavar="HOST:PORT,...", help="Where to listen.")] = None,
    advertised_listeners: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT],...", help="Addresses for clients, instead of the listeners.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")
    ] = None,
    program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The kohort program [default: this one].", show_default=False)
    ] = None,
) -> None:
    """Print a unit for systemd 247 or later. The settings are checked; nothing is installed."""
    given = pairs("--set", setting)
    for name, value in given.items():
        if is_secret(name, None):
            raise typer.BadParameter(f"{name} would be readable in the unit; put it into the file of --config")
        if not value.isprintable():
            raise typer.BadParameter(f"{name} has a line break; put it into the file of --config")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", user):
        raise typer.BadParameter(f"{user!r} is no user name", param_hint=["--user"])
    for flag, path in (("--data-dir", data_dir), ("--config", config), ("--program", program)):
        if path is not None and (not path.is_absolute() or not str(path).isprintable()):
            raise typer.BadParameter(f"{str(path)!r} is not an absolute path", param_hint=[flag])
    given |= {
        name: value
        for name, value in (("listeners", listeners), ("advertised.listeners", advertised_listeners))
        if value is not None
    }
    found = _checked(config, given)
    flags = ["serve", "--data-dir", str(data_dir), *(["--config", str(config)] if config is not None else [])]
    for name, value in given.items():
        flags += ["--set", f"{name}={value}"]
    typer.echo(unit(user, [str(program or _own_program()), *flags], data_dir, found.max_connections), nl=False)


def _checked(config: Path | None, given: dict[str, str]) -> Config:
    """The file may be made later; if it is there, it is checked too."""
    try:
        return load(given, file=config if config is not None and config.exists() else None, environ={})
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _own_program() -> Path:
    beside = Path(sys.executable).parent / "kohort"
    found = beside if beside.exists() else Path(shutil.which("kohort") or beside)
    return found.absolute()
