"""What stored data consists of, in numbers, and the committed offsets that its logs do not reach."""

from __future__ import annotations

import msgspec

from kohort.broker.state import BrokerState
from kohort.coordinator.transactions.transaction import State


class Contents(msgspec.Struct, frozen=True):
    topics: int
    """Without the broker's own."""
    partitions: int
    records: int
    """Offsets of these partitions: a compacted topic has fewer records."""
    groups: int
    """With members or offsets."""
    transactional_ids: int
    users: int


class Details(msgspec.Struct, frozen=True):
    """What data consists of besides."""

    acls: int
    quotas: int
    share_partitions: int
    """With a state of share groups."""
    open_transactions: int


class BeyondEnd(msgspec.Struct, frozen=True):
    """A committed offset beyond the end of its log: consumers get OFFSET_OUT_OF_RANGE, and reset."""

    group: str
    topic: str
    partition: int
    offset: int
    end_offset: int


def contents_of(state: BrokerState) -> Contents:
    topics = [topic for topic in state.catalog.topics.values() if not topic.is_internal]
    partitions = [part for topic in topics for part in state.topics.partitions[topic.topic_id]]
    groups = {
        name
        for shard in state.shards
        for names in (shard.hard.groups, shard.hard.consumers.groups, shard.hard.offsets)
        for name in names
    }
    return Contents(
        topics=len(topics),
        partitions=len(partitions),
        records=sum(partition.end_offset - partition.start_offset for partition in partitions),
        groups=len(groups),
        transactional_ids=sum(len(shard.ids) for shard in state.transactions.shards),
        users=len(state.catalog.credentials.by_user),
    )


def details_of(state: BrokerState) -> Details:
    transactions = [each for shard in state.transactions.shards for each in shard.ids.values()]
    return Details(
        acls=len(state.catalog.acls),
        quotas=len(state.catalog.quotas),
        share_partitions=sum(len(shard.states) for shard in state.shares.shards),
        open_transactions=sum(each.state is State.ONGOING for each in transactions),
    )


def beyond_ends(state: BrokerState) -> list[BeyondEnd]:
    found = []
    for shard in state.shards:
        for group, offsets in shard.hard.offsets.items():
            for (name, index), value in offsets.items():
                topic = state.topic(name)
                partition = None if topic is None else state.partition(topic, index)
                if partition is not None and value.offset > partition.end_offset:
                    found.append(BeyondEnd(group, name, index, value.offset, partition.end_offset))
    return sorted(found, key=lambda each: (each.group, each.topic, each.partition))
