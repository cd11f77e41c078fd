"""CreatePartitions (API key 37)."""

from kohort.wire.schema import field, message


@message()
class CreatePartitionsAssignment:
    broker_ids: tuple[int, ...] = field(["int32"])


@message()
class CreatePartitionsTopic:
    name: str = field("string")
    count: int = field("int32")
    assignments: tuple[CreatePartitionsAssignment, ...] | None = field(
        [CreatePartitionsAssignment], nullable="0+", default=None
    )


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...] = field([CreatePartitionsTopic])
    timeout_ms: int = field("int32")
    validate_only: bool = field("bool")


@message()
class CreatePartitionsTopicResult:
    name: str = field("string")
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = field("int32", default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = field([CreatePartitionsTopicResult])
