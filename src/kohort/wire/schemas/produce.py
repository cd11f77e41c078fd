"""Produce (API key 0)."""

from kohort.wire.schema import NO_UUID, Uuid, field, message


@message()
class PartitionProduceData:
    index: int = field("int32")
    records: bytes | None = field("records", nullable="0+", default=None)


@message()
class TopicProduceData:
    name: str = field("string", "3-12", default="")
    topic_id: Uuid = field("uuid", "13+", default=NO_UUID)
    partition_data: tuple[PartitionProduceData, ...] = field([PartitionProduceData])


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = field("string", nullable="0+", default=None)
    acks: int = field("int16")
    timeout_ms: int = field("int32")
    topic_data: tuple[TopicProduceData, ...] = field([TopicProduceData])


@message()
class BatchIndexAndErrorMessage:
    batch_index: int = field("int32", "8+", default=0)
    batch_index_error_message: str | None = field("string", "8+", nullable="8+", default=None)


@message()
class LeaderIdAndEpoch:
    leader_id: int = field("int32", "10+", default=-1)
    leader_epoch: int = field("int32", "10+", default=-1)


@message()
class PartitionProduceResponse:
    index: int = field("int32")
    error_code: int = field("int16")
    base_offset: int = field("int64")
    log_append_time_ms: int = field("int64", default=-1)
    log_start_offset: int = field("int64", "5+", default=-1)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = field([BatchIndexAndErrorMessage], "8+", default=())
    error_message: str | None = field("string", "8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "10+", tag=0, default=LeaderIdAndEpoch())


@message()
class TopicProduceResponse:
    name: str = field("string", "3-12", default="")
    topic_id: Uuid = field("uuid", "13+", default=NO_UUID)
    partition_responses: tuple[PartitionProduceResponse, ...] = field([PartitionProduceResponse])


@message()
class NodeEndpoint:
    node_id: int = field("int32", "10+", default=0)
    host: str = field("string", "10+", default="")
    port: int = field("int32", "10+", default=0)
    rack: str | None = field("string", "10+", nullable="10+", default=None)


@message(api_key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: tuple[TopicProduceResponse, ...] = field([TopicProduceResponse])
    throttle_time_ms: int = field("int32", default=0)
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], "10+", tag=0, default=())
