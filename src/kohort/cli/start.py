"""Starts a server from the flags of `kohort serve`."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from kohort.config import Config, ConfigError, load

BAD_SETTING = 2


def start(
    *,
    data_dir: str | None = None,
    storage: str | None = None,
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
        "storage": storage,
        "listeners": listeners,
        "brokers": brokers,
        "advertised.listeners": advertised_listeners,
    }
    given = {name: str(value) for name, value in flags.items() if value is not None}
    try:
        chosen = chosen_config(config, setting or [], given, in_memory)
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
        if "storage" in overrides:
            raise ConfigError("--in-memory and --storage exclude each other")
        if "data.dir" in overrides:
            raise ConfigError("--in-memory and a data directory exclude each other")
        overrides["data.dir"] = ""
    elif "data.dir" in overrides and not overrides["data.dir"].strip():
        raise ConfigError("data.dir is empty; --in-memory keeps everything in memory")
    found = load(overrides, file=file)
    if not found.data_dir and not found.storage and not in_memory:
        found = load({**overrides, "data.dir": str(default_data_dir())}, file=file)
    return found


def default_data_dir() -> Path:
    """The user's data directory, as the system has it."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "kohort"
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_DATA_HOME")
    return Path(base) / "kohort" if base else Path.home() / ".local" / "share" / "kohort"
