"""ReadShareGroupStateSummary (API key 87)."""

from kohort.wire.schema import Uuid, field, message


@message()
class PartitionData:
    partition: int = field("int32")
    leader_epoch: int = field("int32")


@message()
class ReadStateSummaryData:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionData, ...] = field([PartitionData])


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: str = field("string")
    topics: tuple[ReadStateSummaryData, ...] = field([ReadStateSummaryData])


@message()
class PartitionResult:
    partition: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    state_epoch: int = field("int32", default=0)
    leader_epoch: int = field("int32", default=0)
    start_offset: int = field("int64", default=0)
    delivery_complete_count: int = field("int32", "1+", default=-1)


@message()
class ReadStateSummaryResult:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionResult, ...] = field([PartitionResult])


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: tuple[ReadStateSummaryResult, ...] = field([ReadStateSummaryResult])
