"""AlterConfigs (API key 33)."""

from kohort.wire.schema import field, message


@message()
class AlterableConfig:
    name: str = field("string")
    value: str | None = field("string", nullable="0+", default="")


@message()
class AlterConfigsResource:
    resource_type: int = field("int8")
    resource_name: str = field("string")
    configs: tuple[AlterableConfig, ...] = field([AlterableConfig])


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...] = field([AlterConfigsResource])
    validate_only: bool = field("bool")


@message()
class AlterConfigsResourceResponse:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default="")
    resource_type: int = field("int8")
    resource_name: str = field("string")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = field("int32", default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = field([AlterConfigsResourceResponse])
