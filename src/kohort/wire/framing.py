"""Frames out of a byte stream, and the headers that every request and response begins with.

A frame is a 4-byte length and that many bytes. `FrameSplitter` takes bytes from the socket and returns whole frames
without their length. It checks the length before it keeps a byte of the body, so it never holds more than `max_bytes`.

Request headers need no schema: the important fields are the same in every header version, so even a request of an
unknown API gets the right correlation id. The client id is a plain nullable string in all versions, flexible or not
(KIP-482). A flexible header ends in tagged fields, which are skipped.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from kohort.wire.errors import ProtocolError

API_VERSIONS_KEY = 18
"""The response header of ApiVersions has no tagged fields in any version (KIP-511)."""

PIECE = 4096
"""Pieces of a frame larger than this, in bytes, are kept as they arrived."""

MOST_TAGS = 1_000
"""Tagged fields of a header. A header of Kafka has two at most."""

_LENGTH = Struct(">i")
_REQUEST = Struct(">hhih")
_CLIENT_ID_LENGTH = Struct(">h")


class RequestHeaderView(NamedTuple):
    """The fields of every version of a request header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class BadLength(ProtocolError):
    """A frame whose length is zero, negative or above the limit: the rest of the stream is not read.

    No request or response is empty, and empty frames would come by the million in some megabytes.

    `frames` are the valid ones before it in the same piece. The caller may serve them before it closes the connection,
    as Kafka does."""

    def __init__(self, length: int, max_bytes: int, frames: list[bytes]) -> None:
        super().__init__(f"frame of {length} bytes (the limit is {max_bytes})")
        self.frames = frames


class FrameSplitter:
    """Cuts a byte stream into frames of at most `max_bytes` (the length prefix not counted)."""

    __slots__ = ("_held", "_max_bytes", "_missing", "_pieces")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        """Pieces of the incomplete frame, after its length; or of its incomplete length."""
        self._held = 0
        """Bytes in them."""
        self._missing = 0
        """Bytes that the frame still needs; 0 if its length is incomplete."""

    @property
    def pending(self) -> int:
        """Bytes of the incomplete frame."""
        return self._held + (_LENGTH.size if self._missing else 0)

    @property
    def missing(self) -> int:
        """Bytes that the incomplete frame still needs; 0 if its length is incomplete."""
        return self._missing

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes. Raises BadLength, after which the stream is unreadable."""
        if not self._held and not self._missing:
            # The common case: `data` consists of whole frames.
            return self._split(data, [])
        missing = self._missing
        if not missing:
            return self._split(self._taken() + data, [])
        if len(data) < missing:
            self._missing = missing - len(data)
            self._hold(data)
            return []
        # A large frame is copied once, when its pieces are joined.
        self._pieces.append(data if len(data) == missing else data[:missing])
        frame = self._taken()
        return [frame] if len(data) == missing else self._split(data[missing:], [frame])

    def _hold(self, data: bytes) -> None:
        """Join small pieces, so that many of them need no more memory than their bytes."""
        pieces = self._pieces
        if pieces and len(pieces[-1]) < PIECE:
            pieces[-1] += data
        else:
            pieces.append(data)
        self._held += len(data)

    def _taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        self._held = self._missing = 0
        return b"".join(pieces)

    def _split(self, data: bytes, frames: list[bytes]) -> list[bytes]:
        """Append the whole frames of `data` to `frames`; keep the rest."""
        position = 0
        size = len(data)
        while size - position >= 4:
            (length,) = _LENGTH.unpack_from(data, position)
            if length <= 0 or length > self._max_bytes:
                raise BadLength(length, self._max_bytes, frames)
            position += 4
            end = position + length
            if end > size:
                self._missing = end - size
                self._hold(data[position:])
                return frames
            frames.append(data[position:end])
            position = end
        if position < size:
            self._hold(data[position:])
        return frames


def read_request_header(frame: bytes) -> RequestHeaderView:
    """The four fields of all header versions, also for unknown APIs."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
    except error:
        raise ProtocolError(f"request header cut short at {len(frame)} bytes") from None
    if length == -1:
        return RequestHeaderView(api_key, api_version, correlation_id, None)
    end = 10 + length
    if length < 0 or end > len(frame):
        raise ProtocolError(f"client id of {length} bytes in a frame of {len(frame)}")
    try:
        client_id = str(frame[10:end], "utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("client id is not UTF-8") from None
    return RequestHeaderView(api_key, api_version, correlation_id, client_id)


def body_offset(frame: bytes, flexible: bool) -> int:
    """Where the body of a request begins: after the client id and, if flexible, the header's tagged fields."""
    try:
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, 8)
    except error:
        raise ProtocolError(f"request header cut short at {len(frame)} bytes") from None
    if length < -1 or 10 + length > len(frame):
        raise ProtocolError(f"client id of {length} bytes in a frame of {len(frame)}")
    position = 10 + length if length > 0 else 10
    if not flexible:
        return position
    if frame[position : position + 1] == b"\0":  # nearly every request: no tagged fields
        return position + 1
    return skip_tagged_fields(frame, position)


def read_response_header(frame: bytes, *, flexible: bool, api_key: int) -> tuple[int, int]:
    """Correlation id of a response, and where its body begins."""
    try:
        (correlation_id,) = _LENGTH.unpack_from(frame)
    except error:
        raise ProtocolError(f"response header cut short at {len(frame)} bytes") from None
    if flexible and api_key != API_VERSIONS_KEY:
        return correlation_id, skip_tagged_fields(frame, 4)
    return correlation_id, 4


def read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits in at most 5 bytes, and the position after it."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        if position >= len(data):
            raise ProtocolError("varint cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                raise ProtocolError("varint of more than 32 bits")
            return value, position
    raise ProtocolError("varint of more than 5 bytes")


def unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tagged_fields(data: bytes, position: int) -> int:
    """The position after a section of tagged fields, which are dropped."""
    count, position = read_unsigned_varint(data, position)
    # A tagged field takes at least two bytes: refuse an impossible count before the loop.
    if count * 2 > len(data) - position or count > MOST_TAGS:
        raise ProtocolError(f"{count} tagged fields in {len(data) - position} bytes")
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
        if position > len(data):
            raise ProtocolError(f"tagged field of {size} bytes reaches beyond the end")
    return position
