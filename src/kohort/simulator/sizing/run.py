"""One run: the groups form and settle, then the point's pattern is played, until nothing changes any more.

Figures count from the settling on. The run ends when all scripts are over and no group has changed for a while, long
enough for all pending events (sessions, intervals, gradual hand-overs). A group that is incomplete then is reported as
not settled, with its figures.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.config import Config
from kohort.coordinator.settings.group_settings import HOLD_UNTIL
from kohort.simulator.actors.actor import Actor
from kohort.simulator.actors.operator import alter_request
from kohort.simulator.actors.workload import create_request
from kohort.simulator.plan import Faults, Plan
from kohort.simulator.sizing.board import Board, Tally
from kohort.simulator.sizing.classic_worker import ClassicWorker
from kohort.simulator.sizing.consumer_worker import ConsumerWorker
from kohort.simulator.sizing.meter import Meter
from kohort.simulator.sizing.patterns import SCRIPTS, Script, Stage, misfortunes
from kohort.simulator.sizing.point import CONSUMER, Point, normal
from kohort.simulator.sizing.topics import Topics
from kohort.simulator.sizing.worker import Worker
from kohort.simulator.world.network import Link
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import START_MS, Millis, World
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import Storage

FORM_WITHIN_MS = 600_000
SETTLE_MS = (20_000, 26_000)
"""Time without a change before figures count: by then clients are idle, and heartbeats are spread over the interval."""
CALM_MS = 10_000
AT_MOST_MS = 7_200_000
"""After the scripts."""
LOOK_EVERY_MS = 500
TASK_MS = 20
"""Duration of work outside of the coordinator's turns."""
NO_LIMIT = sys.maxsize
SUMMED = ("paused_ms", "partitions_paused", "twice_ms", "repeated_ms", "moves", "needed_moves", "resumed")
"""Figures that are sums over the groups."""


class DidNotForm(RuntimeError):
    """A group was incomplete after ten minutes: the point is impossible, or there is a bug."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The figures of one run. Times are virtual milliseconds, except `cpu_ms`."""

    measured_ms: Millis
    paused_ms: int
    """Partition-milliseconds without a member that works on the partition."""
    longest_pause_ms: Millis
    partitions_paused: int
    twice_ms: int
    repeated_ms: int
    moves: int
    needed_moves: int
    resumed: int
    """Partitions that paused and continued with the same member."""
    disturbances: int
    stable_ms: float
    """Mean time from a disturbance to the last change that followed it."""
    stable_max_ms: Millis
    rebalances: int
    """New generations, or new epochs of a consumer group."""
    requests: int
    heartbeats: int
    records: int
    record_bytes: int
    sent_bytes: int
    settled: bool
    digest: str
    """The digest of all bytes that the server sent."""
    cpu_ms: float
    """Processor time of the coordinator, in real time: it varies between runs."""
    state_bytes: int
    """Real memory of the coordinator's durable state at the end, for the pattern `steady`; else 0."""


def run(point: Point, seed: int = 0, script: Callable[[Stage], Script] | None = None) -> Measures:
    """`script` is played in place of the point's pattern. Raises BadPoint, and DidNotForm."""
    return _Run(normal(point), seed, script).measures()


class _Group:
    """A group as a stage for its script."""

    def __init__(self, run: _Run, name: str) -> None:
        self._run = run
        self.name = name
        self.world = run.world
        self.point = run.point
        self.random: Random = run.world.random(f"group/{name}")
        self.board = Board(run.world, run.point.partitions)
        self.workers: list[Worker] = []
        for _ in range(run.point.members):
            self.newcomer()

    def newcomer(self) -> Worker:
        kind = ConsumerWorker if self.point.protocol == CONSUMER else ClassicWorker
        run, number = self._run, len(self.workers)
        worker = kind(self.world, run.process, self.point, run.topics, self.board, self.name, number)
        self.workers.append(worker)
        return worker

    def disturb(self) -> None:
        self.board.disturbed()

    def hold(self, until_ms: Millis) -> None:
        value = str(self._run.process.clock() + until_ms) if until_ms else None
        self._run.admin.set_config(self.name, HOLD_UNTIL, value)

    def fail_over(self, down_ms: Millis) -> None:
        self._run.process.crash("its broker fails", down_ms)

    def is_whole(self) -> bool:
        return self.board.complete and all(not worker.wanted or worker.content for worker in self.workers)

    def changed_at(self) -> Millis:
        return self.board.changes[-1] if self.board.changes else 0

    def generation(self) -> int:
        return max((worker.epoch() for worker in self.workers if worker.lives), default=0)


