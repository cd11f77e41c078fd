"""IncrementalAlterConfigs (API key 44)."""

from kohort.wire.schema import field, message


@message()
class AlterableConfig:
    name: str = field("string")
    config_operation: int = field("int8")
    value: str | None = field("string", nullable="0+", default="")


@message()
class AlterConfigsResource:
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configs: tuple[AlterableConfig, ...] = field([AlterableConfig])


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...] = field([AlterConfigsResource])
    validate_only: bool = field("bool")


@message()
class AlterConfigsResourceResponse:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default="")
    resource_type: int = field("int8")
    resource_name: str = field("string")


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = field("int32", default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = field([AlterConfigsResourceResponse])
