"""SyncGroup (API key 14)."""

from kohort.wire.schema import field, message


@message()
class SyncGroupRequestAssignment:
    member_id: str = field("string")
    assignment: bytes = field("bytes")


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = field("string")
    generation_id: int = field("int32")
    member_id: str = field("string")
    group_instance_id: str | None = field("string", "3+", nullable="3+", default=None)
    protocol_type: str | None = field("string", "5+", nullable="5+", default=None)
    protocol_name: str | None = field("string", "5+", nullable="5+", default=None)
    assignments: tuple[SyncGroupRequestAssignment, ...] = field([SyncGroupRequestAssignment])


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = field("int32", "1+", default=0)
    error_code: int = field("int16")
    protocol_type: str | None = field("string", "5+", nullable="5+", default=None)
    protocol_name: str | None = field("string", "5+", nullable="5+", default=None)
    assignment: bytes = field("bytes")
