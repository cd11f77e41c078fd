"""DeleteRecords (API key 21)."""

from kohort.wire.schema import field, message


@message()
class DeleteRecordsPartition:
    partition_index: int = field("int32")
    offset: int = field("int64")


@message()
class DeleteRecordsTopic:
    name: str = field("string")
    partitions: tuple[DeleteRecordsPartition, ...] = field([DeleteRecordsPartition])


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsTopic, ...] = field([DeleteRecordsTopic])
    timeout_ms: int = field("int32")


@message()
class DeleteRecordsPartitionResult:
    partition_index: int = field("int32")
    low_watermark: int = field("int64")
    error_code: int = field("int16")


@message()
class DeleteRecordsTopicResult:
    name: str = field("string")
    partitions: tuple[DeleteRecordsPartitionResult, ...] = field([DeleteRecordsPartitionResult])


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = field("int32", default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = field([DeleteRecordsTopicResult])
