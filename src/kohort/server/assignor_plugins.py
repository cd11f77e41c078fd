"""Assignors that other packages bring: found by their entry points, imported, made.

A package names its assignor in its pyproject.toml:

    [project.entry-points."kohort.assignors"]
    alphabetical = "my_package.assignor:Alphabetical"

The value is an assignor, or a class that makes one without arguments. Importing runs foreign code, and that is why it
is done here, once, at a start, and not in the core. A plug-in that fails is logged and left out; the server starts
without it. The core checks that the object is an assignor (`coordinator/assignors/registry.py`).

Python's own search for entry points takes a start longer than reading the data directory does, its imports most of all.
So it is asked only if the files that it would read name the group.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from kohort.config import OF_PACKAGES, Config, ConfigError, assignor_names
from kohort.coordinator.assignors.registry import BUILT_IN, with_plugins
from kohort.coordinator.assignors.spec import Assignor

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "kohort.assignors"


def installed() -> Sequence[EntryPoint]:
    """The entry points of all packages with assignors."""
    if not _may_be_some():
        return ()
    from importlib.metadata import entry_points

    return tuple(entry_points(group=GROUP))


def _may_be_some() -> bool:
    """True if a file entry_points.txt names the group, or if packages are in a place that cannot be searched for such
    files."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    for place in dict.fromkeys(sys.path):
        try:
            descriptions = [
                entry.path
                for entry in os.scandir(place or ".")
                if entry.name.lower().endswith((".dist-info", "egg-info"))
            ]
        except FileNotFoundError:
            continue
        except OSError:  # an archive
            return True
        if any(_names_group(os.path.join(description, "entry_points.txt")) for description in descriptions):
            return True
    return False


def _names_group(file: str) -> bool:
    try:
        with open(file, "rb") as text:
            return GROUP.encode() in text.read()
    except (FileNotFoundError, NotADirectoryError):
        return False


def names() -> list[str]:
    """The names of the installed assignors. Imports nothing."""
    return sorted({entry.name for entry in installed()})


def load(found: Iterable[EntryPoint] | None = None) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The object of each entry point by name, by default the installed ones; and an error for each that failed.

    If two packages use the same name, neither is loaded: the order of `sys.path` must not decide."""
    entries = sorted(installed() if found is None else found, key=lambda entry: (entry.name, entry.value))
    names = [entry.name for entry in entries]
    plugins: dict[str, object] = {}
    failures = []
    for entry in entries:
        if names.count(entry.name) > 1:
            failures.append(f"assignor {entry.name}: more than one package brings it, {entry.value} among them")
            continue
        try:
            plugin = entry.load()
            plugins[entry.name] = plugin() if isinstance(plugin, type) else plugin
        except (Exception, SystemExit) as error:
            failures.append(f"assignor {entry.name}: {entry.value} cannot be loaded: {type(error).__name__}: {error}")
    return plugins, tuple(failures)


def serving(config: Config) -> tuple[Mapping[str, Assignor], tuple[str, ...]]:
    """The assignors that group.consumer.assignors names, in its order; and why some of them cannot serve.

    Only packages that the setting names are imported, or all with its "*". Raises ConfigError for an unknown name."""
    listed = assignor_names(config)
    entries = [entry for entry in installed() if OF_PACKAGES in listed or entry.name in listed]
    plugins, failures = load(entries)
    found, refusals = with_plugins(plugins)
    others = [name for name in found if name not in BUILT_IN and name not in listed]
    chosen: dict[str, Assignor] = {}
    for name in listed:
        if name in found:
            chosen[name] = found[name]
        elif name == OF_PACKAGES:
            chosen.update((other, found[other]) for other in others)
        elif name not in {entry.name for entry in entries}:
            known = ", ".join((*BUILT_IN, *names()))
            raise ConfigError(f"group.consumer.assignors names {name!r}, but there are only {known}")
    if BUILT_IN.keys().isdisjoint(chosen):
        raise ConfigError(
            f"group.consumer.assignors must name one of {', '.join(BUILT_IN)} too, to serve where another one fails"
        )
    return chosen, failures + refusals


@cache
def plugin(name: str) -> Assignor | None:
    """A package's assignor of this name; None if it cannot serve."""
    plugins, _ = load(entry for entry in installed() if entry.name == name)
    return with_plugins(plugins)[0].get(name)
