"""LeaveGroup (API key 13)."""

from kohort.wire.schema import field, message


@message()
class MemberIdentity:
    member_id: str = field("string", "3+", default="")
    group_instance_id: str | None = field("string", "3+", nullable="3+", default=None)
    reason: str | None = field("string", "5+", nullable="5+", default=None)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = field("string")
    member_id: str = field("string", "0-2", default="")
    members: tuple[MemberIdentity, ...] = field([MemberIdentity], "3+", default=())


@message()
class MemberResponse:
    member_id: str = field("string", "3+", default="")
    group_instance_id: str | None = field("string", "3+", nullable="3+", default="")
    error_code: int = field("int16", "3+", default=0)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = field("int32", "1+", default=0)
    error_code: int = field("int16")
    members: tuple[MemberResponse, ...] = field([MemberResponse], "3+", default=())
