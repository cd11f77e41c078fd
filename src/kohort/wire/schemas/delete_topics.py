"""DeleteTopics (API key 20)."""

from kohort.wire.schema import NO_UUID, Uuid, field, message


@message()
class DeleteTopicState:
    name: str | None = field("string", "6+", nullable="6+", default=None)
    topic_id: Uuid = field("uuid", "6+", default=NO_UUID)


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: tuple[DeleteTopicState, ...] = field([DeleteTopicState], "6+", default=())
    topic_names: tuple[str, ...] = field(["string"], "1-5", default=())
    timeout_ms: int = field("int32")


@message()
class DeletableTopicResult:
    name: str | None = field("string", nullable="6+", default="")
    topic_id: Uuid = field("uuid", "6+", default=NO_UUID)
    error_code: int = field("int16")
    error_message: str | None = field("string", "5+", nullable="5+", default=None)


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = field("int32", default=0)
    responses: tuple[DeletableTopicResult, ...] = field([DeletableTopicResult])
