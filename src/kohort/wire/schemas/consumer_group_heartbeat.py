"""ConsumerGroupHeartbeat (API key 68)."""

from kohort.wire.schema import Uuid, field, message


@message()
class HeartbeatTopicPartitions:
    topic_id: Uuid = field("uuid")
    partitions: tuple[int, ...] = field(["int32"])


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """Null in a nullable field, and -1 for the timeout, mean no change since the last heartbeat."""

    group_id: str = field("string")
    member_id: str = field("string")
    member_epoch: int = field("int32")
    """0 joins, -1 leaves, -2 keeps a static member's place for the next process with its instance id."""
    instance_id: str | None = field("string", nullable="0+", default=None)
    rack_id: str | None = field("string", nullable="0+", default=None)
    rebalance_timeout_ms: int = field("int32", default=-1)
    subscribed_topic_names: tuple[str, ...] | None = field(["string"], nullable="0+", default=None)
    subscribed_topic_regex: str | None = field("string", "1+", nullable="1+", default=None)
    server_assignor: str | None = field("string", nullable="0+", default=None)
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] | None = field(
        [HeartbeatTopicPartitions], nullable="0+", default=None
    )
    """The member's own partitions."""


@message()
class HeartbeatAssignment:
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] = field([HeartbeatTopicPartitions])


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default=None)
    member_id: str | None = field("string", nullable="0+", default=None)
    member_epoch: int = field("int32")
    heartbeat_interval_ms: int = field("int32")
    assignment: HeartbeatAssignment | None = field(HeartbeatAssignment, nullable="0+", default=None)
    """All partitions that the member may own now; null if unchanged since the last answer."""
