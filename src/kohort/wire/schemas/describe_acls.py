"""DescribeAcls (API key 29)."""

from kohort.wire.schema import field, message


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int = field("int8")
    resource_name_filter: str | None = field("string", nullable="0+")
    pattern_type_filter: int = field("int8", "1+", default=3)
    principal_filter: str | None = field("string", nullable="0+")
    host_filter: str | None = field("string", nullable="0+")
    operation: int = field("int8")
    permission_type: int = field("int8")


@message()
class AclDescription:
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


@message()
class DescribeAclsResource:
    resource_type: int = field("int8")
    resource_name: str = field("string")
    pattern_type: int = field("int8", "1+", default=3)
    acls: tuple[AclDescription, ...] = field([AclDescription])


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    resources: tuple[DescribeAclsResource, ...] = field([DescribeAclsResource])
