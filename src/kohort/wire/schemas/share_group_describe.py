"""ShareGroupDescribe (API key 77)."""

from kohort.wire.schema import Uuid, field, message


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: tuple[str, ...] = field(["string"])
    include_authorized_operations: bool = field("bool", default=False)


@message()
class TopicPartitions:
    topic_id: Uuid = field("uuid")
    topic_name: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message()
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = field([TopicPartitions])


@message()
class Member:
    member_id: str = field("string")
    rack_id: str | None = field("string", nullable="0+", default=None)
    member_epoch: int = field("int32")
    client_id: str = field("string")
    client_host: str = field("string")
    subscribed_topic_names: tuple[str, ...] = field(["string"])
    assignment: Assignment = field(Assignment)


@message()
class DescribedGroup:
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    group_id: str = field("string")
    group_state: str = field("string", default="")
    group_epoch: int = field("int32", default=0)
    assignment_epoch: int = field("int32", default=0)
    assignor_name: str = field("string", default="")
    members: tuple[Member, ...] = field([Member], default=())
    authorized_operations: int = field("int32", default=-2147483648)


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int = field("int32", default=0)
    groups: tuple[DescribedGroup, ...] = field([DescribedGroup])
