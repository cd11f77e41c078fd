"""Frames to requests: the header, the API and its limits, the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kohort.broker.apis import API_VERSIONS, APIS, Api
from kohort.broker.request import CloseConnection
from kohort.config import Config, property_name
from kohort.wire.codec import decode_bounded, encode_response
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.framing import RequestHeaderView, body_offset, read_request_header
from kohort.wire.schemas.api_versions import ApiVersion, ApiVersionsResponse


class Decoded(msgspec.Struct, frozen=True, gc=False):
    api: Api
    header: RequestHeaderView
    start: int
    """Where the request's body begins in its frame."""
    request: Any


def most_bytes(config: Config) -> dict[int, int]:
    """The size of the largest request of each API."""
    return {
        api.key: api.limits * getattr(config, api.limited_by or "socket_request_max_bytes") for api in APIS.values()
    }


def decoded(frame: bytes, most: Mapping[int, int]) -> Decoded | CloseConnection | bytes:
    """Bytes are the answer to an ApiVersions request of a version that is not served."""
    request: Any
    try:
        header = read_request_header(frame)
        api = APIS.get(header.api_key)
        if api is None:
            return CloseConnection(f"request of the unknown API {header.api_key}")
        if not api.first <= header.api_version <= api.last:
            return _refusal(api, header)
        if len(frame) > most[api.key]:
            setting = property_name(api.limited_by or "socket_request_max_bytes")
            return CloseConnection(f"{api.name} request of {len(frame)} bytes; see {setting}")
        start = body_offset(frame, header.api_version >= api.flexible_from)
        # Bytes after the request are ignored, as in Kafka: librdkafka's Metadata v9+ for all topics has some.
        request, _ = decode_bounded(api.request, header.api_version, frame, start)
    except ProtocolError as error:
        return CloseConnection(f"malformed request: {error}")
    return Decoded(api, header, start, request)


def _refusal(api: Api, header: RequestHeaderView) -> CloseConnection | bytes:
    if api is not API_VERSIONS:
        return CloseConnection(f"{api.name} request of version {header.api_version}, not in {api.first}-{api.last}")
    # The client does not know the served versions: it gets them in an answer of version 0 (W1).
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=(ApiVersion(api_key=api.key, min_version=api.first, max_version=api.last),),
    )
    return encode_response(refusal, 0, header.correlation_id, api_key=api.key)
