"""AddPartitionsToTxn (API key 24). Versions from 4 on are for brokers: many ids, and mere questions."""

from kohort.wire.schema import field, message


@message()
class AddPartitionsToTxnTopic:
    name: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message()
class AddPartitionsToTxnTransaction:
    transactional_id: str = field("string")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    verify_only: bool = field("bool", default=False)
    topics: tuple[AddPartitionsToTxnTopic, ...] = field([AddPartitionsToTxnTopic])


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = field([AddPartitionsToTxnTransaction], "4+", default=())
    v3_and_below_transactional_id: str = field("string", "0-3", default="")
    v3_and_below_producer_id: int = field("int64", "0-3", default=-1)
    v3_and_below_producer_epoch: int = field("int16", "0-3", default=-1)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = field([AddPartitionsToTxnTopic], "0-3", default=())


@message()
class AddPartitionsToTxnPartitionResult:
    partition_index: int = field("int32")
    partition_error_code: int = field("int16")


@message()
class AddPartitionsToTxnTopicResult:
    name: str = field("string")
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = field([AddPartitionsToTxnPartitionResult])


@message()
class AddPartitionsToTxnResult:
    transactional_id: str = field("string")
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = field([AddPartitionsToTxnTopicResult])


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", "4+", default=0)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = field([AddPartitionsToTxnResult], "4+", default=())
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = field(
        [AddPartitionsToTxnTopicResult], "0-3", default=()
    )
