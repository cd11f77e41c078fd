"""DescribeConfigs (API key 32)."""

from kohort.wire.schema import field, message


@message()
class DescribeConfigsResource:
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configuration_keys: tuple[str, ...] | None = field(["string"], nullable="0+", default=())


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsResource, ...] = field([DescribeConfigsResource])
    include_synonyms: bool = field("bool", default=False)
    include_documentation: bool = field("bool", "3+", default=False)


@message()
class DescribeConfigsSynonym:
    name: str = field("string")
    value: str | None = field("string", nullable="0+", default="")
    source: int = field("int8")


@message()
class DescribeConfigsResourceResult:
    name: str = field("string")
    value: str | None = field("string", nullable="0+", default="")
    read_only: bool = field("bool")
    config_source: int = field("int8", default=-1)
    is_sensitive: bool = field("bool")
    synonyms: tuple[DescribeConfigsSynonym, ...] = field([DescribeConfigsSynonym])
    config_type: int = field("int8", "3+", default=0)
    documentation: str | None = field("string", "3+", nullable="3+", default="")


@message()
class DescribeConfigsResult:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default="")
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configs: tuple[DescribeConfigsResourceResult, ...] = field([DescribeConfigsResourceResult])


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = field("int32", default=0)
    results: tuple[DescribeConfigsResult, ...] = field([DescribeConfigsResult])
