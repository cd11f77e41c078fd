"""SaslAuthenticate (API key 36)."""

from kohort.wire.schema import field, message


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = field("bytes")


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    auth_bytes: bytes = field("bytes")
    session_lifetime_ms: int = field("int64", "1+", default=0)
