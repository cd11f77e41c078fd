"""The server's work outside of its turns, as in server/off_loop.py: a task ends unless the server dies.

Results come in any order, late or at once. One assignor is not built in. Like any plug-in it can fail, and it fails
during the time of faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kohort.broker.turn import HandedOut, TaskDone
from kohort.coordinator.assignors.check import Result, assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignment, GroupSpec
from kohort.coordinator.events import AssignmentMade, PatternsAsked, PatternsResolved, Task
from kohort.coordinator.patterns.regex import search
from kohort.simulator.world.world import Millis, World


class Plugin:
    """An assignor by another package."""

    name = "plugin"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        return dict(BUILT_IN["range"].assign(group))


ASSIGNORS = {**BUILT_IN, Plugin.name: Plugin()}


class OffLoop:
    def __init__(self, world: World, done: Callable[[TaskDone, int], None], delays_ms: Sequence[Millis]) -> None:
        """`delays_ms`: how long a task may take."""
        self._world = world
        self._done = done
        self._delays_ms = delays_ms
        self._random: Random = world.random("tasks")

    def start(self, handed_out: HandedOut, life: int) -> None:
        """`life`: the server's; a result that comes in another life is dropped."""
        done = TaskDone(handed_out.shard, self._outcome(handed_out.task))
        self._world.after(self._random.choice(self._delays_ms), self._done, done, life)

    def _outcome(self, task: Task) -> AssignmentMade | PatternsResolved:
        if isinstance(task, PatternsAsked):
            return search(task)
        result: Result = assigned(ASSIGNORS[task.assignor], task.spec)
        if task.assignor == Plugin.name and not self._world.healed and self._random.random() < 0.3:
            result = "no answer in 2000 ms"
        return task.made(result)