class _Admin(Actor):
    """Creates the topics and sets the groups' configs."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world, process, Faults(), "admin")
        self.running = True

    def create(self, sizes: dict[str, int]) -> None:
        self._link().ask(create_request(sizes), 7, "topics")

    def set_config(self, group: str, name: str, value: str | None) -> None:
        self._link().ask(alter_request(group, {name: value}), 1, "config")

    def _link(self) -> Link:
        return self.connect(self.process.config.broker_id)

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        link.close()
        results = response.topics if tag == "topics" else response.responses
        for result in results:
            if result.error_code:
                raise RuntimeError(f"{tag}: {result.error_message}")


class _Run:
    def __init__(self, point: Point, seed: int, script: Callable[[Stage], Script] | None) -> None:
        self.point = point
        self._script = script or SCRIPTS[point.pattern]
        self.world = World(seed)
        self.world.latency_ms = point.latency_ms
        self.meter = Meter()
        plan = Plan(seed, 1, _config(point), Faults(), (), 0, task_delays_ms=(TASK_MS,))
        self.process = Process(self.world, plan)
        self.process.observer = self.meter
        self.topics = Topics(point.topics, point.partitions)
        self.admin = _Admin(self.world, self.process)
        self._random = self.world.random("run")
        self._scripts = 0
        """Scripts that are not over."""
        self._over_at: Millis = 0
        """When the last script ended."""
        self.groups: list[_Group] = []

    def measures(self) -> Measures:
        self._form()
        began = self.world.now
        generations = {group.name: group.generation() for group in self.groups}
        self.meter.reset()
        for group in self.groups:
            group.board.begin()
            self._play(group)
        self._until_over()
        rebalances = sum(group.generation() - generations[group.name] for group in self.groups)
        return self._result(self.world.now - began, rebalances)

    # -- the course of the run

    def _form(self) -> None:
        world = self.world
        self.process.start()
        world.run(10, NO_LIMIT)
        self.admin.create(self.topics.sizes)
        world.run(1_000, NO_LIMIT)
        assert self.process.broker is not None
        self.topics.learn_ids(self.process.broker)
        self.groups = [_Group(self, f"group-{number}") for number in range(self.point.groups)]
        for group in self.groups:
            for worker in group.workers:
                world.after(self._random.randint(0, self.point.interval_ms), worker.come)
        world.run(world.now + self.point.interval_ms, NO_LIMIT)
        settle_ms = self._random.randint(*SETTLE_MS)
        scattered = not self.point.aged
        while not (scattered and self._is_calm(settle_ms)):
            if not scattered and self._is_calm(LOOK_EVERY_MS):
                scattered = True
                for group in self.groups:
                    for worker in group.workers:
                        worker.scatter()
            if world.now > FORM_WITHIN_MS:
                raise DidNotForm(f"{self.point.label()}, {self.point.members} members: not whole after ten minutes")
            world.run(world.now + LOOK_EVERY_MS, NO_LIMIT)

    def _is_calm(self, for_ms: Millis) -> bool:
        world = self.world
        if world.now - self._over_at < for_ms:
            return False
        return all(world.now - group.changed_at() >= for_ms and group.is_whole() for group in self.groups)

    def _play(self, group: _Group) -> None:
        point = self.point
        self._scripts += 1
        # Groups start at different times: they are independent.
        delay = group.random.randint(0, 5_000) if point.groups > 1 else 0
        self.world.after(delay, self._on, self._until_end(self._script(group)))
        for rate, strike in ((point.crashes_per_hour, Worker.kill), (point.restarts_per_hour, Worker.go)):
            if rate:
                self._on(misfortunes(group, rate, strike))

    def _until_end(self, script: Script) -> Iterator[Millis]:
        yield from script
        self._scripts -= 1
        self._over_at = self.world.now

    def _on(self, script: Script) -> None:
        """The script's next step, unless all is over."""
        wait = next(script, None)
        if wait is not None:
            self.world.after(wait, self._next, script)

    def _next(self, script: Script) -> None:
        if self._scripts:
            self._on(script)

    def _until_over(self) -> None:
        world, point = self.world, self.point
        while self._scripts:
            world.run(world.now + LOOK_EVERY_MS, NO_LIMIT)
        if point.pattern == "steady" and not point.crashes_per_hour and not point.restarts_per_hour:
            return
        calm_ms = CALM_MS + 2 * point.interval_ms + (point.handover_interval_ms if point.handover else 0)
        if point.crashes_per_hour:
            calm_ms += point.session_ms
        end = world.now + AT_MOST_MS
        while world.now < end and not self._is_calm(calm_ms):
            world.run(world.now + LOOK_EVERY_MS, NO_LIMIT)

    # -- the figures

    def _result(self, measured_ms: Millis, rebalances: int) -> Measures:
        tallies: list[Tally] = [
            group.board.tally(worker.name for worker in group.workers if worker.wanted) for group in self.groups
        ]
        stable = [took for tally in tallies for took in tally.stable_ms]
        return Measures(
            measured_ms=measured_ms,
            longest_pause_ms=max(tally.longest_pause_ms for tally in tallies),
            disturbances=len(stable),
            stable_ms=round(sum(stable) / len(stable), 1) if stable else 0.0,
            stable_max_ms=max(stable, default=0),
            rebalances=rebalances,
            settled=all(tally.settled for tally in tallies),
            digest=self.world.digest(),
            state_bytes=self._state_bytes() if self.point.pattern == "steady" else 0,
            **asdict(self.meter.load()),
            **{name: sum(getattr(tally, name) for tally in tallies) for name in SUMMED},
        )

    def _state_bytes(self) -> int:
        """Memory of a broker that starts from this run's log, minus that of one that starts from an empty log."""
        return _allocated(self.process.config, self.process.disk.storage) - _allocated(
            self.process.config, MemoryStorage()
        )


def _allocated(config: Config, storage: Storage) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        endpoints = [Endpoint("127.0.0.1", 9092)]
        broker = Broker(config, storage, now=START_MS, random=Random(0), endpoints=endpoints).load()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] if broker else 0
    finally:
        tracemalloc.stop()


def _config(point: Point) -> dict[str, Any]:
    """The server's settings, with the limits that the point needs."""
    return {
        "offsets_topic_num_partitions": point.shards,
        "group_heartbeat_hold_enable": point.pushed,
        "group_min_session_timeout_ms": min(point.session_ms, 6_000),
        "group_consumer_session_timeout_ms": point.session_ms,
        "group_consumer_min_session_timeout_ms": min(point.session_ms, 45_000),
        "group_consumer_max_session_timeout_ms": max(point.session_ms, 60_000),
        "group_consumer_heartbeat_interval_ms": point.interval_ms,
        "group_consumer_min_heartbeat_interval_ms": min(point.interval_ms, 5_000),
        "group_consumer_max_heartbeat_interval_ms": max(point.interval_ms, 15_000),
        "group_consumer_handover_max_partitions": point.handover,
        "group_consumer_handover_interval_ms": point.handover_interval_ms,
        "max_partitions": max(100_000, point.partitions + 1_000),
    }
