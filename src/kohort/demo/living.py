"""`kohort demo --console`: a server, records that do not end, groups whose workers come and go, and the console.

Everything is in one temporary directory, and ends with this process. The loop produces a few records, reads what the
workers say, and does what is due: a worker is started again or killed, so there is always a rebalance to look at.
"""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

from confluent_kafka import Producer

from kohort.cli.interrupt import interrupts
from kohort.client.cluster import Cluster
from kohort.demo.flights import FlightRecord, read_flights
from kohort.demo.screen import Screen
from kohort.demo.server_process import ConsoleProcess, KohortProcess, ServerProcess
from kohort.demo.worker import Options
from kohort.demo.workers import Workers

TOPIC = "flights"
PARTITIONS = 6
PRODUCED_PER_SECOND = 600
STEP_S = 0.1
SESSION_TIMEOUT_MS = 6_000
AWAY_S = 3.0
"""A worker that is started again is away for so long."""
KILLED_S = 9.0
"""A killed one: longer than its session."""
FIRST_S, EVERY_S = 12.0, 20.0
TURNS = ("billing-1", "search-2", "billing-3", "search-1")
"""Workers that go, in turn; each second time round they are killed."""
ENOUGH = 2_000.0
"""Records a second: more than a worker's share."""


def run(directory: Path, records: int, screen: Screen) -> None:
    """Until Ctrl-C. Raises ServerFailed."""
    screen.title("kohort demo: living groups, and the console")
    with ExitStack() as started:

        def start(part: KohortProcess | Workers) -> None:
            started.callback(part.stop)  # also if its start fails
            part.start()

        server = ServerProcess(
            directory / "server", directory / "server.log", {"group.initial.rebalance.delay.ms": "0"}
        )
        start(server)
        bootstrap = server.bootstrap_servers
        with Cluster(bootstrap, "kohort-demo") as cluster:
            cluster.create_topic(TOPIC, PARTITIONS)
        workers = Workers(options_of(bootstrap), directory)
        start(workers)
        console = ConsoleProcess(bootstrap, directory / "console.log")
        start(console)
        screen.say(f"The console: {console.url}")
        screen.say(f"The cluster: {bootstrap}, with the groups billing, search and reports.")
        screen.say(f"Commands, in another terminal: kohort groups doctor -b {bootstrap}")
        screen.say("Workers come and go; reports falls behind. Ctrl-C stops and removes everything.")
        play = Play(workers, _producer(bootstrap), partial(read_flights, records), time.monotonic())
        while not interrupts.wait(STEP_S):
            for part in (server, console):
                part.check()
            play.step(time.monotonic())
        interrupts.finish()


def options_of(bootstrap: str) -> list[Options]:
    """Three classic workers, of which one takes its time; two of a consumer group; one that is too slow."""

    def worker(
        group: str, number: int, *, pace: float = ENOUGH, protocol: str = "classic", slow_s: float = 0
    ) -> Options:
        return Options(f"{group}-{number}", bootstrap, group, TOPIC, pace, SESSION_TIMEOUT_MS, protocol, slow_s)

    return [
        worker("billing", 1),
        worker("billing", 2, slow_s=2.0),
        worker("billing", 3),
        worker("search", 1, protocol="consumer"),
        worker("search", 2, protocol="consumer"),
        worker("reports", 1, pace=PRODUCED_PER_SECOND / 2),
    ]


def _producer(bootstrap: str) -> Producer:
    # At the end the server may be gone first, and what is not sent yet does not matter.
    settings = {"bootstrap.servers": bootstrap, "client.id": "flights-producer", "linger.ms": 20, "log_level": 0}
    return Producer(settings)


class Play:
    """What happens, by a clock that the caller has."""

    def __init__(
        self, workers: Workers, producer: Producer, read: Callable[[], Iterator[FlightRecord]], now: float
    ) -> None:
        self._workers = workers
        self._producer = producer
        self._read = read
        self._flights = read()
        self._began = now
        self._produced = 0
        self._numbers = count()
        self._due: list[tuple[float, int, Callable[[float], None]]] = []
        self._turn = 0
        self._at(now + FIRST_S, self._next_goes)

    def step(self, now: float) -> None:
        wanted = int((now - self._began) * PRODUCED_PER_SECOND)
        for _ in range(min(wanted - self._produced, PRODUCED_PER_SECOND)):
            flight = self._next_flight()
            self._producer.produce(TOPIC, flight.value, flight.key)
        self._produced = wanted
        self._producer.poll(0)
        while True:
            try:
                self._workers.said.get_nowait()
            except queue.Empty:
                break
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2](now)

    def _next_flight(self) -> FlightRecord:
        """The year begins again at its end."""
        flight = next(self._flights, None)
        if flight is None:
            self._flights = self._read()
            flight = next(self._flights)
        return flight

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), act))

    def _next_goes(self, now: float) -> None:
        name = TURNS[self._turn % len(TURNS)]
        killed = self._turn // len(TURNS) % 2 == 1
        self._turn += 1
        if killed:
            self._workers.kill(name)
        else:
            self._workers.end(name)
        self._at(now + (KILLED_S if killed else AWAY_S), lambda then: self._comes(name, then))
        self._at(now + EVERY_S, self._next_goes)

    def _comes(self, name: str, now: float) -> None:
        if self._workers.runs(name):
            self._at(now + STEP_S, lambda then: self._comes(name, then))
        else:
            self._workers.begin(name)
