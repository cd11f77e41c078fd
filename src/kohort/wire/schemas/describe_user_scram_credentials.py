"""DescribeUserScramCredentials (API key 50)."""

from kohort.wire.schema import field, message


@message()
class UserName:
    name: str = field("string")


@message(api_key=50, versions="0-0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: tuple[UserName, ...] | None = field([UserName], nullable="0+")


@message()
class CredentialInfo:
    mechanism: int = field("int8")
    iterations: int = field("int32")


@message()
class DescribeUserScramCredentialsResult:
    user: str = field("string")
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    credential_infos: tuple[CredentialInfo, ...] = field([CredentialInfo])


@message(api_key=50, versions="0-0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    results: tuple[DescribeUserScramCredentialsResult, ...] = field([DescribeUserScramCredentialsResult])
