"""Heartbeat (API key 12)."""

from kohort.wire.schema import field, message


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = field("string")
    generation_id: int = field("int32")
    member_id: str = field("string")
    group_instance_id: str | None = field("string", "3+", nullable="3+", default=None)


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = field("int32", "1+", default=0)
    error_code: int = field("int16")
