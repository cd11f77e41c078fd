"""Moves leadership between the brokers of this process, for tests and operators. A client can only move it back to
the first replica of a partition (ElectLeaders).

The brokers share one log. A move changes only which broker answers, and the leader epoch, so that clients notice. A
shard's coordinator is the leader of its partition of `__consumer_offsets`, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OFFSETS_TOPIC, Topic
from kohort.coordinator.events import Loaded, Unloaded
from kohort.wire.schemas.metadata_records import PartitionAssignment


def move_partition(state: BrokerState, topic_name: str, partition: int, to_broker: int) -> None:
    """Make `to_broker` the leader. Raises ValueError when there is no such topic, partition or broker."""
    topic = state.topic(topic_name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        raise ValueError(f"there is no partition {partition} of a topic {topic_name}")
    if to_broker not in state.node_by_id:
        raise ValueError(f"there is no broker {to_broker}")
    if topic.partitions[partition].leader != to_broker:
        move_partitions(state, topic, {partition: to_broker})


def move_partitions(state: BrokerState, topic: Topic, leaders: Mapping[int, int]) -> None:
    """Make these brokers the leaders of these partitions, with one record for all."""
    assignments = list(topic.partitions)
    for index, broker in leaders.items():
        assignments[index] = led_by(assignments[index], broker)
    state.topics.change(topic, assignments=assignments)
    state.fetch_waits.wake(tuple(topic.log_key(index) for index in leaders))
    if topic.name == OFFSETS_TOPIC:
        for index in leaders:
            state.ask(index, Unloaded())
            state.ask(index, Loaded())


def move_group(state: BrokerState, group_id: str, to_broker: int) -> None:
    move_partition(state, OFFSETS_TOPIC, state.shard_of(group_id), to_broker)


def led_by(assignment: PartitionAssignment, leader: int) -> PartitionAssignment:
    """The next epoch, under another leader. It replaces the old leader among the replicas if it is not one yet."""
    replicas = assignment.replicas
    if leader not in replicas:
        replicas = tuple(leader if replica == assignment.leader else replica for replica in replicas)
    return changed(assignment, leader=leader, leader_epoch=assignment.leader_epoch + 1, replicas=replicas)
