"""CreateAcls (API key 30)."""

from kohort.wire.schema import field, message


@message()
class AclCreation:
    resource_type: int = field("int8")
    resource_name: str = field("string")
    resource_pattern_type: int = field("int8", "1+", default=3)
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: tuple[AclCreation, ...] = field([AclCreation])


@message()
class AclCreationResult:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = field("int32", default=0)
    results: tuple[AclCreationResult, ...] = field([AclCreationResult])
