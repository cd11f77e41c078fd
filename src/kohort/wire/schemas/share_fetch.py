"""ShareFetch (API key 78)."""

from kohort.wire.schema import Uuid, field, message


@message()
class AcknowledgementBatch:
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    acknowledge_types: tuple[int, ...] = field(["int8"])
    """One for each offset, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


@message()
class FetchPartition:
    partition_index: int = field("int32")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = field([AcknowledgementBatch], default=())


@message()
class FetchTopic:
    topic_id: Uuid = field("uuid")
    partitions: tuple[FetchPartition, ...] = field([FetchPartition])


@message()
class ForgottenTopic:
    topic_id: Uuid = field("uuid")
    partitions: tuple[int, ...] = field(["int32"])


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = field("string", nullable="0+", default=None)
    member_id: str | None = field("string", nullable="0+")
    share_session_epoch: int = field("int32")
    """0 opens a session, -1 closes it; otherwise the number of the request in the session."""
    max_wait_ms: int = field("int32")
    min_bytes: int = field("int32")
    max_bytes: int = field("int32", default=2147483647)
    max_records: int = field("int32")
    batch_size: int = field("int32")
    share_acquire_mode: int = field("int8", "2+", default=0)
    """0 whole batches, 1 never more than `max_records`."""
    is_renew_ack: bool = field("bool", "2+", default=False)
    topics: tuple[FetchTopic, ...] = field([FetchTopic])
    forgotten_topics_data: tuple[ForgottenTopic, ...] = field([ForgottenTopic], default=())


@message()
class LeaderIdAndEpoch:
    leader_id: int = field("int32", default=0)
    leader_epoch: int = field("int32", default=0)


@message()
class AcquiredRecords:
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    delivery_count: int = field("int16")


@message()
class PartitionData:
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    acknowledge_error_code: int = field("int16", default=0)
    acknowledge_error_message: str | None = field("string", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, default=LeaderIdAndEpoch())
    records: bytes | None = field("records", nullable="0+", default=None)
    acquired_records: tuple[AcquiredRecords, ...] = field([AcquiredRecords], default=())


@message()
class ShareFetchableTopicResponse:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionData, ...] = field([PartitionData])


@message()
class NodeEndpoint:
    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", nullable="0+", default=None)


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field("int32", default=0)
    responses: tuple[ShareFetchableTopicResponse, ...] = field([ShareFetchableTopicResponse], default=())
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], default=())
