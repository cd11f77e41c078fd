"""DescribeLogDirs (API key 35)."""

from kohort.wire.schema import field, message


@message()
class DescribableLogDirTopic:
    topic: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: tuple[DescribableLogDirTopic, ...] | None = field([DescribableLogDirTopic], nullable="0+")


@message()
class DescribeLogDirsPartition:
    partition_index: int = field("int32")
    partition_size: int = field("int64")
    offset_lag: int = field("int64")
    is_future_key: bool = field("bool")


@message()
class DescribeLogDirsTopic:
    name: str = field("string")
    partitions: tuple[DescribeLogDirsPartition, ...] = field([DescribeLogDirsPartition])


@message()
class DescribeLogDirsResult:
    error_code: int = field("int16")
    log_dir: str = field("string")
    topics: tuple[DescribeLogDirsTopic, ...] = field([DescribeLogDirsTopic])
    total_bytes: int = field("int64", "4+", default=-1)
    usable_bytes: int = field("int64", "4+", default=-1)
    is_cordoned: bool = field("bool", "5+", default=False)


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", "3+")
    results: tuple[DescribeLogDirsResult, ...] = field([DescribeLogDirsResult])
