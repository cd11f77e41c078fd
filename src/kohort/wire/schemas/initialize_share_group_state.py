"""InitializeShareGroupState (API key 83)."""

from kohort.wire.schema import Uuid, field, message


@message()
class PartitionData:
    partition: int = field("int32")
    state_epoch: int = field("int32")
    start_offset: int = field("int64")


@message()
class InitializeStateData:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionData, ...] = field([PartitionData])


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str = field("string")
    topics: tuple[InitializeStateData, ...] = field([InitializeStateData])


@message()
class PartitionResult:
    partition: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)


@message()
class InitializeStateResult:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionResult, ...] = field([PartitionResult])


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: tuple[InitializeStateResult, ...] = field([InitializeStateResult])
