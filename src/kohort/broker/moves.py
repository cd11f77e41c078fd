"""Moves leadership between the brokers of this process, for tests and operators. Clients have no request for it.

The brokers share one log. A move changes only which broker answers, and the leader epoch, so that clients notice. A
shard's coordinator is the leader of its partition of `__consumer_offsets`, as in Kafka.
"""

from __future__ import annotations

from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.coordinator.events import Loaded, Unloaded
from kohort.wire.schemas.metadata_records import PartitionAssignment


def move_partition(state: BrokerState, topic_name: str, partition: int, to_broker: int) -> None:
    """Make `to_broker` the leader. Raises ValueError when there is no such topic, partition or broker."""
    topic = state.topic(topic_name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        raise ValueError(f"there is no partition {partition} of a topic {topic_name}")
    if to_broker not in state.node_by_id:
        raise ValueError(f"there is no broker {to_broker}")
    assignments = list(topic.partitions)
    if assignments[partition].leader == to_broker:
        return
    assignments[partition] = led_by(assignments[partition], to_broker)
    state.topics.change(topic, assignments=assignments)
    state.fetch_waits.wake((topic.log_key(partition),))
    if topic_name == OFFSETS_TOPIC:
        state.ask(partition, Unloaded())
        state.ask(partition, Loaded())


def move_group(state: BrokerState, group_id: str, to_broker: int) -> None:
    move_partition(state, OFFSETS_TOPIC, state.shard_of(group_id), to_broker)


def led_by(assignment: PartitionAssignment, leader: int) -> PartitionAssignment:
    """The next epoch, under another leader. It replaces the old leader among the replicas if it is not one yet."""
    replicas = assignment.replicas
    if leader not in replicas:
        replicas = tuple(leader if replica == assignment.leader else replica for replica in replicas)
    return changed(assignment, leader=leader, leader_epoch=assignment.leader_epoch + 1, replicas=replicas)
