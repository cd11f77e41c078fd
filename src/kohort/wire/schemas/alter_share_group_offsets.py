"""AlterShareGroupOffsets (API key 91)."""

from kohort.wire.schema import Uuid, field, message


@message()
class NewOffset:
    partition_index: int = field("int32")
    start_offset: int = field("int64")


@message()
class NewOffsetsTopic:
    topic_name: str = field("string")
    partitions: tuple[NewOffset, ...] = field([NewOffset])


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str = field("string")
    topics: tuple[NewOffsetsTopic, ...] = field([NewOffsetsTopic])


@message()
class AlteredOffset:
    partition_index: int = field("int32")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)


@message()
class AlteredOffsetsTopic:
    topic_name: str = field("string")
    topic_id: Uuid = field("uuid")
    partitions: tuple[AlteredOffset, ...] = field([AlteredOffset])


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    responses: tuple[AlteredOffsetsTopic, ...] = field([AlteredOffsetsTopic], default=())
