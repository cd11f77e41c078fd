"""Numbers of the whole server: brokers, requests, turns, groups by state, rebalances, transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from kohort.broker.apis import APIS, FETCH, PRODUCE
from kohort.broker.metrics import families as f
from kohort.broker.metrics.group_names import GroupNames
from kohort.broker.metrics.groups import Census
from kohort.broker.metrics.histograms import Histogram, add_histogram
from kohort.broker.metrics.request_times import CONSUMERS_FETCH
from kohort.broker.metrics.samples import Samples
from kohort.broker.metrics.turn_times import TurnTimes
from kohort.broker.state import BrokerState
from kohort.config import Address
from kohort.coordinator.journal.rebalance_counts import BOUNDS_S
from kohort.coordinator.transactions.transaction import State

EXPIRED = "session expired"
STATES = {
    f.GROUPS_PREPARING: ("PreparingRebalance", "Assigning"),
    f.GROUPS_COMPLETING: ("CompletingRebalance", "Reconciling"),
    f.GROUPS_STABLE: ("Stable",),
    f.GROUPS_DEAD: ("Dead",),
    f.GROUPS_EMPTY: ("Empty",),
}


def add_server(state: BrokerState, samples: Samples, times: TurnTimes) -> None:
    present = state.present_nodes
    samples.add(f.BROKERS, len(present))
    for node in present:
        samples.add(f.BROKER_INFO, 1, str(node.id), str(Address(node.host, node.port)))
    samples.add(f.ACTIVE_CONTROLLERS, 1)
    if state.slots is not None:
        samples.add(f.SLOTS, len(state.slots.held))
    _add_requests(state, samples)
    for family, histogram in ((f.TURNS, times.turns), (f.STEPS, times.steps), (f.COMMITS, times.commits)):
        _add(samples, family, histogram)
    samples.add(f.TURN_UNDER_WAY, times.under_way_s)
    samples.add(f.BYTES_OUT, state.turn.fetched_bytes)
    for (operation, kind), count in sorted(state.audit.denials.items()):
        samples.add(f.DENIED, count, operation, kind)


def _add(samples: Samples, family: f.Family, histogram: Histogram) -> None:
    add_histogram(samples, family, histogram.bounds, histogram.counts, histogram.sum)


def handled_requests(state: BrokerState) -> Counter[int]:
    """Of each API."""
    of_api: Counter[int] = Counter()
    for head, count in state.requests.items():
        of_api[int.from_bytes(head[:2], "big")] += count.handled
    return of_api


def _add_requests(state: BrokerState, samples: Samples) -> None:
    of_api = handled_requests(state)
    for head, count in sorted(state.requests.items(), key=lambda item: item[0]):
        key, version = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:], "big")
        if count.handled:
            for name in (APIS[key].name, CONSUMERS_FETCH) if key == FETCH.key else (APIS[key].name,):
                samples.add(f.REQUESTS, count.handled, name, str(version))
    samples.add(f.PRODUCE_REQUESTS, of_api[PRODUCE.key])
    samples.add(f.FETCH_REQUESTS, of_api[FETCH.key])


def add_census(state: BrokerState, samples: Samples, census: Census) -> None:
    """After the groups."""
    samples.add(f.GROUP_COUNT, census.states.total())
    for family, names in STATES.items():
        samples.add(family, sum(census.states[name] for name in names))
    samples.add(f.OFFSET_COUNT, census.offsets)
    samples.add(f.WAITING, sum(len(shard.running.parked) for shard in state.shards), "group")
    samples.add(f.WAITING, len(state.fetch_waits), "fetch")
    samples.add(f.WAITING, len(state.reads), "read")
    if state.shares.is_served:
        samples.add(f.SHARE_SESSIONS, len(state.shares.sessions))
    samples.add(f.READ_BYTES, state.reads.size)
    if state.tails is not None:
        samples.add(f.TAIL_BYTES, state.tails.size)


def add_rebalances(state: BrokerState, samples: Samples, names: GroupNames) -> Generator[None, None, None]:
    counts = state.journal.counts
    samples.add(f.EXPIRED, counts.events.get(EXPIRED, 0))
    for event, count in sorted(counts.events.items()):
        samples.add(f.GROUP_EVENTS, count, event)
    for protocol, took in counts.took.items():
        add_histogram(samples, f.REBALANCE_TIMES, BOUNDS_S, took, counts.took_ms[protocol] / 1000, protocol)
    for at, ((group, cause), count) in enumerate(list(counts.began.items())):
        if names.has(group):
            samples.add(f.REBALANCES, count, group, cause)
        if at % 500 == 499:
            yield
    for at, (group, waited_ms) in enumerate(list(counts.waited_ms.items())):
        if names.has(group):
            samples.add(f.REBALANCE_WAITED, waited_ms / 1000, group)
        if at % 500 == 499:
            yield


def add_partitions(state: BrokerState, samples: Samples) -> Generator[None, None, None]:
    """Counts over all partitions."""
    absent = state.absent
    offline = count = topics = 0
    for topic in list(state.catalog.topics.values()):
        count += len(topic.partitions)
        topics += 1
        if absent:
            offline += sum(assignment.leader in absent for assignment in topic.partitions)
        if topics % 500 == 0:
            yield
    samples.add(f.LEADER_COUNT, count - offline)
    samples.add(f.PARTITION_COUNT, count)
    samples.add(f.UNDER_REPLICATED_COUNT, 0)
    samples.add(f.TOPIC_COUNT, topics)
    samples.add(f.GLOBAL_PARTITIONS, count)
    samples.add(f.OFFLINE_PARTITIONS, offline)


def add_transactions(state: BrokerState, samples: Samples) -> Generator[None, None, None]:
    states: Counter[State] = Counter()
    for shard in state.transactions.shards:
        states.update(transaction.state for transaction in shard.ids.values())
        yield
    for one in State:
        samples.add(f.TRANSACTIONS, states[one], one.title)
