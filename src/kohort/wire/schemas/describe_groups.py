"""DescribeGroups (API key 15)."""

from kohort.wire.schema import field, message


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: tuple[str, ...] = field(["string"])
    include_authorized_operations: bool = field("bool", "3+", default=False)


@message()
class DescribedGroupMember:
    member_id: str = field("string")
    group_instance_id: str | None = field("string", "4+", nullable="4+", default=None)
    client_id: str = field("string")
    client_host: str = field("string")
    member_metadata: bytes = field("bytes")
    member_assignment: bytes = field("bytes")


@message()
class DescribedGroup:
    error_code: int = field("int16")
    error_message: str | None = field("string", "6+", nullable="6+", default=None)
    group_id: str = field("string")
    group_state: str = field("string")
    protocol_type: str = field("string")
    protocol_data: str = field("string")
    members: tuple[DescribedGroupMember, ...] = field([DescribedGroupMember])
    authorized_operations: int = field("int32", "3+", default=-2147483648)


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = field("int32", "1+", default=0)
    groups: tuple[DescribedGroup, ...] = field([DescribedGroup])
