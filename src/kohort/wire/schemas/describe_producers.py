"""DescribeProducers (API key 61): what partitions know of the producers that write to them."""

from kohort.wire.schema import field, message


@message()
class TopicRequest:
    name: str = field("string")
    partition_indexes: tuple[int, ...] = field(["int32"])


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: tuple[TopicRequest, ...] = field([TopicRequest])


@message()
class ProducerState:
    producer_id: int = field("int64")
    producer_epoch: int = field("int32")
    last_sequence: int = field("int32", default=-1)
    last_timestamp: int = field("int64", default=-1)
    coordinator_epoch: int = field("int32")
    current_txn_start_offset: int = field("int64", default=-1)


@message()
class PartitionResponse:
    partition_index: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default=None)
    active_producers: tuple[ProducerState, ...] = field([ProducerState])


@message()
class TopicResponse:
    name: str = field("string")
    partitions: tuple[PartitionResponse, ...] = field([PartitionResponse])


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = field("int32", default=0)
    topics: tuple[TopicResponse, ...] = field([TopicResponse])
