"""The assignors by name: a plain mapping that is passed to its users; there is no global one.

Plug-ins are found and imported at the edge (`server/assignor_plugins.py`). This module decides which of them are valid:
a plug-in's `name` must be that of its entry point and not that of a built-in assignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kohort.coordinator.assignors.lag import LagAssignor
from kohort.coordinator.assignors.rack import RackAssignor
from kohort.coordinator.assignors.range import RangeAssignor
from kohort.coordinator.assignors.spec import Assignor
from kohort.coordinator.assignors.uniform import UniformAssignor

BUILT_IN: Mapping[str, Assignor] = {
    assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor(), RackAssignor(), LagAssignor())
}
"""In order of preference: the first one serves groups that choose none."""


def with_plugins(plugins: Mapping[str, object]) -> tuple[Mapping[str, Assignor], tuple[str, ...]]:
    """The built-in assignors with the valid plug-ins; and why the other plug-ins are refused."""
    assignors = dict(BUILT_IN)
    refusals = []
    for name, plugin in sorted(plugins.items()):
        unfit = _unfit(name, plugin)
        if unfit is None:
            assignors[name] = cast(Assignor, plugin)
        else:
            refusals.append(f"assignor {name}: {unfit}")
    return assignors, tuple(refusals)


def _unfit(name: str, plugin: object) -> str | None:
    if name in BUILT_IN:
        return "this is the name of a built-in assignor"
    try:
        own_name, assign = getattr(plugin, "name", None), getattr(plugin, "assign", None)
    except Exception as error:  # an attribute may be a property with code of the plug-in
        return f"it cannot be asked for its name: {type(error).__name__}: {error}"
    if own_name != name:
        return "its name is not that of its entry point"
    if not callable(assign):
        return "it has no method assign(group)"
    return None
