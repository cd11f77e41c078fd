"""The frames of requests that hostile clients send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.schemas.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_numbers = count()


def number() -> int:
    """One that this process has not used."""
    return next(_numbers)


def frame(request: Any, version: int) -> bytes:
    return encode_request(request, version, 1, "hostile")


def create_topics(sizes: Mapping[str, int], configs: Mapping[str, str] | None = None) -> bytes:
    of_each = tuple(CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items())
    topics = tuple(
        CreatableTopic(name=name, num_partitions=size, replication_factor=1, assignments=(), configs=of_each)
        for name, size in sizes.items()
    )
    return frame(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)


def grow_topic(name: str, count: int) -> bytes:
    topics = (CreatePartitionsTopic(name=name, count=count),)
    return frame(CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=False), 1)


def commit(group: str, topic: str, partitions: Sequence[OffsetCommitRequestPartition]) -> bytes:
    topics = (OffsetCommitRequestTopic(name=topic, partitions=tuple(partitions)),)
    return frame(OffsetCommitRequest(group_id=group, member_id="", topics=topics), 8)


def fetch_offsets(group: str, times: int = 1) -> bytes:
    """All offsets of the group, `times` in one answer."""
    groups = (OffsetFetchRequestGroup(group_id=group, topics=None),) * times
    return frame(OffsetFetchRequest(groups=groups), 8)


def fetch(
    topic: str,
    partitions: Sequence[int],
    *,
    max_bytes: int = 2**31 - 1,
    wait_ms: int = 0,
    version: int = 12,
    session_epoch: int = -1,
    offset: int = 0,
) -> bytes:
    asked = tuple(FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=max_bytes) for p in partitions)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=session_epoch,
        topics=(FetchTopic(topic=topic, partitions=asked),),
    )
    return frame(request, version)


def search_offsets(topic: str, partitions: Iterable[int], timestamp: int) -> bytes:
    asked = tuple(ListOffsetsPartition(partition_index=p, timestamp=timestamp) for p in partitions)
    return frame(ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=asked),)), 5)


def produce(topic: str, partition: int, value: bytes, *, acks: int = 1) -> bytes:
    return produce_batch(topic, partition, encode_batch([NewRecord(None, value, 1)]), acks=acks)


def produce_batch(topic: str, partition: int, batch: bytes, *, acks: int = 1) -> bytes:
    data = (TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=partition, records=batch),)),)
    return frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data), 9)


@cache
def bomb(codec: int, size: int) -> bytes:
    """A batch with one record of zeros, compressed."""
    return encode_batch([NewRecord(None, bytes(size), 1)], compression=codec)


def join(group: str, metadata: bytes, *, instance: str | None = None, session_ms: int = 1_800_000) -> bytes:
    """A JoinGroup of a new member, which version 3 makes a member at once, or of a static one."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
    )
    return frame(request, 5 if instance is not None else 3)


def consumer_join(
    group: str, member_id: str, *, topics: tuple[str, ...] = (), regex: str | None = None, epoch: int = 0
) -> bytes:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        topic_partitions=(),
    )
    return frame(request, 1)


def metadata(*names: str, create: bool = False) -> bytes:
    """Of these topics, or of all."""
    topics = tuple(MetadataRequestTopic(name=name) for name in names) if names else None
    return frame(MetadataRequest(topics=topics, allow_auto_topic_creation=create), 9)


def api_versions() -> bytes:
    return frame(ApiVersionsRequest(client_software_name="hostile", client_software_version="1"), 3)


def find_transactions(transactional_id: str) -> bytes:
    return frame(FindCoordinatorRequest(key_type=1, coordinator_keys=(transactional_id,)), 4)


def init_producer(transactional_id: str) -> bytes:
    return frame(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4)


def add_to_transaction(
    transactional_id: str, producer: tuple[int, int], topic: str, partitions: Sequence[int]
) -> bytes:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=tuple(partitions)),),
    )
    return frame(request, 3)


def pending_offsets(
    transactional_id: str, producer: tuple[int, int], group: str, topic: str, partitions: Sequence[int]
) -> bytes:
    """AddOffsetsToTxn and TxnOffsetCommit."""
    of_producer = {"transactional_id": transactional_id, "producer_id": producer[0], "producer_epoch": producer[1]}
    offsets = tuple(TxnOffsetCommitRequestPartition(partition_index=p, committed_offset=1) for p in partitions)
    topics = (TxnOffsetCommitRequestTopic(name=topic, partitions=offsets),)
    return frame(AddOffsetsToTxnRequest(**of_producer, group_id=group), 3) + frame(
        TxnOffsetCommitRequest(**of_producer, group_id=group, topics=topics), 3
    )


def end_transaction(transactional_id: str, producer: tuple[int, int], *, committed: bool) -> bytes:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    return frame(request, 3)
