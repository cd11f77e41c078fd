"""Fetch (API key 1), with tagged fields of our own that fence readers by ownership: see docs/wire-extensions.md."""

from kohort.wire.schema import NO_UUID, OWN_TAGS, Uuid, field, message


@message()
class ReplicaState:
    replica_id: int = field("int32", "15+", default=-1)
    replica_epoch: int = field("int64", "15+", default=-1)


@message()
class FetchPartition:
    partition: int = field("int32")
    current_leader_epoch: int = field("int32", "9+", default=-1)
    fetch_offset: int = field("int64")
    last_fetched_epoch: int = field("int32", "12+", default=-1)
    log_start_offset: int = field("int64", "5+", default=-1)
    partition_max_bytes: int = field("int32")
    replica_directory_id: Uuid = field("uuid", "17+", tag=0, default=NO_UUID)
    high_watermark: int = field("int64", "18+", tag=1, default=9223372036854775807)


@message()
class FetchTopic:
    topic: str = field("string", "4-12", default="")
    topic_id: Uuid = field("uuid", "13+", default=NO_UUID)
    partitions: tuple[FetchPartition, ...] = field([FetchPartition])


@message()
class ForgottenTopic:
    topic: str = field("string", "7-12", default="")
    topic_id: Uuid = field("uuid", "13+", default=NO_UUID)
    partitions: tuple[int, ...] = field(["int32"], "7+", default=())


@message()
class FetchingMember:
    """The member of a consumer group that reads."""

    group_id: str = field("string", default="")
    member_id: str = field("string", default="")
    member_epoch: int = field("int32", default=-1)


NOBODY = FetchingMember()


@message(api_key=1, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = field("string", "12+", nullable="12+", tag=0, default=None)
    replica_id: int = field("int32", "4-14", default=-1)
    replica_state: ReplicaState = field(ReplicaState, "15+", tag=1, default=ReplicaState())
    max_wait_ms: int = field("int32")
    min_bytes: int = field("int32")
    max_bytes: int = field("int32", default=2147483647)
    isolation_level: int = field("int8", default=0)
    session_id: int = field("int32", "7+", default=0)
    session_epoch: int = field("int32", "7+", default=-1)
    topics: tuple[FetchTopic, ...] = field([FetchTopic])
    forgotten_topics_data: tuple[ForgottenTopic, ...] = field([ForgottenTopic], "7+", default=())
    rack_id: str = field("string", "11+", default="")
    as_member: FetchingMember = field(FetchingMember, "12+", tag=OWN_TAGS + 3, default=NOBODY)
    """The server refuses partitions that this member does not own at this epoch. NOBODY means no member."""


@message()
class EpochEndOffset:
    epoch: int = field("int32", "12+", default=-1)
    end_offset: int = field("int64", "12+", default=-1)


@message()
class LeaderIdAndEpoch:
    leader_id: int = field("int32", "12+", default=-1)
    leader_epoch: int = field("int32", "12+", default=-1)


@message()
class SnapshotId:
    end_offset: int = field("int64", default=-1)
    epoch: int = field("int32", default=-1)


@message()
class AbortedTransaction:
    producer_id: int = field("int64")
    first_offset: int = field("int64")


@message()
class PartitionData:
    partition_index: int = field("int32")
    error_code: int = field("int16")
    high_watermark: int = field("int64")
    last_stable_offset: int = field("int64", default=-1)
    log_start_offset: int = field("int64", "5+", default=-1)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, "12+", tag=0, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "12+", tag=1, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = field(SnapshotId, "12+", tag=2, default=SnapshotId())
    aborted_transactions: tuple[AbortedTransaction, ...] | None = field(
        [AbortedTransaction], nullable="0+", default=None
    )
    preferred_read_replica: int = field("int32", "11+", default=-1)
    records: bytes | None = field("records", nullable="0+", default=None)


@message()
class FetchableTopicResponse:
    topic: str = field("string", "4-12", default="")
    topic_id: Uuid = field("uuid", "13+", default=NO_UUID)
    partitions: tuple[PartitionData, ...] = field([PartitionData])


@message()
class NodeEndpoint:
    node_id: int = field("int32", "16+", default=0)
    host: str = field("string", "16+", default="")
    port: int = field("int32", "16+", default=0)
    rack: str | None = field("string", "16+", nullable="16+", default=None)


@message(api_key=1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", "7+", default=0)
    session_id: int = field("int32", "7+", default=0)
    responses: tuple[FetchableTopicResponse, ...] = field([FetchableTopicResponse])
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], "16+", tag=0, default=())
    fenced: bool = field("bool", "12+", tag=OWN_TAGS + 3, default=False)
    """Whether the server checked ownership, as requested."""
