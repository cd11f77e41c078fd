"""ReadShareGroupState (API key 84)."""

from kohort.wire.schema import Uuid, field, message


@message()
class PartitionData:
    partition: int = field("int32")
    leader_epoch: int = field("int32")


@message()
class ReadStateData:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionData, ...] = field([PartitionData])


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str = field("string")
    topics: tuple[ReadStateData, ...] = field([ReadStateData])


@message()
class StateBatch:
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    delivery_state: int = field("int8")
    delivery_count: int = field("int16")


@message()
class PartitionResult:
    partition: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    state_epoch: int = field("int32", default=0)
    start_offset: int = field("int64", default=0)
    state_batches: tuple[StateBatch, ...] = field([StateBatch], default=())


@message()
class ReadStateResult:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionResult, ...] = field([PartitionResult])


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: tuple[ReadStateResult, ...] = field([ReadStateResult])
