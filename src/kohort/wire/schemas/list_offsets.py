"""ListOffsets (API key 2)."""

from kohort.wire.schema import field, message


@message()
class ListOffsetsPartition:
    partition_index: int = field("int32")
    current_leader_epoch: int = field("int32", "4+", default=-1)
    timestamp: int = field("int64")


@message()
class ListOffsetsTopic:
    name: str = field("string")
    partitions: tuple[ListOffsetsPartition, ...] = field([ListOffsetsPartition])


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = field("int32")
    isolation_level: int = field("int8", "2+", default=0)
    topics: tuple[ListOffsetsTopic, ...] = field([ListOffsetsTopic])
    timeout_ms: int = field("int32", "10+", default=0)


@message()
class ListOffsetsPartitionResponse:
    partition_index: int = field("int32")
    error_code: int = field("int16")
    timestamp: int = field("int64", default=-1)
    offset: int = field("int64", default=-1)
    leader_epoch: int = field("int32", "4+", default=-1)


@message()
class ListOffsetsTopicResponse:
    name: str = field("string")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = field([ListOffsetsPartitionResponse])


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = field("int32", "2+", default=0)
    topics: tuple[ListOffsetsTopicResponse, ...] = field([ListOffsetsTopicResponse])
