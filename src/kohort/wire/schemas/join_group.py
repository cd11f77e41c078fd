"""JoinGroup (API key 11)."""

from kohort.wire.schema import field, message


@message()
class JoinGroupRequestProtocol:
    name: str = field("string")
    metadata: bytes = field("bytes")


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = field("string")
    session_timeout_ms: int = field("int32")
    rebalance_timeout_ms: int = field("int32", "1+", default=-1)
    member_id: str = field("string")
    group_instance_id: str | None = field("string", "5+", nullable="5+", default=None)
    protocol_type: str = field("string")
    protocols: tuple[JoinGroupRequestProtocol, ...] = field([JoinGroupRequestProtocol])
    reason: str | None = field("string", "8+", nullable="8+", default=None)


@message()
class JoinGroupResponseMember:
    member_id: str = field("string")
    group_instance_id: str | None = field("string", "5+", nullable="5+", default=None)
    metadata: bytes = field("bytes")


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = field("int32", "2+", default=0)
    error_code: int = field("int16")
    generation_id: int = field("int32", default=-1)
    protocol_type: str | None = field("string", "7+", nullable="7+", default=None)
    protocol_name: str | None = field("string", nullable="7+", default="")
    leader: str = field("string")
    skip_assignment: bool = field("bool", "9+", default=False)
    member_id: str = field("string")
    members: tuple[JoinGroupResponseMember, ...] = field([JoinGroupResponseMember])
