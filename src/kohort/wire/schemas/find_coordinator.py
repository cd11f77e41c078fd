"""FindCoordinator (API key 10)."""

from kohort.wire.schema import field, message


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = field("string", "0-3", default="")
    key_type: int = field("int8", "1+", default=0)
    coordinator_keys: tuple[str, ...] = field(["string"], "4+", default=())


@message()
class Coordinator:
    key: str = field("string", "4+", default="")
    node_id: int = field("int32", "4+", default=0)
    host: str = field("string", "4+", default="")
    port: int = field("int32", "4+", default=0)
    error_code: int = field("int16", "4+", default=0)
    error_message: str | None = field("string", "4+", nullable="4+", default="")


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = field("int32", "1+", default=0)
    error_code: int = field("int16", "0-3", default=0)
    error_message: str | None = field("string", "1-3", nullable="1-3", default="")
    node_id: int = field("int32", "0-3", default=0)
    host: str = field("string", "0-3", default="")
    port: int = field("int32", "0-3", default=0)
    coordinators: tuple[Coordinator, ...] = field([Coordinator], "4+", default=())
