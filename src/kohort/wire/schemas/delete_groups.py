"""DeleteGroups (API key 42)."""

from kohort.wire.schema import field, message


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: tuple[str, ...] = field(["string"])


@message()
class DeletableGroupResult:
    group_id: str = field("string")
    error_code: int = field("int16")


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = field("int32", default=0)
    results: tuple[DeletableGroupResult, ...] = field([DeletableGroupResult])
