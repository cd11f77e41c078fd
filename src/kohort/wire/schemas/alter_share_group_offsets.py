"""AlterShareGroupOffsets (API key 91), with tagged fields of our own: see docs/wire-extensions.md."""

from kohort.wire.schema import OWN_TAGS, Uuid, field, message

NOT_SET = -2
"""A start offset that brokers refuse, unless records are to be delivered again."""


@message()
class OffsetRange:
    first_offset: int = field("int64")
    last_offset: int = field("int64")


@message()
class NewOffset:
    partition_index: int = field("int32")
    start_offset: int = field("int64")
    redeliver: tuple[OffsetRange, ...] = field([OffsetRange], tag=OWN_TAGS + 12, default=())
    """Make these records available again, and leave the rest as it is. The start offset must then be NOT_SET."""


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
    redelivered: int = field("int64", tag=OWN_TAGS + 13, default=-1)
    """How many records became available."""


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
