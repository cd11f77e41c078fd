"""DeleteShareGroupState (API key 86)."""

from kohort.wire.schema import Uuid, field, message


@message()
class PartitionData:
    partition: int = field("int32")


@message()
class DeleteStateData:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionData, ...] = field([PartitionData])


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: str = field("string")
    topics: tuple[DeleteStateData, ...] = field([DeleteStateData])


@message()
class PartitionResult:
    partition: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)


@message()
class DeleteStateResult:
    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionResult, ...] = field([PartitionResult])


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: tuple[DeleteStateResult, ...] = field([DeleteStateResult])
