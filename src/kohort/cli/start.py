"""From the flags of `kohort serve` to a running server, without typer, whose imports take as long as half a start.

`plain_start` reads what scripts and people mostly write: flags in full, each with its value. Help, mistakes, values
that look like flags: whatever else there may be is typer's to answer (`kohort.cli.serve`), which has the same flags.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kohort import __version__, compiled
from kohort.config import Config, ConfigError, load

BAD_SETTING = 2

VALUE_FLAGS = ("--data-dir", "--listeners", "--brokers", "--advertised-listeners", "--config", "--set")


def version_line() -> str:
    return f"kohort {__version__} ({compiled.running()})"


def plain_start(words: Sequence[str]) -> dict[str, Any] | None:
    """What `start` is called with; None when typer has to read the words."""
    if words[:1] != ["serve"] or os.name == "nt":  # where typer expands wildcards, as shells do elsewhere
        return None
    found: dict[str, Any] = {}
    rest = iter(words[1:])
    for word in rest:
        flag, equals, value = word.partition("=")
        if word == "--in-memory":
            found["in_memory"] = True
            continue
        if not equals:
            value = next(rest, "")
        if flag not in VALUE_FLAGS or not value or value.startswith("-"):
            return None
        if flag == "--set":
            found.setdefault("setting", []).append(value)
        elif flag == "--config":
            found["config"] = Path(value)
        elif flag != "--brokers":
            found[flag[2:].replace("-", "_")] = value
        elif value.isascii() and value.isdigit() and len(value) < 5:
            found["brokers"] = int(value)
        else:
            return None
    return found


def start(
    *,
    data_dir: str | None = None,
    in_memory: bool = False,
    listeners: str | None = None,
    brokers: int | None = None,
    advertised_listeners: str | None = None,
    config: Path | None = None,
    setting: list[str] | None = None,
) -> int:
    """Serve until the server ends. Returns the exit code."""
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
        print(f"kohort: {error}", file=sys.stderr, flush=True)
        return BAD_SETTING
    gc.disable()  # until the server is ready: see there
    from kohort.server.serve import run

    return run(chosen)


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
