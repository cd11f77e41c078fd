"""Patterns of deployments and failures as scripts: each yields the milliseconds until its next step.

A step that removes or adds something is a disturbance; the board times it to the last change that follows. Processes of
one step do not act at the same time: each is late by up to JITTER_MS, at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Protocol

from kohort.simulator.sizing.point import Point
from kohort.simulator.sizing.worker import Worker
from kohort.simulator.world.world import Millis, World

JITTER_MS = 300
HOLD_FOR_MS = 3_600_000
FLAP_UP_MS = 20_000
"""How long a flapping member runs."""

Script = Iterator[Millis]


class Stage(Protocol):
    """The operations of a script."""

    world: World
    point: Point
    random: Random
    workers: list[Worker]

    def disturb(self) -> None: ...

    def newcomer(self) -> Worker: ...

    def hold(self, until_ms: Millis) -> None:
        """Freeze the group for this long; 0 ends the freeze."""

    def fail_over(self, down_ms: Millis) -> None: ...


def _each(stage: Stage, workers: Sequence[Worker], act: Callable[[Worker], None]) -> None:
    stage.disturb()
    _scattered(stage, workers, act)


def _scattered(stage: Stage, workers: Sequence[Worker], act: Callable[[Worker], None]) -> None:
    for worker in workers:
        stage.world.after(stage.random.randint(0, JITTER_MS) if len(workers) > 1 else 0, act, worker)


def _rolling(stage: Stage) -> Script:
    point = stage.point
    for first in range(0, len(stage.workers), point.batch_size):
        batch = stage.workers[first : first + point.batch_size]
        _each(stage, batch, Worker.go)
        yield max(point.restart_ms, JITTER_MS + 1)
        _each(stage, batch, Worker.come)
        yield point.pause_ms


def _rolling_hold(stage: Stage) -> Script:
    stage.hold(HOLD_FOR_MS)
    yield 500
    yield from _rolling(stage)
    stage.disturb()
    stage.hold(0)


def _stop_start(stage: Stage) -> Script:
    everybody = list(stage.workers)
    _each(stage, everybody, Worker.go)
    yield max(stage.point.restart_ms, JITTER_MS + 1)
    _scattered(stage, everybody, Worker.come)  # as part of the same disturbance


def _scale_out(stage: Stage) -> Script:
    for _ in range(stage.point.affected):
        _each(stage, [stage.newcomer()], Worker.come)
        yield stage.point.pause_ms


def _scale_in(stage: Stage) -> Script:
    for worker in stage.workers[-stage.point.affected :]:
        _each(stage, [worker], Worker.go)
        yield stage.point.pause_ms


def _crash(stage: Stage) -> Script:
    point = stage.point
    struck = stage.random.sample(stage.workers, point.affected)
    stage.disturb()
    for worker in struck:
        worker.kill()
    yield max(point.restart_ms, 1)
    _scattered(stage, struck, Worker.come)
    yield point.session_ms


def _zone(stage: Stage) -> Script:
    stage.disturb()
    for worker in stage.random.sample(stage.workers, stage.point.affected):
        worker.kill()
    yield stage.point.session_ms


def _flap(stage: Stage) -> Script:
    [flapping] = stage.random.sample(stage.workers, 1)
    for _ in range(max(1, stage.point.observe_ms // (FLAP_UP_MS + stage.point.restart_ms))):
        stage.disturb()
        flapping.kill()
        yield max(stage.point.restart_ms, 1)
        flapping.come()
        yield FLAP_UP_MS
    yield stage.point.session_ms


def _failover(stage: Stage) -> Script:
    stage.disturb()
    stage.fail_over(stage.point.down_ms)
    yield stage.point.down_ms


def _steady(stage: Stage) -> Script:
    yield stage.point.observe_ms


SCRIPTS: dict[str, Callable[[Stage], Script]] = {
    "steady": _steady,
    "rolling": _rolling,
    "rolling-static": _rolling,
    "rolling-hold": _rolling_hold,
    "stop-start": _stop_start,
    "scale-out": _scale_out,
    "scale-in": _scale_in,
    "crash": _crash,
    "crash-static": _crash,
    "zone": _zone,
    "flap": _flap,
    "failover": _failover,
}


def misfortunes(stage: Stage, per_hour: float, strike: Callable[[Worker], None]) -> Script:
    """From time to time it kills a running member, whose process then starts again. It never ends by itself."""
    while True:
        yield max(1, round(stage.random.expovariate(per_hour / 3_600_000)))
        running = [worker for worker in stage.workers if worker.running and worker.wanted]
        if running:
            victim = stage.random.choice(running)
            stage.disturb()
            strike(victim)
            stage.world.after(max(1, stage.point.restart_ms), victim.come)
