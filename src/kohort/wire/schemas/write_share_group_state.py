"""WriteShareGroupState (API key 85)."""

from kohort.wire.schema import Uuid, field, message


@message()
class StateBatch:
    first_offset: int = field("int64")
    last_offset: int = field("int64")
    delivery_state: int = field("int8")
    delivery_count: int = field("int16")


@message()
class PartitionData:
    partition: int = field("int32")
    state_epoch: int = field("int32")
    leader_epoch: int = field("int32")
    start_offset: int = field("int64")
    delivery_complete_count: int = field("int32", "1+", default=-1)
    state_batches: tuple[StateBatch, ...] = field([StateBatch])


@message()
class WriteStateData:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionData, ...] = field([PartitionData])


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: str = field("string")
    topics: tuple[WriteStateData, ...] = field([WriteStateData])


@message()
class PartitionResult:
    partition: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)


@message()
class WriteStateResult:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionResult, ...] = field([PartitionResult])


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: tuple[WriteStateResult, ...] = field([WriteStateResult])
