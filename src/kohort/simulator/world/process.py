"""The server's process: the real broker and the real schedule of turns, on a simulated clock and disk.

The process drives `TurnSchedule` (broker/turn_schedule.py), as server/turns.py does. A crash drops the broker, the
schedule and all connections; the next start replays the disk, and its wall clock may have jumped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.broker.turn import Arrived, ConnectionId, ReadDone, Release, Send, Shutdown, TaskDone, Turn
from kohort.broker.turn_schedule import LOOK_MS, TurnObserver, TurnSchedule
from kohort.config import Config
from kohort.coordinator.events import ServerPaused
from kohort.simulator.checks.beliefs import BelievingConsumer
from kohort.simulator.plan import Plan
from kohort.simulator.world.disk import Disk, Fate
from kohort.simulator.world.network import Answer, Asked, Link
from kohort.simulator.world.off_loop import ASSIGNORS, OffLoop
from kohort.simulator.world.slow_reads import SlowReads
from kohort.simulator.world.world import START_MS, Millis, Violation, World
from kohort.storage.protocol import Lease

PORT = 9092
TURN_REQUESTS = (1, 2, 5, 1_000, 1_000)
"""How often a turn is asked whether its time is up, until it is."""


class ProcessObserver(TurnObserver, Protocol):
    """Sees all input and output of the server: the onlooker, or a meter."""

    def started(self, broker: Broker, links: Mapping[ConnectionId, Link]) -> None:
        """A new life has loaded its logs. `links` are its connections; the dictionary changes later."""

    def died(self) -> None: ...

    def asked(self, asked: Asked) -> None:
        """A request arrived for the next turn, as its sender knows it."""

    def answers(self, releases: Iterable[Release]) -> list[Answer]:
        """Match answers to clients and requests."""

    def took(self, consumer: BelievingConsumer) -> None:
        """A member of a consumer group takes partitions, between two turns."""


class Process:
    observer: ProcessObserver
    """Set before the start."""

    def __init__(self, world: World, plan: Plan) -> None:
        listeners = ",".join(f"127.0.0.1:{PORT + index}" for index in range(plan.brokers))
        self.config = Config(brokers=plan.brokers, listeners=listeners, **plan.config)
        self.world = world
        self.disk = Disk(plan.faults, world.random("disk"))
        self.broker: Broker | None = None
        self.links: dict[ConnectionId, Link] = {}
        self.half_open: list[Link] = []
        self.lives = 0
        self.paused_until: Millis = 0
        self._plan = plan
        self._requests_left = 0
        """Of the turn's budget."""
        self._off_loop = OffLoop(world, self._done, plan.task_delays_ms)
        self._reads = SlowReads(world, self.disk.storage, self._done, plan.failed_reads)
        self._random = world.random("process")
        self._schedule: TurnSchedule
        self._lease = Lease(0)
        self._timer_at: Millis | None = None
        self._clock_offset: Millis = 0
        self._last_connection = 0
        self._stop_after_turn = False
        self._measured_ns = 0
        self._random_of_quotas = world.random("quotas")

    @property
    def up(self) -> bool:
        return self.broker is not None

    def next_connection(self) -> ConnectionId:
        self._last_connection += 1
        return ConnectionId(self._last_connection)

    def clock(self) -> Millis:
        return START_MS + self.world.now + self._clock_offset

    # -- life and death

    def start(self) -> None:
        if self.broker is not None:
            return
        self.lives += 1
        faults = self._plan.faults
        if self.lives > 1 and faults.clock_step and self._random.random() < faults.clock_step:
            self._clock_offset += self._random.randrange(-60_000, 60_000)
            self.world.tell("server", f"its clock is off by {self._clock_offset / 1000:g} s")
        self.broker = Broker(
            self.config,
            self.disk.storage,
            now=self.clock(),
            random=self.world.random(f"broker/{self.lives}"),
            endpoints=[Endpoint("127.0.0.1", PORT + index) for index in range(self._plan.brokers)],
            assignors=ASSIGNORS,
            stopwatch=self._stopwatch,
            parks_reads=self._plan.parks_reads,
        )
        transactions = self.broker.state.transactions
        transactions.settings = msgspec.structs.replace(transactions.settings, first_epoch=self._plan.first_epoch)
        transactions.endings.splits = lambda ending: self._random.random() < self._plan.two_phases
        self._lease = self.disk.storage.acquire()
        self.broker.load()
        self.world.tell("server", f"starts, life {self.lives}")
        self._stop_after_turn = False
        self._timer_at = None
        self._schedule = TurnSchedule(self.broker, self, (self.observer,))
        self.observer.started(self.broker, self.links)
        self._schedule.wake()
        self.world.after(LOOK_MS, self._look, self.lives)

    def _stopwatch(self) -> int:
        self._measured_ns += self._random_of_quotas.choice(self._plan.request_ms) * 1_000_000
        return self._measured_ns

    def crash(self, why: str, down_ms: Millis | None = None) -> None:
        """End the process at once, for `down_ms`; commits that were not durable are lost."""
        if self.broker is None:
            return
        self.world.tell("server", f"dies: {why}")
        self.broker = None
        self._schedule.stop()
        links = list(self.links.values())
        self.links.clear()
        for link in links:
            link.outstanding.clear()
            link.disconnect()
        self.observer.died()
        if self.world.scribe is not None:
            self.world.scribe.happened(self.world.now, "restart")
        if down_ms is None:
            down_ms = 10 if self.world.healed else self._random.choice((1, 50, 500, 3_000, 9_000))
        self.world.after(down_ms, self.start)

    def pause(self, milliseconds: Millis) -> None:
        """The process stands still, while requests arrive and the disk goes on."""
        self.world.tell("server", f"is paused for {milliseconds} ms")
        self.paused_until = max(self.paused_until, self.world.now + milliseconds)

    def stop(self) -> None:
        """An orderly stop: the broker answers parked requests, then the process ends."""
        if self.broker is not None and not self._stop_after_turn:
            self._stop_after_turn = True
            self.arrive(Shutdown())

    def heal(self) -> None:
        self.disk.healed = True
        self.paused_until = 0
        for link in self.half_open:
            link.heal()
        self.start()
        self.world.after(0, self._begin, self._schedule)

    # -- turns

    def arrive(self, event: Arrived, asked: Asked | None = None) -> None:
        if self.broker is not None:
            if asked is not None:
                self.observer.asked(asked)
            self._schedule.arrive(event)

    def begin_soon(self) -> None:
        self.world.at(self.paused_until, self._begin, self._schedule)

    def time_is_up(self) -> int:
        self._requests_left -= 1
        return self._requests_left < 0

    def _begin(self, schedule: TurnSchedule) -> None:
        """`schedule` may belong to a former life; then it has stopped."""
        if self.paused_until > self.world.now:
            self.world.at(self.paused_until, self._begin, schedule)
            return
        self._requests_left = self._random.choice(TURN_REQUESTS)
        try:
            schedule.begin(self.clock())
        except Violation:
            raise
        except Exception as error:
            raise Violation("the server never fails", f"{type(error).__name__}: {error}") from error

    def commit(self, turn: Turn) -> None:
        fate, sync_ms = self.disk.next_commit()
        self.world.after(sync_ms, self._committed, turn, fate, self.lives)

    def _committed(self, turn: Turn, fate: Fate, life: int) -> None:
        if self.broker is None or life != self.lives:
            return
        if self.paused_until > self.world.now:
            self.world.at(self.paused_until, self._committed, turn, fate, life)
            return
        if fate in (Fate.TORN, Fate.FAILED):
            self.crash(fate.value)
            return
        try:
            self.disk.storage.commit(turn.operations, self._lease)
        except Exception as error:
            raise Violation("a commit makes sense", f"{type(error).__name__}: {error}") from error
        if fate is Fate.UNHEARD:
            self.observer.committed(turn)
            self.crash(fate.value)
            return
        self._schedule.committed()

    def release(self, turn: Turn) -> None:
        for link, asked, response in self.observer.answers(turn.releases):
            link.release(asked, response)
        for release in turn.releases:
            if isinstance(release, Send):
                self.world.note(release.whole)
            elif (link_ := self.links.get(release.connection)) is not None:
                self.world.tell(link_.owner.name, f"is disconnected: {release.reason}")
                link_.disconnect()
        for handed_out in turn.tasks:
            self._off_loop.start(handed_out, self.lives)
        for read in turn.reads:
            self._reads.start(read, self.lives)
        if self._stop_after_turn:
            self.world.after(0, self._end_if_stopped, self.lives)

    def _end_if_stopped(self, life: int) -> None:
        if self.broker is None or life != self.lives:
            return
        if not self.broker.busy and self.broker.next_deadline() is None:
            self.crash("it was told to stop")

    def _done(self, done: TaskDone | ReadDone, life: int) -> None:
        if life == self.lives:
            self.arrive(done)

    # -- pauses

    def _look(self, life: int) -> None:
        if self.broker is None or life != self.lives:
            return
        if self.paused_until > self.world.now:
            self.world.at(self.paused_until, self._look, life)
            return
        self.world.after(LOOK_MS, self._look, life)
        self._schedule.look(self.clock())

    def paused(self, pause: ServerPaused) -> None:
        self.world.tell("server", f"{pause.why}: its members get {pause.lost_ms} ms")

    # -- the one timer

    def wake_at(self, deadline: Millis) -> None:
        at = self._timer_at = deadline - START_MS - self._clock_offset
        self.world.at(at, self._fire, at, self.lives)

    def _fire(self, at: Millis, life: int) -> None:
        if life == self.lives and self._timer_at == at and self.broker is not None:
            self._timer_at = None
            self._schedule.deadline_reached()
