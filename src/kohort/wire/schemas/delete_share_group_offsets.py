"""DeleteShareGroupOffsets (API key 92)."""

from kohort.wire.schema import Uuid, field, message


@message()
class NamedTopic:
    topic_name: str = field("string")


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = field("string")
    topics: tuple[NamedTopic, ...] = field([NamedTopic])


@message()
class DeletedOffsetsTopic:
    topic_name: str = field("string")
    topic_id: Uuid = field("uuid")
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    responses: tuple[DeletedOffsetsTopic, ...] = field([DeletedOffsetsTopic], default=())
