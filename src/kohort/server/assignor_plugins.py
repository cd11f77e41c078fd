"""Assignors that other packages bring: found by their entry points, imported, made.

A package names its assignor in its pyproject.toml:

    [project.entry-points."kohort.assignors"]
    alphabetical = "my_package.assignor:Alphabetical"

The value is an assignor, or a class that makes one without arguments. Importing runs foreign code, and that is why it
is done here, once, at a start, and not in the core. What fails is told and left out; the server starts without it.
Whether what was made is an assignor is the core's to say (`coordinator/assignors/registry.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from kohort.coordinator.assignors.registry import with_plugins
from kohort.coordinator.assignors.spec import Assignor

GROUP = "kohort.assignors"


def names() -> list[str]:
    """Of what is installed; nothing is imported."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def load(found: Iterable[EntryPoint] | None = None) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The objects behind the entry points by name, those installed unless given; and what went wrong with the others.

    Two packages that use one name are a mistake that the order of `sys.path` shall not decide: neither is loaded.
    """
    entries = sorted(entry_points(group=GROUP) if found is None else found, key=lambda entry: (entry.name, entry.value))
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


@cache
def installed() -> tuple[Mapping[str, Assignor], tuple[str, ...]]:
    """The built-in assignors and those of the installed plug-ins that can serve; and why the others cannot."""
    plugins, failures = load()
    assignors, refusals = with_plugins(plugins)
    return assignors, failures + refusals
