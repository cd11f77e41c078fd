"""ListGroups (API key 16)."""

from kohort.wire.schema import field, message


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: tuple[str, ...] = field(["string"], "4+", default=())
    types_filter: tuple[str, ...] = field(["string"], "5+", default=())


@message()
class ListedGroup:
    group_id: str = field("string")
    protocol_type: str = field("string")
    group_state: str = field("string", "4+", default="")
    group_type: str = field("string", "5+", default="")


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = field("int32", "1+", default=0)
    error_code: int = field("int16")
    groups: tuple[ListedGroup, ...] = field([ListedGroup])
