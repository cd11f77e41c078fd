"""Moves leadership between the brokers of this process, for tests and operators. A client can only move it back to
the first replica of a partition (ElectLeaders).

The brokers share one log. A move changes only which broker answers, and the leader epoch, so that clients notice. A
shard's coordinator is the leader of its partition of `__consumer_offsets`, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from kohort.broker.messages import changed
from kohort.broker.nodes import NodesByListener
from kohort.broker.sharing.following import see_slots
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic
from kohort.broker.turn import (
    AskAnswered,
    BrokerPresence,
    MoveGroup,
    MovePartition,
    OfBrokers,
    SlotsSeen,
    StandbysChanged,
    UpstreamSeen,
)
from kohort.broker.upstream.following import follow
from kohort.coordinator.events import Loaded, Unloaded
from kohort.wire.schemas.metadata_records import PartitionAssignment


def carry_out(state: BrokerState, event: OfBrokers) -> None:
    """What an edge says of brokers. Raises ValueError as the functions below."""
    match event:
        case UpstreamSeen():
            follow(state, event)
        case MovePartition():
            move_partition(state, event.topic, event.partition, event.to_broker)
        case MoveGroup():
            move_group(state, event.group, event.to_broker)
        case BrokerPresence():
            set_presence(state, event.broker_id, event.present)
        case AskAnswered():
            if state.slots is not None and (reply := state.slots.asks.answered(event)) is not None:
                state.turn.replies.append(reply)
        case SlotsSeen():
            see_slots(state, event)
        case StandbysChanged():
            state.nodes_by_listener = NodesByListener((*state.nodes, *event.nodes))
        case _:
            assert_never(event)


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
    _leaders_changed(state, topic, leaders)


def move_group(state: BrokerState, group_id: str, to_broker: int) -> None:
    move_partition(state, OFFSETS_TOPIC, state.shard_of(group_id), to_broker)


def set_presence(state: BrokerState, broker_id: int, present: bool) -> None:
    """A broker goes away or is back; `take_over` has to follow.

    Raises ValueError for an unknown broker, and for the last one that is present."""
    if broker_id not in state.node_by_id:
        raise ValueError(f"there is no broker {broker_id}")
    absent = state.absent - {broker_id} if present else state.absent | {broker_id}
    if len(absent) == len(state.nodes):
        raise ValueError(f"no other broker can take over from broker {broker_id}")
    state.absent = absent


def take_over(state: BrokerState) -> None:
    """Brokers that are present lead what absent brokers lead."""
    for topic, moved in replace_absent_leaders(state):
        _leaders_changed(state, topic, moved)


def replace_absent_leaders(state: BrokerState) -> list[tuple[Topic, list[int]]]:
    """Give each partition without a present leader its next replica as the leader, or else any broker.

    Returns the topics with the indexes of these partitions."""
    changed_topics = []
    present = [node.id for node in state.present_nodes]
    for topic in list(state.catalog.topics.values()):
        moved = [index for index, assignment in enumerate(topic.partitions) if assignment.leader not in present]
        if not moved or topic.is_followed:
            continue
        assignments = list(topic.partitions)
        for index in moved:
            replicas = [replica for replica in assignments[index].replicas if replica in present]
            assignments[index] = led_by(assignments[index], replicas[0] if replicas else present[index % len(present)])
        changed_topics.append((state.topics.change(topic, assignments=assignments), moved))
    return changed_topics


def _leaders_changed(state: BrokerState, topic: Topic, partitions: Iterable[int]) -> None:
    state.fetch_waits.wake(tuple(topic.log_key(partition) for partition in partitions))
    if topic.name == OFFSETS_TOPIC:
        for partition in partitions:
            state.ask(partition, Unloaded())
            state.ask(partition, Loaded())
    elif topic.name == TRANSACTIONS_TOPIC:
        state.transactions.moved(partitions)


def led_by(assignment: PartitionAssignment, leader: int) -> PartitionAssignment:
    """The next epoch, under another leader. It replaces the old leader among the replicas if it is not one yet."""
    replicas = assignment.replicas
    if leader not in replicas:
        replicas = tuple(leader if replica == assignment.leader else replica for replica in replicas)
    return changed(assignment, leader=leader, leader_epoch=assignment.leader_epoch + 1, replicas=replicas)
