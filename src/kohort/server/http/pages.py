"""The pages of the HTTP listener, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kohort.broker.metrics import families as f
from kohort.broker.metrics.request_times import RequestTimes
from kohort.broker.metrics.samples import OPEN_METRICS, Samples
from kohort.broker.metrics.samples import TEXT as METRICS_TEXT
from kohort.broker.metrics.scrape import Metrics
from kohort.broker.metrics.turn_times import TurnTimes
from kohort.broker.state import BrokerState
from kohort.config import Address, Config
from kohort.server.clock import Clock
from kohort.server.connections import Connections
from kohort.server.http.between_turns import BetweenTurns
from kohort.server.http.connection import Answer, text_answer
from kohort.server.http.door import HttpDoor
from kohort.server.http.health import (
    Check,
    as_text,
    disk_check,
    groups_check,
    listening_check,
    running_check,
    standby_check,
    turn_check,
    writer_check,
)
from kohort.server.http.numbers import LoopIdle, add_connections, add_failed_logins, add_files, add_loop, add_process
from kohort.server.http.request import Refused, Request, wants_open_metrics
from kohort.server.http.scraper import Scraper

INDEX = (
    "/metrics  numbers for Prometheus\n/livez    200 while the process works\n/readyz   200 while clients are served"
)


class HttpPages:
    """The HTTP listener with its pages. `observers` see the turns of the server."""

    def __init__(self, config: Config, address: Address, clock: Clock) -> None:
        self.times = TurnTimes()
        self.requests = RequestTimes()
        self.between = BetweenTurns()
        self.observers = (self.times, self.requests, self.between)
        self.door = HttpDoor(address, self._answer, may_be_insecure=config.allow_insecure_listeners)
        self.stopping = False
        self._config = config
        self._clock = clock
        self._idle = LoopIdle()
        self._state: BrokerState
        self._connections: Connections
        self._down: Callable[[], Sequence[int]]
        self._writer_runs: Callable[[], bool]
        self._failed_logins: Mapping[str, int]
        self._metrics: Metrics
        self._scraper: Scraper
        self._wake: Callable[[], None]
        self._more_checks: Callable[[], Sequence[Check]]
        self._is_up = False
        self._listens = False

    async def stand_by(self) -> None:
        """Listen before there is a broker: this node waits for the data. Raises ListenFailed."""
        await self.door.up()
        self._listens = True

    async def up(
        self,
        state: BrokerState,
        connections: Connections,
        *,
        down: Callable[[], Sequence[int]],
        writer_runs: Callable[[], bool],
        failed_logins: Mapping[str, int],
        wake: Callable[[], None],
        more_checks: Callable[[], Sequence[Check]],
    ) -> None:
        """Listen. `down`: the ids of the brokers that do not listen. `failed_logins`: by listener. `wake` makes a turn
        due. `more_checks` are of /readyz. Raises ListenFailed."""
        self._state = state
        self._more_checks = more_checks
        self._connections = connections
        self._down = down
        self._writer_runs = writer_runs
        self._failed_logins = failed_logins
        self._wake = wake
        self._metrics = Metrics(state, self.times, self._clock.now, self._add_more, self.requests)
        self._scraper = Scraper(self._metrics, self.between)
        if not self._listens:
            await self.door.up()
        self._is_up = True

    def close(self) -> None:
        if self._is_up:
            self._scraper.close()
        self.between.close()
        self.door.close()

    # -- pages

    async def _answer(self, request: Request) -> Answer:
        match request.path:
            case "/metrics" | "/readyz" if not self._is_up:
                return _health([standby_check()])
            case "/metrics":
                open_metrics = wants_open_metrics(request.accept)
                parts = await self._scraper.text(open_metrics=open_metrics)
                self._wake()  # the scrape may have begun rings of lag_times, which are due between turns
                return Answer(200, OPEN_METRICS if open_metrics else METRICS_TEXT, parts)
            case "/livez":
                return _health(self._live())
            case "/readyz":
                return _health(self._ready())
            case "/":
                return text_answer(200, INDEX)
        raise Refused(404, f"there is no such page; there are\n{INDEX}")

    def _live(self) -> list[Check]:
        if not self._is_up:
            return []
        if self._config.storage:  # a turn that waits for the database is not helped by a restart
            return [writer_check(runs=self._writer_runs())]
        return [turn_check(self.times.under_way_s), writer_check(runs=self._writer_runs())]

    def _ready(self) -> list[Check]:
        checks = [
            running_check(stopping=self.stopping),
            listening_check(self._down(), self._config.brokers),
            groups_check(self._state),
            turn_check(self.times.under_way_s),
            writer_check(runs=self._writer_runs()),
            *self._more_checks(),
        ]
        if self._config.data_dir:
            checks.append(disk_check(self._config.data_dir))
        return checks

    # -- numbers

    def _add_more(self, samples: Samples) -> None:
        add_loop(samples, self._idle)
        add_connections(samples, self._connections)
        add_failed_logins(samples, self._failed_logins)
        add_process(samples)
        if self._config.data_dir:
            add_files(samples, self._config.data_dir)
        samples.add(f.SCRAPES, self._scraper.count)
        samples.add(f.SCRAPE_TIME, self._scraper.last_s)
        samples.add(f.SCRAPE_STEP, self.between.longest_s)


def _health(checks: Sequence[Check]) -> Answer:
    return text_answer(200 if all(check.good for check in checks) else 503, as_text(checks))
