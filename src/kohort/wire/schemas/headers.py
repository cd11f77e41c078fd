"""Request and response headers. The client id of a request header is a plain nullable string in every version."""

from kohort.wire.schema import field, message


@message(versions="1-2", flexible="2+")
class RequestHeader:
    request_api_key: int = field("int16")
    request_api_version: int = field("int16")
    correlation_id: int = field("int32")
    client_id: str | None = field("string", nullable="0+", default="", compact=False)


@message(versions="0-1", flexible="1+")
class ResponseHeader:
    correlation_id: int = field("int32")
