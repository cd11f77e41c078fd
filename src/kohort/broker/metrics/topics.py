"""Topics and their partitions, under the names of kafka_exporter, and what is appended to them.

Read after the groups, so that the end of a log is not before an offset that a group had committed. The series that
change with the records come first: when the limit is reached, the leaders and replicas are left out.
"""

from __future__ import annotations

from collections.abc import Generator

from kohort.broker.metrics import families as f
from kohort.broker.metrics.families import Family
from kohort.broker.metrics.kminion import add_topic
from kohort.broker.metrics.samples import Samples, escaped
from kohort.broker.metrics.turn_times import TurnTimes
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import METADATA_LOG, Topic

STEP_ROWS = 500
"""Partitions whose lines are made in one step."""


def add_topics(state: BrokerState, samples: Samples, times: TurnTimes) -> Generator[None, None, None]:
    listed = state.topics.listed()
    _forget_deleted(state, times)
    yield
    samples.add(f.MESSAGES_IN, sum(times.records.values()))
    samples.add(f.BYTES_IN, sum(times.bytes.values()))
    for topic in listed:
        samples.add(f.TOPIC_PARTITIONS, len(topic.partitions), topic.name)
        if topic.topic_id in times.records:
            samples.add(f.MESSAGES_IN, times.records[topic.topic_id], topic.name)
            samples.add(f.BYTES_IN, times.bytes[topic.topic_id], topic.name)
        yield from _add_offsets(state, samples, topic)
        yield
    for topic in listed:
        yield from _add_replicas(samples, topic)
        yield


def _forget_deleted(state: BrokerState, times: TurnTimes) -> None:
    """What was appended to deleted topics stays in the sums of all topics. The metadata log is no topic."""
    for counts in (times.records, times.bytes):
        counts.pop(METADATA_LOG.topic_id, None)
        for topic_id in [topic_id for topic_id in counts if topic_id and topic_id not in state.catalog.by_id]:
            counts[b""] = counts.get(b"", 0) + counts.pop(topic_id)


def _add_offsets(state: BrokerState, samples: Samples, topic: Topic) -> Generator[None, None, None]:
    partitions = state.topics.partitions.get(topic.topic_id)
    if partitions is None:  # deleted since the scrape began
        return
    place = f'topic="{escaped(topic.name)}",partition="'
    size = fetched = 0
    for start in range(0, len(partitions), STEP_ROWS):
        rows = list(enumerate(partitions[start : start + STEP_ROWS], start))
        ends = [f'{f.END_OFFSET.name}{{{place}{index}"}} {partition.end_offset}' for index, partition in rows]
        firsts = [f'{f.START_OFFSET.name}{{{place}{index}"}} {partition.start_offset}' for index, partition in rows]
        held = [
            f'{f.STABLE_OFFSET.name}{{{place}{index}"}} {partition.last_stable_offset}'
            for index, partition in rows
            if partition.holds_readers
        ]
        samples.add_lines(f.END_OFFSET, ends)
        samples.add_lines(f.START_OFFSET, firsts)
        samples.add_lines(f.STABLE_OFFSET, held)
        size += sum(partition.size for _, partition in rows)
        fetched += sum(partition.fetched_bytes for _, partition in rows)
        yield
    samples.add(f.TOPIC_BYTES, size, topic.name)
    if fetched:
        samples.add(f.BYTES_OUT, fetched, topic.name)
    if state.config.metrics_kminion:
        yield from add_topic(samples, topic, partitions)


def _add_replicas(samples: Samples, topic: Topic) -> Generator[None, None, None]:
    """As Metadata says it: the brokers of a process share its data, so all replicas are in sync."""
    place = f'topic="{escaped(topic.name)}",partition="'
    for start in range(0, len(topic.partitions), STEP_ROWS):
        lines: dict[Family, list[str]] = {
            family: [] for family in (f.LEADER, f.REPLICAS, f.IN_SYNC, f.PREFERRED, f.UNDER_REPLICATED)
        }
        for index, assignment in enumerate(topic.partitions[start : start + STEP_ROWS], start):
            replicas, leader = assignment.replicas, assignment.leader
            for family, value in (
                (f.LEADER, leader),
                (f.REPLICAS, len(replicas)),
                (f.IN_SYNC, len(replicas)),
                (f.PREFERRED, int(leader == replicas[0])),
                (f.UNDER_REPLICATED, 0),
            ):
                lines[family].append(f'{family.name}{{{place}{index}"}} {value}')
        for family, found in lines.items():
            samples.add_lines(family, found)
        yield
