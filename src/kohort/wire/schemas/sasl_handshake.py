"""SaslHandshake (API key 17)."""

from kohort.wire.schema import field, message


@message(api_key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str = field("string")


@message(api_key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: int = field("int16")
    mechanisms: tuple[str, ...] = field(["string"])
