"""Records of share groups in the `__consumer_offsets` log, in Kafka's schema (KIP-932): types 10 to 15."""

from kohort.wire.schema import Uuid, field, message


@message(versions="10")
class ShareGroupMemberMetadataKey:
    group_id: str = field("string")
    member_id: str = field("string")


@message(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = field("string", nullable="0+", default=None)
    client_id: str = field("string")
    client_host: str = field("string")
    subscribed_topic_names: tuple[str, ...] = field(["string"])


@message(versions="11")
class ShareGroupMetadataKey:
    group_id: str = field("string")


@message(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int = field("int32")
    metadata_hash: int = field("int64", default=0)
    """A hash of the subscribed topics: a new hash makes a new epoch."""


@message(versions="12")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = field("string")


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = field("int32")
    assignment_timestamp: int = field("int64", tag=0, default=0)
    """When the target was made, in milliseconds since 1970; 0 if unknown."""


@message(versions="13")
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = field("string")
    member_id: str = field("string")


@message()
class ShareTopicPartitions:
    topic_id: Uuid = field("uuid")
    partitions: tuple[int, ...] = field(["int32"])


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[ShareTopicPartitions, ...] = field([ShareTopicPartitions])


@message(versions="14")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = field("string")
    member_id: str = field("string")


@message(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = field("int32")
    previous_member_epoch: int = field("int32")
    state: int = field("int8", default=0)
    assigned_partitions: tuple[ShareTopicPartitions, ...] = field([ShareTopicPartitions])


@message(versions="15")
class ShareGroupStatePartitionMetadataKey:
    group_id: str = field("string")


@message()
class TopicPartitionsInfo:
    topic_id: Uuid = field("uuid")
    topic_name: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message()
class TopicInfo:
    topic_id: Uuid = field("uuid")
    topic_name: str = field("string")


@message(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The partitions whose state the group has. kohort does both at once, so two lists stay empty."""

    initializing_topics: tuple[TopicPartitionsInfo, ...] = field([TopicPartitionsInfo], default=())
    initialized_topics: tuple[TopicPartitionsInfo, ...] = field([TopicPartitionsInfo])
    deleting_topics: tuple[TopicInfo, ...] = field([TopicInfo], default=())


@message()
class EarlierTopicPartitionsInfo:
    topic_id: Uuid = field("uuid")
    topic_name: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])
    create_timestamp: int = field("int64")


@message(versions="0", flexible="0+")
class EarlierShareGroupStatePartitionMetadataValue:
    """As kohort wrote it before it had Kafka's layout."""

    initializing_topics: tuple[EarlierTopicPartitionsInfo, ...] = field([EarlierTopicPartitionsInfo])
    initialized_topics: tuple[EarlierTopicPartitionsInfo, ...] = field([EarlierTopicPartitionsInfo])
    deleting_topics: tuple[TopicInfo, ...] = field([TopicInfo])
