"""How long requests take, by API: an observer of turns, and of what arrives.

A turn's first request is measured, and each n-th after it, so that a turn measures about MOST_A_TURN: to measure one
costs a microsecond. A measured request counts for those that were skipped. Requests that need no turn, as most
heartbeats, are not measured: they take microseconds.

The phases have the names of Kafka's RequestMetrics: requestqueue until the turn begins that takes the request, local
while this turn is decided, remote until the answer is durable (the commit, and all the time for which a join or a fetch
waits), responsesend until it is given to the system.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence

from kohort.broker.apis import APIS, FETCH
from kohort.broker.metrics import families as f
from kohort.broker.metrics.histograms import Histogram, add_histogram
from kohort.broker.metrics.samples import Samples
from kohort.broker.turn import Arrived, Closed, ConnectionId, Frame, Send, Turn

MOST_A_TURN = 16
KEPT = 256
"""Measured requests of an API of which the quantiles are."""
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
UNANSWERED = 64
"""After so many other answers on its connection, a request has none: a Produce with acks=0."""
CONSUMERS_FETCH = "FetchConsumer"
"""Kafka counts the fetches of consumers under this name too (RequestMetrics.java)."""


class _Measured:
    """A request that is not answered yet."""

    __slots__ = ("api_key", "arrived", "began", "correlation_id", "others", "step_s", "weight")

    def __init__(self, frame: bytes, arrived: float, weight: int) -> None:
        self.api_key = int.from_bytes(frame[:2], "big")
        self.correlation_id = frame[4:8]
        self.arrived = arrived
        self.weight = weight
        self.began = 0.0
        self.step_s = 0.0
        self.others = 0


class OfApi:
    def __init__(self) -> None:
        self.seconds = Histogram()
        self.phases_ms: deque[tuple[float, float, float, float, float]] = deque(maxlen=KEPT)
        """Total, requestqueue, local, remote, responsesend."""


FAMILIES = (f.TOTAL_TIMES, f.QUEUE_TIMES, f.LOCAL_TIMES, f.REMOTE_TIMES, f.SEND_TIMES)
"""In the order of the phases."""


class RequestTimes:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock`: seconds that never go back."""
        self.by_api: dict[int, OfApi] = {}
        self._clock = clock
        self._pending: dict[ConnectionId, _Measured] = {}
        """One request of a connection at a time."""
        self._new: list[_Measured] = []
        """Those that no turn has taken yet."""
        self._taken: list[_Measured] = []
        """Those that the present turn has taken."""
        self._stride = self._skip = 0
        self._began = self._decided = self._committed = 0.0

    def watching(self, arrive: Callable[[Arrived], None]) -> Callable[[Arrived], None]:
        """`arrive`, with a look at what arrives."""

        def watched(event: Arrived) -> None:
            if type(event) is Frame:
                if self._skip:
                    self._skip -= 1
                else:
                    self._skip = self._stride
                    self._measure(event)
            elif type(event) is Closed:
                self._pending.pop(event.connection, None)
            arrive(event)

        return watched

    def _measure(self, frame: Frame) -> None:
        if frame.connection not in self._pending:
            measured = _Measured(frame.data, self._clock(), 1 + self._stride)
            self._pending[frame.connection] = measured
            self._new.append(measured)

    # -- turns

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        self._began = self._clock()
        self._stride = len(arrived) // MOST_A_TURN
        self._skip = 0
        self._taken, self._new = self._new, []

    def decided(self, turn: Turn) -> None:
        self._decided = self._committed = self._clock()
        for measured in self._taken:
            measured.began = self._began
            measured.step_s = self._decided - self._began

    def committed(self, turn: Turn) -> None:
        self._committed = self._clock()

    def turn_ends(self, turn: Turn) -> None:
        pending = self._pending
        if not pending:
            return
        now = self._clock()
        for release in turn.releases:
            measured = pending.get(release.connection)
            if measured is None or not isinstance(release, Send):
                continue
            if release.data[4:8] == measured.correlation_id:
                del pending[release.connection]
                self._add(measured, now)
            else:
                measured.others += 1
                if measured.others > UNANSWERED:
                    del pending[release.connection]

    def _add(self, measured: _Measured, now: float) -> None:
        of_api = self.by_api.get(measured.api_key)
        if of_api is None:
            of_api = self.by_api[measured.api_key] = OfApi()
        total, queued, sent = now - measured.arrived, measured.began - measured.arrived, now - self._committed
        remote = max(total - queued - measured.step_s - sent, 0.0)
        of_api.seconds.add(total, measured.weight)
        of_api.phases_ms.append((total * 1e3, queued * 1e3, measured.step_s * 1e3, remote * 1e3, sent * 1e3))


def add_request_times(samples: Samples, times: RequestTimes, handled: dict[int, int]) -> Generator[None, None, None]:
    """`handled`: how many requests of each API there were."""
    for key, of_api in sorted(times.by_api.items()):
        api = APIS.get(key)
        if api is None:
            continue
        histogram = of_api.seconds
        add_histogram(samples, f.REQUEST_SECONDS, histogram.bounds, histogram.counts, histogram.sum, api.name)
        for name in (api.name, CONSUMERS_FETCH) if key == FETCH.key else (api.name,):
            samples.add(f.TOTAL_TIMES_COUNT, handled.get(key, 0), name)
            for family, found in zip(FAMILIES, map(sorted, zip(*of_api.phases_ms, strict=True)), strict=True):
                for quantile in QUANTILES:
                    at = min(int(quantile * len(found)), len(found) - 1)
                    samples.add(family, round(found[at], 3), name, str(quantile))
        yield
