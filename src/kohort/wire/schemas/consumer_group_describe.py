"""ConsumerGroupDescribe (API key 69)."""

from kohort.wire.schema import Uuid, field, message


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...] = field(["string"])
    include_authorized_operations: bool = field("bool")


@message()
class DescribedTopicPartitions:
    topic_id: Uuid = field("uuid")
    topic_name: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message()
class DescribedAssignment:
    topic_partitions: tuple[DescribedTopicPartitions, ...] = field([DescribedTopicPartitions])


@message()
class DescribedConsumerGroupMember:
    member_id: str = field("string")
    instance_id: str | None = field("string", nullable="0+", default=None)
    rack_id: str | None = field("string", nullable="0+", default=None)
    member_epoch: int = field("int32")
    client_id: str = field("string")
    client_host: str = field("string")
    subscribed_topic_names: tuple[str, ...] = field(["string"])
    subscribed_topic_regex: str | None = field("string", nullable="0+", default=None)
    assignment: DescribedAssignment = field(DescribedAssignment)
    target_assignment: DescribedAssignment = field(DescribedAssignment)
    member_type: int = field("int8", "1+", default=-1)
    """0 for the classic protocol, 1 for the consumer protocol, -1 for unknown."""


@message()
class DescribedConsumerGroup:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default=None)
    group_id: str = field("string")
    group_state: str = field("string")
    group_epoch: int = field("int32")
    assignment_epoch: int = field("int32")
    assignor_name: str = field("string")
    members: tuple[DescribedConsumerGroupMember, ...] = field([DescribedConsumerGroupMember])
    authorized_operations: int = field("int32", default=-2147483648)


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = field("int32")
    groups: tuple[DescribedConsumerGroup, ...] = field([DescribedConsumerGroup])
