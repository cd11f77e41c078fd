"""What clients use of their quotas, under the names of Kafka's beans."""

from __future__ import annotations

from collections.abc import Generator

from kohort.broker.metrics import families as f
from kohort.broker.metrics.samples import Samples
from kohort.broker.quotas.entities import FETCH, PRODUCE, REQUEST
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis

RESOURCES = {PRODUCE: "Produce", FETCH: "Fetch", REQUEST: "Request"}
STEP_METERS = 200
"""Meters that are read in one step."""


def add_quotas(state: BrokerState, samples: Samples, now: Millis) -> Generator[None, None, None]:
    """The brokers of a process are added; the throttle time is the longest."""
    rates: dict[tuple[str, str, str], float] = {}
    delays: dict[tuple[str, str, str], Millis] = {}
    for at, (key, user, client, rate, delay) in enumerate(state.meters.usage(RESOURCES, now), 1):
        name = RESOURCES[key], user, client
        rates[name] = rates.get(name, 0.0) + rate
        delays[name] = max(delays.get(name, 0), delay)
        if at % STEP_METERS == 0:
            yield
    for at, (name, rate) in enumerate(sorted(rates.items()), 1):
        samples.add(f.QUOTA_REQUEST_TIME if name[0] == RESOURCES[REQUEST] else f.QUOTA_BYTE_RATE, rate, *name)
        samples.add(f.QUOTA_THROTTLE_TIME, delays[name], *name)
        if at % STEP_METERS == 0:
            yield
