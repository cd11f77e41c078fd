"""ConsumerGroupHeartbeat (API key 68)."""

from kohort.wire.schema import Uuid, field, message


@message()
class HeartbeatTopicPartitions:
    topic_id: Uuid = field("uuid")
    partitions: tuple[int, ...] = field(["int32"])


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """In a nullable field null says that nothing has changed since the last heartbeat; so does the timeout's -1."""

    group_id: str = field("string")
    member_id: str = field("string")
    member_epoch: int = field("int32")
    """0 joins, -1 leaves, -2 leaves a static member's place to whoever comes back under its instance id."""
    instance_id: str | None = field("string", nullable="0+", default=None)
    rack_id: str | None = field("string", nullable="0+", default=None)
    rebalance_timeout_ms: int = field("int32", default=-1)
    subscribed_topic_names: tuple[str, ...] | None = field(["string"], nullable="0+", default=None)
    subscribed_topic_regex: str | None = field("string", "1+", nullable="1+", default=None)
    server_assignor: str | None = field("string", nullable="0+", default=None)
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] | None = field(
        [HeartbeatTopicPartitions], nullable="0+", default=None
    )
    """What the member owns."""


@message()
class HeartbeatAssignment:
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] = field([HeartbeatTopicPartitions])


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default=None)
    member_id: str | None = field("string", nullable="0+", default=None)
    member_epoch: int = field("int32")
    heartbeat_interval_ms: int = field("int32")
    assignment: HeartbeatAssignment | None = field(HeartbeatAssignment, nullable="0+", default=None)
    """All that the member may own now, or null when that is what it was told before."""
