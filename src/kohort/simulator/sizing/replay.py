"""A replay: the changes of a real group's members, in their order and at their distances, as the script of a run.

The point says how the group is run: its protocol, and whether its members are static (the pattern `rolling-static`).
So the same changes can be played with other protocols. Members that come later than the first change are new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kohort.simulator.sizing.patterns import Script, Stage
from kohort.simulator.sizing.point import Point
from kohort.simulator.sizing.run import Measures, run
from kohort.simulator.sizing.worker import Worker
from kohort.simulator.world.world import Millis


@dataclass(frozen=True, slots=True)
class Change:
    """`member` is its number; `after_ms` is the time since the change before. A static member that `leaves` does not
    tell the coordinator, as real ones do not."""

    after_ms: Millis
    what: Literal["joins", "leaves", "dies"]
    member: int


ACTIONS: Mapping[str, Callable[[Worker], None]] = {"joins": Worker.come, "leaves": Worker.go, "dies": Worker.kill}


def replay(point: Point, changes: Sequence[Change], slow_ms: Mapping[int, Millis], seed: int = 0) -> Measures:
    """Play the changes in a group of `point.members` members. `slow_ms` is how long a member needs to give partitions
    up, by its number. Raises BadPoint, DidNotForm."""

    def slow_down(worker: Worker, number: int) -> None:
        if number in slow_ms:
            worker.point = replace(worker.point, revoke_ms=slow_ms[number])

    def script(stage: Stage) -> Script:
        for number, worker in enumerate(stage.workers):
            slow_down(worker, number)
        for change in changes:
            yield max(change.after_ms, 1)
            while change.member >= len(stage.workers):
                slow_down(stage.newcomer(), len(stage.workers) - 1)
            stage.disturb()
            ACTIONS[change.what](stage.workers[change.member])
        if any(change.what == "dies" for change in changes[-1:]):
            yield stage.point.session_ms

    return run(point, seed, script)
