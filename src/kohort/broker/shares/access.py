"""A share-partition on behalf of a request: its topic, its leader, the client's rights, and its state."""

from __future__ import annotations

from typing import NamedTuple

from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.logs.partition import Partition
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic
from kohort.coordinator.shares.events import RESET, Load, ShareKey
from kohort.coordinator.shares.share_partition import SharePartition
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_fetch import LeaderIdAndEpoch

NOWHERE = LeaderIdAndEpoch()


class Refused(NamedTuple):
    error: ErrorCode
    leader: LeaderIdAndEpoch = NOWHERE


class Place(NamedTuple):
    topic: Topic
    partition: Partition
    leader_epoch: int


def place_of(
    state: BrokerState, context: RequestContext, topic_id: bytes, index: int, leaders: CurrentLeaders
) -> Place | Refused:
    """The partition of a topic that this broker leads, and that the client may read."""
    topic = state.catalog.by_id.get(topic_id)
    if topic is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    if context.may_read is not None and not context.may_read(topic.name):
        return Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    partition = state.partition(topic, index)
    if partition is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assignment = topic.partitions[index]
    if assignment.leader != context.broker_id:
        leaders.add(assignment.leader)
        current = LeaderIdAndEpoch(leader_id=assignment.leader, leader_epoch=assignment.leader_epoch)
        return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, current)
    return Place(topic, partition, assignment.leader_epoch)


def served(state: BrokerState, key: ShareKey, place: Place, initial: int) -> SharePartition | None:
    """The share-partition, which is loaded if that is due. None if it has no state.

    `initial`: where it starts, if nobody has read it yet."""
    shard = state.shares.find(key)
    stored = shard.states.get(key) if shard is not None else None
    if shard is None or stored is None:
        return None
    found = shard.served.get(key)
    if (
        found is None
        or found.leader_epoch != place.leader_epoch
        or stored.start < place.partition.start_offset
        or stored.start == RESET
    ):
        state.shares.ask(key, Load(key, place.leader_epoch, place.partition.start_offset, initial))
        found = shard.served.get(key)
    return found


def needs_start(state: BrokerState, key: ShareKey) -> bool:
    """Nobody has read the share-partition yet: its group's auto.offset.reset says where it starts."""
    shard = state.shares.find(key)
    stored = shard.states.get(key) if shard is not None else None
    return stored is not None and stored.start == RESET
