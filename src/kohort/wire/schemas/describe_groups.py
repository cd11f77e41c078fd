"""DescribeGroups (API key 15), with tagged fields of our own that explain a group: see docs/decisions/0004.

Only a request that has `explain_last` is answered with the others, so no client meets a tag that it did not ask for.
"""

from kohort.wire.schema import OWN_TAGS, field, message


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: tuple[str, ...] = field(["string"])
    include_authorized_operations: bool = field("bool", "3+", default=False)
    explain_last: int = field("int32", "5+", tag=OWN_TAGS + 1, default=-1)
    """How many stories of each group are asked for; -1: no explanation at all."""


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
    """JSON: the state of the running rebalance. Empty unless it was asked for."""
    stories: tuple[bytes, ...] = field(["bytes"], "5+", tag=OWN_TAGS + 2, default=())
    """JSON of a story each, the newest last."""


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = field("int32", "1+", default=0)
    groups: tuple[DescribedGroup, ...] = field([DescribedGroup])
