"""AddPartitionsToTxn (API key 24). Versions from 4 on are for brokers among themselves."""

from kohort.wire.schema import field, message


@message()
class AddPartitionsToTxnTopic:
    name: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message(api_key=24, versions="0-3", flexible="3+")
class AddPartitionsToTxnRequest:
    v3_and_below_transactional_id: str = field("string")
    v3_and_below_producer_id: int = field("int64")
    v3_and_below_producer_epoch: int = field("int16")
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = field([AddPartitionsToTxnTopic])


@message()
class AddPartitionsToTxnPartitionResult:
    partition_index: int = field("int32")
    partition_error_code: int = field("int16")


@message()
class AddPartitionsToTxnTopicResult:
    name: str = field("string")
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = field([AddPartitionsToTxnPartitionResult])


@message(api_key=24, versions="0-3", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = field("int32", default=0)
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = field([AddPartitionsToTxnTopicResult])
