"""AlterUserScramCredentials (API key 51)."""

from kohort.wire.schema import field, message


@message()
class ScramCredentialDeletion:
    name: str = field("string")
    mechanism: int = field("int8")


@message()
class ScramCredentialUpsertion:
    name: str = field("string")
    mechanism: int = field("int8")
    iterations: int = field("int32")
    salt: bytes = field("bytes")
    salted_password: bytes = field("bytes")


@message(api_key=51, versions="0-0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: tuple[ScramCredentialDeletion, ...] = field([ScramCredentialDeletion])
    upsertions: tuple[ScramCredentialUpsertion, ...] = field([ScramCredentialUpsertion])


@message()
class AlterUserScramCredentialsResult:
    user: str = field("string")
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")


@message(api_key=51, versions="0-0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = field("int32", default=0)
    results: tuple[AlterUserScramCredentialsResult, ...] = field([AlterUserScramCredentialsResult])
