"""ListConfigResources (API key 74). Version 0 is ListClientMetricsResources."""

from kohort.wire.schema import field, message


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = field(["int8"], "1+", default=())


@message()
class ConfigResource:
    resource_name: str = field("string")
    resource_type: int = field("int8", "1+", default=16)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    config_resources: tuple[ConfigResource, ...] = field([ConfigResource])
