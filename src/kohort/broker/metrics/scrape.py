"""One scrape: all series, in steps that take about a millisecond each.

The caller takes the steps between turns, when all that memory shows is durable. Groups come before topics, and totals
before both, so a limit of series leaves out the most detailed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from kohort.broker.lag.lag_times import Ages
from kohort.broker.metrics import families as f
from kohort.broker.metrics.error_counts import ErrorCounts, add_errors
from kohort.broker.metrics.group_names import GroupNames
from kohort.broker.metrics.groups import Census, add_groups
from kohort.broker.metrics.kminion import add_cluster
from kohort.broker.metrics.quotas import add_quotas
from kohort.broker.metrics.request_times import RequestTimes, add_request_times
from kohort.broker.metrics.samples import Samples
from kohort.broker.metrics.topics import add_topics
from kohort.broker.metrics.totals import (
    add_census,
    add_partitions,
    add_rebalances,
    add_server,
    add_transactions,
    handled_requests,
)
from kohort.broker.metrics.turn_times import TurnTimes
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis

KEPT = 200
"""Series that groups and topics leave to the totals after them."""


class Metrics:
    def __init__(
        self,
        state: BrokerState,
        times: TurnTimes,
        clock: Callable[[], Millis],
        add_more: Callable[[Samples], None],
        requests: RequestTimes | None = None,
    ) -> None:
        """`clock` is the server's. `add_more` adds what the server knows and the broker does not. From now on the
        errors of answers are counted."""
        self.times = times
        self.requests = requests or RequestTimes()
        self._names = GroupNames(state.config)
        self._errors = state.errors = ErrorCounts()
        self._state = state
        self._clock = clock
        self._add_more = add_more

    def scrape(self) -> Generator[None, None, Samples]:
        """Returns the samples."""
        state, census = self._state, Census()
        samples = Samples(state.config.metrics_max_series)
        add_server(state, samples, self.times)
        self._add_more(samples)
        add_errors(samples, self._errors)
        if state.config.metrics_kminion:
            add_cluster(state, samples)
        yield
        yield from add_request_times(samples, self.requests, handled_requests(state))
        yield from add_quotas(state, samples, self._clock())
        yield from add_partitions(state, samples)
        yield from add_transactions(state, samples)
        samples.left -= KEPT
        yield from add_groups(state, samples, Ages(state.lag_times), census, self._names, self._clock())
        yield from add_topics(state, samples, self.times)
        samples.left += KEPT
        add_census(state, samples, census)
        yield from add_rebalances(state, samples, self._names)
        series, left_out = len(samples), samples.left_out
        samples.left += 2  # the limit leaves out neither of the two that tell of it
        samples.add(f.SERIES, series)
        samples.add(f.LEFT_OUT, left_out)
        return samples
