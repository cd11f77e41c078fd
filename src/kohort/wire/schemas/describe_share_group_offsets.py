"""DescribeShareGroupOffsets (API key 90), with tagged fields of our own: see docs/wire-extensions.md."""

from kohort.wire.schema import OWN_TAGS, Uuid, field, message


@message()
class OffsetsAskedTopic:
    topic_name: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message()
class OffsetsAskedGroup:
    group_id: str = field("string")
    topics: tuple[OffsetsAskedTopic, ...] | None = field([OffsetsAskedTopic], nullable="0+")
    """Null: all partitions with a state."""


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: tuple[OffsetsAskedGroup, ...] = field([OffsetsAskedGroup])
    records_most: int = field("int32", tag=OWN_TAGS + 10, default=-1)
    """How many ranges of each kind the client wants of each partition; -1: none, and no counts either."""


@message()
class DescribedOffset:
    partition_index: int = field("int32")
    start_offset: int = field("int64")
    leader_epoch: int = field("int32")
    lag: int = field("int64", "1+", default=-1)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)
    records: bytes = field("bytes", tag=OWN_TAGS + 11, default=b"")
    """JSON (broker/shares/reports.py)."""


@message()
class DescribedOffsetsTopic:
    topic_name: str = field("string")
    topic_id: Uuid = field("uuid")
    partitions: tuple[DescribedOffset, ...] = field([DescribedOffset])


@message()
class DescribedOffsetsGroup:
    group_id: str = field("string")
    topics: tuple[DescribedOffsetsTopic, ...] = field([DescribedOffsetsTopic])
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", nullable="0+", default=None)


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = field("int32", default=0)
    groups: tuple[DescribedOffsetsGroup, ...] = field([DescribedOffsetsGroup])
