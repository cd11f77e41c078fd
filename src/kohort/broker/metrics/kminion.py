"""A second set of series, under the names of kminion (metrics.kminion), for its dashboards.

Source: kminion's prometheus/exporter.go. Its kminion_kafka_consumer_group_offset_commits_total is not there, because
nothing counts the commits of a group. Partitions without an end, because their topic is deleted, are left out, as
there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence

from kohort import __version__
from kohort.broker.logs.partition import Partition
from kohort.broker.metrics import families as f
from kohort.broker.metrics.rows import OfTopic
from kohort.broker.metrics.samples import Samples, escaped
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic
from kohort.coordinator.classic.group import Phase
from kohort.coordinator.consumer.responses import state_name
from kohort.coordinator.shard import Shard
from kohort.wire.embedded import assignment_in

STEP_MEMBERS = 50
"""Members whose assignments are read in one step."""
STEP_ROWS = 300


def add_cluster(state: BrokerState, samples: Samples) -> None:
    samples.add(f.KMINION_UP, 1, __version__)
    controller = str(state.controller_id)
    present = state.present_nodes
    samples.add(f.KMINION_CLUSTER, 1, f"kohort {__version__}", str(len(present)), controller, state.catalog.cluster_id)
    for node in present:
        is_controller = str(str(node.id) == controller).lower()
        samples.add(f.KMINION_BROKER, 1, str(node.id), node.host, str(node.port), node.rack or "", is_controller)


def add_topic(samples: Samples, topic: Topic, partitions: Sequence[Partition]) -> Generator[None, None, None]:
    policies = ("compact", topic.settings.compact), ("delete", topic.settings.delete)
    policy = ",".join(policy for policy, is_on in policies if is_on)
    samples.add(
        f.KMINION_TOPIC, 1, topic.name, str(len(topic.partitions)), str(len(topic.partitions[0].replicas)), policy
    )
    samples.add(f.KMINION_HIGH_SUM, sum(partition.end_offset for partition in partitions), topic.name)
    samples.add(f.KMINION_LOW_SUM, sum(partition.start_offset for partition in partitions), topic.name)
    place = f'topic_name="{escaped(topic.name)}",partition_id="'
    for start in range(0, len(partitions), STEP_ROWS):
        rows = list(enumerate(partitions[start : start + STEP_ROWS], start))
        high, low = f.KMINION_HIGH, f.KMINION_LOW
        samples.add_lines(high, [f'{high.name}{{{place}{index}"}} {one.end_offset}' for index, one in rows])
        samples.add_lines(low, [f'{low.name}{{{place}{index}"}} {one.start_offset}' for index, one in rows])
        yield


def add_group(
    state: BrokerState, samples: Samples, shard: Shard, group_id: str, topics: Sequence[OfTopic]
) -> Generator[None, None, None]:
    _add_info(state, samples, shard, group_id)
    members = empty = 0
    of_topic: Counter[str] = Counter()
    assigned: Counter[str] = Counter()
    for found in _assignments(state, shard, group_id):
        members += 1
        empty += not any(found.values())
        for topic, count in found.items():
            of_topic[topic] += 1
            assigned[topic] += count
        if members % STEP_MEMBERS == 0:
            yield
    samples.add(f.KMINION_MEMBERS, members, group_id)
    samples.add(f.KMINION_EMPTY_MEMBERS, empty, group_id)
    for topic in of_topic:
        samples.add(f.KMINION_TOPIC_MEMBERS, of_topic[topic], group_id, topic)
        samples.add(f.KMINION_ASSIGNED, assigned[topic], group_id, topic)
    for one in topics:
        rows = [row for row in one.rows if row.lag >= 0]
        if not rows:
            continue
        samples.add(f.KMINION_TOPIC_LAG, one.lag_sum, group_id, one.name)
        samples.add(f.KMINION_OFFSET_SUM, sum(row.offset for row in rows), group_id, one.name)
        if state.config.metrics_groups_granularity == "partition":
            name = f.KMINION_LAG.name
            place = f'group_id="{escaped(group_id)}",topic_name="{escaped(one.name)}",partition_id="'
            samples.add_lines(f.KMINION_LAG, [f'{name}{{{place}{row.index}"}} {row.lag}' for row in rows])
        yield


def _add_info(state: BrokerState, samples: Samples, shard: Shard, group_id: str) -> None:
    consumers = shard.hard.consumers.groups.get(group_id)
    group = shard.running.groups.get(group_id)
    protocol, protocol_type, phase = "", "", Phase.EMPTY.value
    if consumers is not None:
        protocol_type, phase = "consumer", state_name(consumers)
    elif group is not None:
        protocol, protocol_type, phase = group.protocol or "", group.protocol_type or "", group.phase.value
    coordinator = str(state.coordinator_of(state.shard_of(group_id)))
    is_stable = int(phase == Phase.STABLE.value)
    samples.add(f.KMINION_GROUP, is_stable, group_id, protocol, protocol_type, phase, coordinator)


def _assignments(state: BrokerState, shard: Shard, group_id: str) -> Iterator[Mapping[str, int]]:
    """How many partitions of each topic each member has."""
    consumers = shard.hard.consumers.groups.get(group_id)
    if consumers is not None:
        for member_id in list(consumers.members):
            counts = Counter(topic_id for topic_id, _ in consumers.state_of(member_id).assigned)
            by_id = state.catalog.by_id
            yield {by_id[topic_id].name: count for topic_id, count in counts.items() if topic_id in by_id}
        return
    group = shard.running.groups.get(group_id)
    for member in list(group.members.values()) if group is not None else ():
        yield {topic: len(indexes) for topic, indexes in (assignment_in(member.assignment) or {}).items()}
