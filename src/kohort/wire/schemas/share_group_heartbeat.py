"""ShareGroupHeartbeat (API key 76)."""

from kohort.wire.schema import Uuid, field, message


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = field("string")
    member_id: str = field("string")
    member_epoch: int = field("int32")
    """0 joins, -1 leaves."""
    rack_id: str | None = field("string", nullable="0+", default=None)
    subscribed_topic_names: tuple[str, ...] | None = field(["string"], nullable="0+", default=None)


@message()
class TopicPartitions:
    topic_id: Uuid = field("uuid")
    partitions: tuple[int, ...] = field(["int32"])


@message()
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = field([TopicPartitions])


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    member_id: str | None = field("string", nullable="0+", default=None)
    member_epoch: int = field("int32", default=0)
    heartbeat_interval_ms: int = field("int32", default=0)
    assignment: Assignment | None = field(Assignment, nullable="0+", default=None)
