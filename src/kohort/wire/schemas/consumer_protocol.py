"""The bytes of consumers in JoinGroup metadata and SyncGroup assignments (opaque to the coordinator)."""

from kohort.wire.schema import field, message


@message()
class TopicPartition:
    topic: str = field("string", "1+", default="")
    partitions: tuple[int, ...] = field(["int32"], "1+", default=())


@message(versions="0-3")
class ConsumerProtocolSubscription:
    topics: tuple[str, ...] = field(["string"])
    user_data: bytes | None = field("bytes", nullable="0+", default=None)
    owned_partitions: tuple[TopicPartition, ...] = field([TopicPartition], "1+", default=())
    generation_id: int = field("int32", "2+", default=-1)
    rack_id: str | None = field("string", "3+", nullable="3+", default=None)


@message()
class ConsumerProtocolAssignmentResponseTopicPartition:
    topic: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message(versions="0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: tuple[ConsumerProtocolAssignmentResponseTopicPartition, ...] = field(
        [ConsumerProtocolAssignmentResponseTopicPartition]
    )
    user_data: bytes | None = field("bytes", nullable="0+", default=None)
