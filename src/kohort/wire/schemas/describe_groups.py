"""DescribeGroups (API key 15), with tagged fields of our own that explain a group: see docs/decisions/0004.

The server sends the other tags only to a request with `explain_last`.
"""

from kohort.wire.schema import OWN_TAGS, field, message


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: tuple[str, ...] = field(["string"])
    include_authorized_operations: bool = field("bool", "3+", default=False)
    explain_last: int = field("int32", "5+", tag=OWN_TAGS + 1, default=-1)
    """Number of stories of each group; -1: no explanation."""


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
    explanation: bytes = field("bytes", "5+", tag=OWN_TAGS + 1, default=b"")
    """The state of the running rebalance as JSON. Empty unless requested."""
    stories: tuple[bytes, ...] = field(["bytes"], "5+", tag=OWN_TAGS + 2, default=())
    """One JSON document for each story, the newest last."""


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = field("int32", "1+", default=0)
    groups: tuple[DescribedGroup, ...] = field([DescribedGroup])
