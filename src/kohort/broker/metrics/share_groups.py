"""Share groups: members, unfinished records, what is in flight and given back, and what became of records.

The numbers of a share-partition are read in one step. Outcomes count since the server loaded the share-partition, so
they begin at 0 after a restart.
"""

from __future__ import annotations

from collections.abc import Generator

from kohort.broker.metrics import families as f
from kohort.broker.metrics.samples import Samples
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.coordinator.shard import Shard
from kohort.coordinator.shares.cells import AVAILABLE
from kohort.coordinator.shares.events import RESET, ShareKey
from kohort.coordinator.shares.tally import DEAD_LETTERS, WITHOUT_DEAD_LETTER

LEAST = 3
"""Series of a group, besides those of its outcomes and partitions."""
FAMILIES = (f.SHARE_LAG, f.SHARE_START, f.SHARE_IN_FLIGHT, f.SHARE_GIVEN_BACK, f.SHARE_STANDS)
"""Of a partition."""
PARTITION = "partition"
WRITTEN = {DEAD_LETTERS: "yes", WITHOUT_DEAD_LETTER: "no"}
"""What became of dead letters: a label."""


def add_share_group(
    state: BrokerState, samples: Samples, shard: Shard, group_id: str, now: Millis
) -> Generator[None, None, None]:
    group = shard.shares.groups.get(group_id)
    if group is None:
        return
    infos = list(group.initialized.values())
    if samples.left < LEAST:
        samples.leave_out(LEAST + len(FAMILIES) * sum(len(info.partitions) for info in infos))
        return
    samples.add(f.SHARE_MEMBERS, len(group.members), group_id)
    outcomes: dict[str, int] = {}
    lag = in_flight = 0
    rows: list[tuple[tuple[str, str, str], tuple[int, int, int, int, float]]] = []
    for info in infos:
        for index in info.partitions:
            key = ShareKey(group_id, info.topic_id, index)
            found = _read(state, key, now, outcomes)
            yield
            if found is None:
                continue
            lag += found[0]
            in_flight += found[2]
            rows.append(((group_id, info.topic_name, str(index)), found))
    samples.add(f.SHARE_LAG_SUM, lag, group_id)
    samples.add(f.SHARE_IN_FLIGHT_SUM, in_flight, group_id)
    for outcome, written in WRITTEN.items():
        if outcome in outcomes:
            samples.add(f.SHARE_DEAD_LETTERS, outcomes.pop(outcome), group_id, written)
    for outcome, count in sorted(outcomes.items()):
        samples.add(f.SHARE_RECORDS, count, group_id, outcome)
    if state.config.metrics_groups_granularity != PARTITION:
        return
    if len(FAMILIES) * len(rows) > samples.left - state.config.metrics_max_series // 4:
        samples.leave_out(len(FAMILIES) * len(rows))
        return
    for labels, values in rows:
        for family, value in zip(FAMILIES, values, strict=True):
            samples.add(family, value, *labels)
    yield


def _read(
    state: BrokerState, key: ShareKey, now: Millis, outcomes: dict[str, int]
) -> tuple[int, int, int, int, float] | None:
    """In the order of FAMILIES; None if nobody has read the partition yet. Adds to `outcomes`."""
    shard = state.shares.find(key)
    topic = state.catalog.by_id.get(key.topic_id)
    partition = state.partition(topic, key.partition) if topic is not None else None
    stored = shard.states.get(key) if shard is not None else None
    if shard is None or stored is None or partition is None or stored.start == RESET:
        return None
    lag = max(partition.high_watermark - max(stored.start, partition.start_offset) - stored.complete, 0)
    served, tally = shard.served.get(key), shard.tallies.get(key)
    if served is None or tally is None:
        given_back = sum(last - first + 1 for first, last, kind, _ in stored.cells if kind == AVAILABLE)
        return lag, stored.start, 0, given_back, 0.0
    for outcome, count in tally.counts.items():
        outcomes[outcome] = outcomes.get(outcome, 0) + count
    in_flight = sum(lock[1] - lock[0] + 1 for lock in served.locks)
    free = served.free_runs(stored.start, served.end - 1)
    given_back = sum(last - first + 1 for first, last, count in free if count)
    return lag, stored.start, in_flight, given_back, max(now - tally.moved_ms, 0) / 1000 if lag else 0.0
