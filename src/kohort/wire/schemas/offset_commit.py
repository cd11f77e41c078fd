"""OffsetCommit (API key 8)."""

from kohort.wire.schema import NO_UUID, Uuid, field, message


@message()
class OffsetCommitRequestPartition:
    partition_index: int = field("int32")
    committed_offset: int = field("int64")
    committed_leader_epoch: int = field("int32", "6+", default=-1)
    committed_metadata: str | None = field("string", nullable="0+", default="")


@message()
class OffsetCommitRequestTopic:
    name: str = field("string", "2-9", default="")
    topic_id: Uuid = field("uuid", "10+", default=NO_UUID)
    partitions: tuple[OffsetCommitRequestPartition, ...] = field([OffsetCommitRequestPartition])


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = field("string")
    generation_id_or_member_epoch: int = field("int32", default=-1)
    member_id: str = field("string")
    group_instance_id: str | None = field("string", "7+", nullable="7+", default=None)
    retention_time_ms: int = field("int64", "2-4", default=-1)
    topics: tuple[OffsetCommitRequestTopic, ...] = field([OffsetCommitRequestTopic])


@message()
class OffsetCommitResponsePartition:
    partition_index: int = field("int32")
    error_code: int = field("int16")


@message()
class OffsetCommitResponseTopic:
    name: str = field("string", "2-9", default="")
    topic_id: Uuid = field("uuid", "10+", default=NO_UUID)
    partitions: tuple[OffsetCommitResponsePartition, ...] = field([OffsetCommitResponsePartition])


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = field("int32", "3+", default=0)
    topics: tuple[OffsetCommitResponseTopic, ...] = field([OffsetCommitResponseTopic])
