"""OffsetForLeaderEpoch (API key 23)."""

from kohort.wire.schema import field, message


@message()
class OffsetForLeaderPartition:
    partition: int = field("int32")
    current_leader_epoch: int = field("int32", default=-1)
    leader_epoch: int = field("int32")


@message()
class OffsetForLeaderTopic:
    topic: str = field("string")
    partitions: tuple[OffsetForLeaderPartition, ...] = field([OffsetForLeaderPartition])


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = field("int32", "3+", default=-2)
    topics: tuple[OffsetForLeaderTopic, ...] = field([OffsetForLeaderTopic])


@message()
class EpochEndOffset:
    error_code: int = field("int16")
    partition: int = field("int32")
    leader_epoch: int = field("int32", default=-1)
    end_offset: int = field("int64", default=-1)


@message()
class OffsetForLeaderTopicResult:
    topic: str = field("string")
    partitions: tuple[EpochEndOffset, ...] = field([EpochEndOffset])


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = field("int32", default=0)
    topics: tuple[OffsetForLeaderTopicResult, ...] = field([OffsetForLeaderTopicResult])
