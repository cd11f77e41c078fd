"""DeleteAcls (API key 31)."""

from kohort.wire.schema import field, message


@message()
class DeleteAclsFilter:
    resource_type_filter: int = field("int8")
    resource_name_filter: str | None = field("string", nullable="0+")
    pattern_type_filter: int = field("int8", "1+", default=3)
    principal_filter: str | None = field("string", nullable="0+")
    host_filter: str | None = field("string", nullable="0+")
    operation: int = field("int8")
    permission_type: int = field("int8")


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    filters: tuple[DeleteAclsFilter, ...] = field([DeleteAclsFilter])


@message()
class DeleteAclsMatchingAcl:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    resource_type: int = field("int8")
    resource_name: str = field("string")
    pattern_type: int = field("int8", "1+", default=3)
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


@message()
class DeleteAclsFilterResult:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = field([DeleteAclsMatchingAcl])


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = field("int32", default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = field([DeleteAclsFilterResult])
