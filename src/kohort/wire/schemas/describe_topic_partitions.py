"""DescribeTopicPartitions (API key 75)."""

from kohort.wire.schema import Uuid, field, message


@message()
class TopicRequest:
    name: str = field("string")


@message()
class Cursor:
    topic_name: str = field("string")
    partition_index: int = field("int32")


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: tuple[TopicRequest, ...] = field([TopicRequest])
    response_partition_limit: int = field("int32", default=2000)
    cursor: Cursor | None = field(Cursor, nullable="0+", default=None)


@message()
class DescribeTopicPartitionsResponsePartition:
    error_code: int = field("int16")
    partition_index: int = field("int32")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32", default=-1)
    replica_nodes: tuple[int, ...] = field(["int32"])
    isr_nodes: tuple[int, ...] = field(["int32"])
    eligible_leader_replicas: tuple[int, ...] | None = field(["int32"], nullable="0+", default=None)
    last_known_elr: tuple[int, ...] | None = field(["int32"], nullable="0+", default=None)
    offline_replicas: tuple[int, ...] = field(["int32"])


@message()
class DescribeTopicPartitionsResponseTopic:
    error_code: int = field("int16")
    name: str | None = field("string", nullable="0+", default="")
    topic_id: Uuid = field("uuid")
    is_internal: bool = field("bool", default=False)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = field([DescribeTopicPartitionsResponsePartition])
    topic_authorized_operations: int = field("int32", default=-2147483648)


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = field("int32", default=0)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = field([DescribeTopicPartitionsResponseTopic])
    next_cursor: Cursor | None = field(Cursor, nullable="0+", default=None)
