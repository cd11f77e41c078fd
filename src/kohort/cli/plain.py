"""Command lines that are parsed without typer, whose imports take half of a start's time.

`plain_start` parses the usual form of `kohort serve`: flags in full, each with its value. All else (help, mistakes,
values that look like flags) goes to typer (`kohort.cli.serve`), which has the same flags. Every command imports this
module first, so it imports almost nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from kohort import __version__, compiled

VALUE_FLAGS = ("--data-dir", "--storage", "--listeners", "--brokers", "--advertised-listeners", "--config", "--set")


def version_line() -> str:
    return f"kohort {__version__} ({compiled.running()})"


def plain_start(words: Sequence[str]) -> dict[str, Any] | None:
    """Arguments for `kohort.cli.start.start`; None if typer has to parse the words."""
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
            from pathlib import Path

            found["config"] = Path(value)
        elif flag != "--brokers":
            found[flag[2:].replace("-", "_")] = value
        elif value.isascii() and value.isdigit() and len(value) < 5:
            found["brokers"] = int(value)
        else:
            return None
    return found
