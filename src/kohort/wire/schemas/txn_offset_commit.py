"""TxnOffsetCommit (API key 28)."""

from kohort.wire.schema import NO_UUID, Uuid, field, message


@message()
class TxnOffsetCommitRequestPartition:
    partition_index: int = field("int32")
    committed_offset: int = field("int64")
    committed_leader_epoch: int = field("int32", "2+", default=-1)
    committed_metadata: str | None = field("string", nullable="0+", default="")


@message()
class TxnOffsetCommitRequestTopic:
    name: str = field("string", "0-5", default="")
    topic_id: Uuid = field("uuid", "6+", default=NO_UUID)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = field([TxnOffsetCommitRequestPartition])


@message(api_key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = field("string")
    group_id: str = field("string")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    generation_id: int = field("int32", "3+", default=-1)
    member_id: str = field("string", "3+", default="")
    group_instance_id: str | None = field("string", "3+", nullable="3+", default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = field([TxnOffsetCommitRequestTopic])


@message()
class TxnOffsetCommitResponsePartition:
    partition_index: int = field("int32")
    error_code: int = field("int16")


@message()
class TxnOffsetCommitResponseTopic:
    name: str = field("string", "0-5", default="")
    topic_id: Uuid = field("uuid", "6+", default=NO_UUID)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = field([TxnOffsetCommitResponsePartition])


@message(api_key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = field("int32", default=0)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = field([TxnOffsetCommitResponseTopic])
