"""Records of the `__consumer_offsets` log, in Kafka's schema: a key is its type and fields, a value its version.

The last one is kohort's own; Kafka's loader skips types that it does not know.
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


@message(versions="30001")
class GenerationKey:
    group: str = field("string")


@message(versions="0")
class GenerationValue:
    generation: int = field("int32")
