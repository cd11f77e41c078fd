"""Offsets, lag, members and rebalances of groups, under the names of kafka_exporter and kafka-lag-exporter.

Committed offset and end of a partition are read in one step, between turns, so a lag is never negative; so are all
partitions of a group with up to STEP_READ of them. Where a partition has no committed offset, and another one of its
topic has, both numbers are -1, as in kafka_exporter; such a partition counts in no sum.

A group's series of partitions are all there or none: when they do not fit, the sums stay. Groups with members come
first, and a quarter of the series is left to the topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from kohort.broker.lag.lag_times import IN_BATCH, UNKNOWN, Ages
from kohort.broker.metrics import families as f
from kohort.broker.metrics.group_names import GroupNames
from kohort.broker.metrics.kminion import add_group
from kohort.broker.metrics.rows import OfTopic, Row
from kohort.broker.metrics.samples import Samples, escaped, number
from kohort.broker.metrics.share_groups import add_share_group
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.coordinator.classic.group import Phase
from kohort.coordinator.consumer.responses import state_name
from kohort.coordinator.shard import Shard

SUMS = 7
"""Series of a group with one topic, besides those of its partitions."""
STEP_READ = 1_000
"""Partitions that are read in one step."""
STEP_AGES = 300
"""Partitions whose lag in seconds is found in one step, if no batch has to be looked up."""
LOOKUP_WORK = 6
"""To read one batch of the log counts as much work as so many partitions."""
STEP_ROWS = 300
"""Partitions whose lines are made in one step."""
PARTITION, TOPIC = "partition", "topic"
"""Values of metrics.groups.granularity; the third is "group"."""


class Census:
    """What is counted over all groups."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.offsets = 0


def add_groups(
    state: BrokerState, samples: Samples, ages: Ages, census: Census, names: GroupNames, now: Millis
) -> Generator[None, None, None]:
    occupied: list[tuple[Shard, str]] = []
    empty: list[tuple[Shard, str]] = []
    for shard in state.shards:
        for group in shard.list_groups((), ()):
            census.states[group.group_state] += 1
            if not names.has(group.group_id):
                census.offsets += len(shard.hard.offsets.get(group.group_id, ()))
                continue
            (empty if group.group_state == Phase.EMPTY.value else occupied).append((shard, group.group_id))
        yield
    left = len(occupied) + len(empty)
    for shard, group_id in (*occupied, *empty):
        left -= 1
        if group_id in shard.shares.groups:
            yield from add_share_group(state, samples, shard, group_id, now)
            continue
        yield from _add_group(state, samples, ages, census, shard, group_id, left, now)
        yield


def _add_group(
    state: BrokerState,
    samples: Samples,
    ages: Ages,
    census: Census,
    shard: Shard,
    group_id: str,
    groups_left: int,
    now: Millis,
) -> Generator[None, None, None]:
    committed = len(shard.hard.offsets.get(group_id, ()))
    census.offsets += committed
    if samples.left < SUMS:
        samples.leave_out(SUMS + 2 * committed)
        return
    members, is_rebalancing = _members(shard, group_id)
    topics = yield from _read(state, shard, group_id)
    samples.add(f.GROUP_MEMBERS, members, group_id)
    if members:
        samples.add(f.REBALANCING, int(is_rebalancing), group_id)
    if topics:
        yield from _find_ages(topics, ages, now)
        _add_sums(state, samples, group_id, topics)
    if state.config.metrics_kminion:
        yield from add_group(state, samples, shard, group_id, topics)
    if not topics:
        return
    if state.config.metrics_groups_granularity != PARTITION:
        return
    count = sum(2 * len(topic.rows) for topic in topics)
    room = samples.left - SUMS * groups_left - state.config.metrics_max_series // 4
    if 3 * count // 2 > room:
        samples.leave_out(count)
        return
    for topic in topics:
        for start in range(0, len(topic.rows), STEP_ROWS):
            _add_rows(state, samples, group_id, topic.name, topic.rows[start : start + STEP_ROWS])
            yield


