"""OffsetDelete (API key 47)."""

from kohort.wire.schema import field, message


@message()
class OffsetDeleteRequestPartition:
    partition_index: int = field("int32")


@message()
class OffsetDeleteRequestTopic:
    name: str = field("string")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = field([OffsetDeleteRequestPartition])


@message(api_key=47, versions="0")
class OffsetDeleteRequest:
    group_id: str = field("string")
    topics: tuple[OffsetDeleteRequestTopic, ...] = field([OffsetDeleteRequestTopic])


@message()
class OffsetDeleteResponsePartition:
    partition_index: int = field("int32")
    error_code: int = field("int16")


@message()
class OffsetDeleteResponseTopic:
    name: str = field("string")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = field([OffsetDeleteResponsePartition])


@message(api_key=47, versions="0")
class OffsetDeleteResponse:
    error_code: int = field("int16")
    throttle_time_ms: int = field("int32", default=0)
    topics: tuple[OffsetDeleteResponseTopic, ...] = field([OffsetDeleteResponseTopic])
