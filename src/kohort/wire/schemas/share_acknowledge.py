"""ShareAcknowledge (API key 79)."""

from kohort.wire.schema import Uuid, field, message


@message()
class AcknowledgementBatch:
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    acknowledge_types: tuple[int, ...] = field(["int8"])
    """As in ShareFetch."""


@message()
class AcknowledgePartition:
    partition_index: int = field("int32")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = field([AcknowledgementBatch])


@message()
class AcknowledgeTopic:
    topic_id: Uuid = field("uuid")
    partitions: tuple[AcknowledgePartition, ...] = field([AcknowledgePartition])


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = field("string", nullable="0+", default=None)
    member_id: str | None = field("string", nullable="0+")
    share_session_epoch: int = field("int32")
    is_renew_ack: bool = field("bool", "2+", default=False)
    topics: tuple[AcknowledgeTopic, ...] = field([AcknowledgeTopic])


@message()
class LeaderIdAndEpoch:
    leader_id: int = field("int32", default=0)
    leader_epoch: int = field("int32", default=0)


@message()
class PartitionData:
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, default=LeaderIdAndEpoch())


@message()
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionData, ...] = field([PartitionData])


@message()
class NodeEndpoint:
    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", nullable="0+", default=None)


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field("int32", "2+", default=0)
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = field([ShareAcknowledgeTopicResponse], default=())
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], default=())