def _members(shard: Shard, group_id: str) -> tuple[int, bool]:
    """How many members the group has, and whether it rebalances."""
    consumers = shard.hard.consumers.groups.get(group_id)
    if consumers is not None:
        return len(consumers.members), state_name(consumers) not in ("Stable", "Empty")
    group = shard.running.groups.get(group_id)
    if group is None:
        return 0, False
    return len(group.members), group.phase not in (Phase.STABLE, Phase.EMPTY)


def _read(state: BrokerState, shard: Shard, group_id: str) -> Generator[None, None, list[OfTopic]]:
    by_topic: dict[str, dict[int, int]] = {}
    for at, ((name, index), value) in enumerate(list(shard.hard.offsets.get(group_id, {}).items()), 1):
        by_topic.setdefault(name, {})[index] = value.offset
        if at % STEP_READ == 0:
            yield
    found = []
    left = STEP_READ
    for name, offsets in by_topic.items():
        topic = state.topic(name)
        partitions = () if topic is None else tuple(state.topics.partitions[topic.topic_id])
        rows: list[Row] = []
        for index, partition in enumerate(partitions):
            offset = offsets.pop(index, -1)
            lag = -1 if offset < 0 else max(partition.end_offset - offset, 0)
            rows.append(Row(index, offset, lag, UNKNOWN, partition))
            left -= 1
            if not left:
                yield
                left = STEP_READ
        rows += [Row(index, offset, -1, UNKNOWN) for index, offset in offsets.items()]
        found.append(OfTopic(name, rows))
    return found


def _find_ages(topics: list[OfTopic], ages: Ages, now: Millis) -> Generator[None, None, None]:
    """The lags in seconds, and the sums and maxima of both kinds."""
    work = 0
    for topic in topics:
        for row in topic.rows:
            work += 1
            if row.lag >= 0 and row.partition is not None:
                row.lag_ms = ages.times.lag_ms(row.partition, row.offset, row.offset + row.lag, now)
                if row.lag_ms == IN_BATCH:
                    row.lag_ms = ages.look_up(row.partition, row.offset, now)
                    work += LOOKUP_WORK
                topic.lag_sum += row.lag
                topic.max_lag = max(topic.max_lag, row.lag)
                topic.max_lag_ms = max(topic.max_lag_ms, row.lag_ms)
            if row.offset >= 0:
                topic.offset_sum += row.offset
            if work >= STEP_AGES:
                yield
                work = 0


def _add_sums(state: BrokerState, samples: Samples, group_id: str, topics: list[OfTopic]) -> None:
    cluster = state.catalog.cluster_id
    if (max_lag := max(topic.max_lag for topic in topics)) >= 0:
        samples.add(f.MAX_LAG, max_lag, cluster, group_id)
        samples.add(f.SUM_LAG, sum(topic.lag_sum for topic in topics), cluster, group_id)
    if (max_lag_ms := max(topic.max_lag_ms for topic in topics)) >= 0:
        samples.add(f.MAX_LAG_SECONDS, max_lag_ms / 1000, cluster, group_id)
    if state.config.metrics_groups_granularity in (PARTITION, TOPIC):
        for topic in topics:
            samples.add(f.GROUP_OFFSET_SUM, topic.offset_sum, group_id, topic.name)
            samples.add(f.GROUP_LAG_SUM, topic.lag_sum, group_id, topic.name)


def _add_rows(state: BrokerState, samples: Samples, group_id: str, topic: str, rows: list[Row]) -> None:
    place = f'consumergroup="{escaped(group_id)}",topic="{escaped(topic)}",partition="'
    of_lag = f'cluster_name="{escaped(state.catalog.cluster_id)}",group="{escaped(group_id)}",topic="{escaped(topic)}",'
    offset, lag, age = f.GROUP_OFFSET.name, f.GROUP_LAG.name, f.LAG_SECONDS.name
    samples.add_lines(f.GROUP_OFFSET, [f'{offset}{{{place}{row.index}"}} {row.offset}' for row in rows])
    samples.add_lines(
        f.GROUP_LAG, [f'{lag}{{{place}{row.index}"}} {row.lag}' for row in rows if row.offset < 0 or row.lag >= 0]
    )
    samples.add_lines(
        f.LAG_SECONDS,
        [f'{age}{{{of_lag}partition="{row.index}"}} {number(row.lag_ms / 1000)}' for row in rows if row.lag_ms >= 0],
    )
