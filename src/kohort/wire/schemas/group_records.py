"""Records of the `__consumer_offsets` log, in Kafka's schema: a key is its type and fields, a value its version.

0 and 1 are commits, 2 is a classic group, 3 to 8 and 16 are consumer groups (KIP-848). Type 4 is missing: Kafka
dropped it in 4.1, since the topics themselves have its contents. The last one is kohort's own; Kafka's loader skips
unknown types.
"""

from kohort.wire.schema import NO_UUID, Uuid, field, message


@message(versions="0-1")
class OffsetCommitKey:
    group: str = field("string")
    topic: str = field("string")
    partition: int = field("int32")


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = field("int64")
    leader_epoch: int = field("int32", "3+", default=-1)
    metadata: str = field("string")
    commit_timestamp: int = field("int64")
    expire_timestamp: int = field("int64", "1", default=-1)
    topic_id: Uuid = field("uuid", "4+", tag=0, default=NO_UUID)


@message(versions="2")
class GroupMetadataKey:
    group: str = field("string")


@message()
class MemberMetadata:
    member_id: str = field("string")
    group_instance_id: str | None = field("string", "3+", nullable="3+", default=None)
    client_id: str = field("string")
    client_host: str = field("string")
    rebalance_timeout: int = field("int32", "1+", default=-1)
    session_timeout: int = field("int32")
    subscription: bytes = field("bytes")
    assignment: bytes = field("bytes")


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = field("string")
    generation: int = field("int32")
    protocol: str | None = field("string", nullable="0+", default=None)
    leader: str | None = field("string", nullable="0+", default=None)
    current_state_timestamp: int = field("int64", "2+", default=-1)
    members: tuple[MemberMetadata, ...] = field([MemberMetadata])


@message(versions="3")
class ConsumerGroupMetadataKey:
    group_id: str = field("string")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int = field("int32")
    metadata_hash: int = field("int64", tag=0, default=0)
    """A hash of the subscribed topics: a new hash makes a new epoch. 0 if not computed."""


@message(versions="5")
class ConsumerGroupMemberMetadataKey:
    group_id: str = field("string")
    member_id: str = field("string")


@message()
class ClassicProtocol:
    name: str = field("string")
    metadata: bytes = field("bytes")


@message()
class ClassicMemberMetadata:
    session_timeout_ms: int = field("int32")
    supported_protocols: tuple[ClassicProtocol, ...] = field([ClassicProtocol])


_UNKNOWN = ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=())


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = field("string", nullable="0+", default=None)
    rack_id: str | None = field("string", nullable="0+", default=None)
    client_id: str = field("string")
    client_host: str = field("string")
    subscribed_topic_names: tuple[str, ...] = field(["string"])
    subscribed_topic_regex: str | None = field("string", nullable="0+", default=None)
    rebalance_timeout_ms: int = field("int32", default=-1)
    server_assignor: str | None = field("string", nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, nullable="0+", tag=0, default=_UNKNOWN
    )
    """Set for a member that uses the classic protocol; null for the consumer protocol.

    A record without the tag has the empty struct, so Kafka writes null explicitly; do the same.
    """


@message(versions="6")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = field("string")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = field("int32")
    assignment_timestamp: int = field("int64", tag=0, default=0)
    """When the target was ready, in milliseconds since 1970; 0 in records from before Kafka 4.3."""


@message(versions="7")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = field("string")
    member_id: str = field("string")


@message()
class TargetTopicPartitions:
    topic_id: Uuid = field("uuid")
    partitions: tuple[int, ...] = field(["int32"])


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[TargetTopicPartitions, ...] = field([TargetTopicPartitions])


@message(versions="8")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = field("string")
    member_id: str = field("string")


@message()
class CurrentTopicPartitions:
    topic_id: Uuid = field("uuid")
    partitions: tuple[int, ...] = field(["int32"])
    assignment_epochs: tuple[int, ...] | None = field(["int32"], nullable="0+", tag=0, default=())
    """The epoch at which the member got each of `partitions` (KIP-1251). Null or empty before Kafka 4.3."""


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = field("int32")
    previous_member_epoch: int = field("int32")
    state: int = field("int8")
    """0 stable, 1 unrevoked partitions, 2 unreleased partitions."""
    assigned_partitions: tuple[CurrentTopicPartitions, ...] = field([CurrentTopicPartitions])
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...] = field([CurrentTopicPartitions])


@message(versions="16")
class ConsumerGroupRegularExpressionKey:
    group_id: str = field("string")
    regular_expression: str = field("string")


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: tuple[str, ...] = field(["string"])
    version: int = field("int64")
    """The version of the metadata that the expression was resolved against."""
    timestamp: int = field("int64")
    """When it was resolved, in milliseconds since 1970."""


@message(versions="30001")
class GenerationKey:
    group: str = field("string")


@message(versions="0")
class GenerationValue:
    generation: int = field("int32")
