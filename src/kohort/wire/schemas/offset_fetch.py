"""OffsetFetch (API key 9), with tagged fields of our own that tell the lag: see docs/wire-extensions.md.

The server sends the other tags only to a request with `with_lag`. 30007 is reserved.
"""

from kohort.wire.schema import NO_UUID, OWN_TAGS, Uuid, field, message


@message()
class OffsetFetchRequestTopic:
    name: str = field("string", "1-7", default="")
    partition_indexes: tuple[int, ...] = field(["int32"], "1-7", default=())


@message()
class OffsetFetchRequestTopics:
    name: str = field("string", "8-9", default="")
    topic_id: Uuid = field("uuid", "10+", default=NO_UUID)
    partition_indexes: tuple[int, ...] = field(["int32"], "8+", default=())


@message()
class OffsetFetchRequestGroup:
    group_id: str = field("string", "8+", default="")
    member_id: str | None = field("string", "9+", nullable="9+", default=None)
    member_epoch: int = field("int32", "9+", default=-1)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = field(
        [OffsetFetchRequestTopics], "8+", nullable="8+", default=None
    )


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = field("string", "1-7", default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = field(
        [OffsetFetchRequestTopic], "1-7", nullable="2-7", default=None
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = field([OffsetFetchRequestGroup], "8+", default=())
    require_stable: bool = field("bool", "7+", default=False)
    with_lag: bool = field("bool", "6+", tag=OWN_TAGS + 4, default=False)


@message()
class OffsetFetchResponsePartition:
    partition_index: int = field("int32", "1-7", default=0)
    committed_offset: int = field("int64", "1-7", default=0)
    committed_leader_epoch: int = field("int32", "5-7", default=-1)
    metadata: str | None = field("string", "1-7", nullable="1-7", default="")
    error_code: int = field("int16", "1-7", default=0)
    end_offset: int = field("int64", "6-7", tag=OWN_TAGS + 5, default=-1)
    lag_ms: int = field("int64", "6-7", tag=OWN_TAGS + 6, default=-1)
    burrow_status: int = field("int8", "6-7", tag=OWN_TAGS + 7, default=-1)
    last_stable_offset: int = field("int64", "6-7", tag=OWN_TAGS + 9, default=-1)


@message()
class OffsetFetchResponseTopic:
    name: str = field("string", "1-7", default="")
    partitions: tuple[OffsetFetchResponsePartition, ...] = field([OffsetFetchResponsePartition], "1-7", default=())


@message()
class OffsetFetchResponsePartitions:
    partition_index: int = field("int32", "8+", default=0)
    committed_offset: int = field("int64", "8+", default=0)
    committed_leader_epoch: int = field("int32", "8+", default=-1)
    metadata: str | None = field("string", "8+", nullable="8+", default="")
    error_code: int = field("int16", "8+", default=0)
    end_offset: int = field("int64", "8+", tag=OWN_TAGS + 5, default=-1)
    """Where the log ends; -1: there is no such partition, or the lag was not asked for."""
    lag_ms: int = field("int64", "8+", tag=OWN_TAGS + 6, default=-1)
    """The age of the record at the committed offset, 0 if the log has none; -1: unknown, or nothing is committed."""
    burrow_status: int = field("int8", "8+", tag=OWN_TAGS + 7, default=-1)
    """Burrow's number for the group in the partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND; -1 as for `lag_ms`."""
    last_stable_offset: int = field("int64", "8+", tag=OWN_TAGS + 9, default=-1)
    """Where readers of committed records stop; -1 as for `end_offset`."""


@message()
class OffsetFetchResponseTopics:
    name: str = field("string", "8-9", default="")
    topic_id: Uuid = field("uuid", "10+", default=NO_UUID)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = field([OffsetFetchResponsePartitions], "8+", default=())


@message()
class OffsetFetchResponseGroup:
    group_id: str = field("string", "8+", default="")
    topics: tuple[OffsetFetchResponseTopics, ...] = field([OffsetFetchResponseTopics], "8+", default=())
    error_code: int = field("int16", "8+", default=0)
    as_of_ms: int = field("int64", "8+", tag=OWN_TAGS + 8, default=-1)
    """The instant of the offsets and ends, by the server's clock; -1: the lag was not asked for."""


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = field("int32", "3+", default=0)
    topics: tuple[OffsetFetchResponseTopic, ...] = field([OffsetFetchResponseTopic], "1-7", default=())
    error_code: int = field("int16", "2-7", default=0)
    as_of_ms: int = field("int64", "6-7", tag=OWN_TAGS + 8, default=-1)
    groups: tuple[OffsetFetchResponseGroup, ...] = field([OffsetFetchResponseGroup], "8+", default=())
