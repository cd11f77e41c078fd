"""The requests of one transaction, and the codes in their answers. Without IO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import pack_into, unpack_from

from google_crc32c import value as crc32c

from kohort.client.admin.groups import Committed, Committer
from kohort.client.metadata import TopicPartition
from kohort.client.transactions.identity import Identity, Prepared
from kohort.wire.batches import CRC_START, TRANSACTIONAL
from kohort.wire.embedded import by_topic
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_CRC_AT, _ATTRIBUTES_AT, _PRODUCER_AT, _COUNT_AT = 17, 21, 43, 57


def stamped(batch: bytes, identity: Identity, sequence: int) -> bytes:
    """The record batch as one of this producer's transaction, with this base sequence."""
    changed = bytearray(batch)
    (attributes,) = unpack_from(">h", changed, _ATTRIBUTES_AT)
    pack_into(">h", changed, _ATTRIBUTES_AT, attributes | TRANSACTIONAL)
    pack_into(">qhi", changed, _PRODUCER_AT, identity.producer_id, identity.epoch, sequence)
    pack_into(">I", changed, _CRC_AT, crc32c(bytes(memoryview(changed)[CRC_START:])))
    return bytes(changed)


def record_count(batch: bytes) -> int:
    (count,) = unpack_from(">i", batch, _COUNT_AT)
    return int(count)


def add_partitions(
    transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=tuple(indexes)) for topic, indexes in by_topic(partitions)
        ),
    )


def added(answer: AddPartitionsToTxnResponse) -> Iterator[tuple[TopicPartition, int]]:
    """The error code of each partition."""
    for topic in answer.results_by_topic_v3_and_below:
        for row in topic.results_by_partition:
            yield (topic.name, row.partition_index), row.partition_error_code


def add_offsets(transactional_id: str, identity: Identity, group_id: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )


def produce(
    transactional_id: str,
    timeout_ms: int,
    partitions: Sequence[TopicPartition],
    batches: Mapping[TopicPartition, bytes],
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=tuple(
            TopicProduceData(
                name=topic,
                partition_data=tuple(
                    PartitionProduceData(index=index, records=batches[topic, index]) for index in indexes
                ),
            )
            for topic, indexes in by_topic(partitions)
        ),
    )


def offset_commit(
    transactional_id: str,
    identity: Identity,
    group_id: str,
    offsets: Mapping[TopicPartition, Committed],
    member: Committer,
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=member.generation_id_or_epoch,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=tuple(
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[topic, index].offset,
                        committed_leader_epoch=offsets[topic, index].leader_epoch,
                        committed_metadata=offsets[topic, index].metadata,
                    )
                    for index in indexes
                ),
            )
            for topic, indexes in by_topic(offsets)
        ),
    )


def refused_offsets(answer: TxnOffsetCommitResponse) -> Iterator[tuple[TopicPartition, int]]:
    for topic in answer.topics:
        for row in topic.partitions:
            if row.error_code:
                yield (topic.name, row.partition_index), row.error_code


def end(prepared: Prepared, *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.epoch,
        committed=committed,
    )
