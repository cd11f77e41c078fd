"""Messages to bytes and back, by functions that are generated from the schema tables.

On first use of a (message class, version), `encoders.py` and `decoders.py` write one flat encoder and one flat decoder
as Python source, with nested structs inlined into loops. This file has the public functions and the error messages.
With a compiled build (typed.py), its functions replace the generated ones; the results are the same.

Decoding any bytes ends in a message or a ProtocolError, and its memory is proportional to the bytes. Encoding checks
nothing: when a value does not fit, it catches Python's exception, and then searches the message for the field.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from struct import Struct, error
from typing import Any, TypeVar

from kohort import compiled
from kohort.wire.decoders import Decoder, compile_decoder
from kohort.wire.encoders import Encoder, compile_encoder
from kohort.wire.errors import ProtocolError
from kohort.wire.explain import explain
from kohort.wire.framing import API_VERSIONS_KEY
from kohort.wire.layout import is_flexible
from kohort.wire.schema import Versions, schema_of
from kohort.wire.typed import module_name

__all__ = [
    "decode",
    "decode_bounded",
    "decode_prefix",
    "encode",
    "encode_request",
    "encode_response",
    "is_flexible",
    "response_header",
    "response_pieces",
    "supported_versions",
]

_M = TypeVar("_M")

_encoders: dict[tuple[type, int], tuple[Encoder, bool]] = {}
"""The encoder, and whether the version is flexible."""
_decoders: dict[tuple[type, int], Decoder] = {}
_bounded_decoders: dict[tuple[type, int], Decoder] = {}

_RESPONSE_V0 = Struct(">ii")
_RESPONSE_V1 = Struct(">iiB")
_REQUEST_V1 = Struct(">ihhih")

BOUNDED = 65_536

APART = 16_384
"""Bytes. Smaller chunks are copied, which costs less than another buffer in a write."""

_UNFIT = (error, TypeError, AttributeError, ValueError, OverflowError)


def encode(message: Any, version: int) -> bytes:
    """The bytes of a message. ValueError, naming the field, when a value does not fit this version."""
    return _joined(_chunks(message, version)[0], message, version)


def decode(cls: type[_M], version: int, data: bytes | memoryview, offset: int = 0) -> _M:
    """The message that fills `data` from `offset` to its end exactly. ProtocolError otherwise."""
    message, end = decode_prefix(cls, version, data, offset)
    if end != len(data):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(data) - end} bytes too many")
    return message


def decode_prefix(cls: type[_M], version: int, data: bytes | memoryview, offset: int = 0) -> tuple[_M, int]:
    """The message at `offset`, and the position after it."""
    decoder = _decoders.get((cls, version))
    if decoder is None:
        decoder = _decoders[cls, version] = _decoder_of(cls, version)
    return _decoded(decoder, cls, version, data if type(data) is bytes else bytes(data), offset)


def decode_bounded(cls: type[_M], version: int, data: bytes, offset: int = 0) -> tuple[_M, int]:
    """Like `decode_prefix`, with a limit of elements (decoders.MOST_ELEMENTS). A message of BOUNDED bytes is decoded at
    once: it cannot have many more."""
    if len(data) <= BOUNDED:
        return decode_prefix(cls, version, data, offset)
    decoder = _bounded_decoders.get((cls, version))
    if decoder is None:
        decoder = _bounded_decoders[cls, version] = compile_decoder(cls, version, bounded=True)
    return _decoded(decoder, cls, version, data, offset)


def _decoded(decoder: Decoder, cls: type[_M], version: int, data: bytes, offset: int) -> tuple[_M, int]:
    try:
        message, end = decoder(data, offset, version)
    except (error, IndexError):
        raise ProtocolError(f"{cls.__name__} v{version}: cut short at {len(data)} bytes") from None
    except UnicodeDecodeError:
        raise ProtocolError(f"{cls.__name__} v{version}: a string is not UTF-8") from None
    except ProtocolError as failure:
        raise ProtocolError(f"{cls.__name__} v{version}: {failure}") from None
    if end > len(data):
        raise ProtocolError(f"{cls.__name__} v{version}: cut short at {len(data)} bytes")
    return message, end


def encode_response(message: Any, version: int, correlation_id: int, *, api_key: int) -> bytes:
    """A whole response: length, response header, body. ApiVersions' header is always version 0 (KIP-511)."""
    return _joined(_response_chunks(message, version, correlation_id, api_key), message, version)


def response_pieces(message: Any, version: int, correlation_id: int, *, api_key: int) -> list[bytes]:
    """The same as a list of pieces: chunks of APART bytes and more are not copied."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for chunk in _response_chunks(message, version, correlation_id, api_key):
        if len(chunk) < APART:
            small.append(chunk)
        else:
            if small:
                pieces.append(_joined(small, message, version))
                small = []
            pieces.append(chunk)
    if small:
        pieces.append(_joined(small, message, version))
    return pieces


def _response_chunks(message: Any, version: int, correlation_id: int, api_key: int) -> list[bytes]:
    chunks, flexible = _chunks(message, version)
    return [response_header(sum(map(len, chunks)), correlation_id, flexible=flexible, api_key=api_key), *chunks]


def response_header(size: int, correlation_id: int, *, flexible: bool, api_key: int) -> bytes:
    """The length and the header of a response whose body has this size."""
    if flexible and api_key != API_VERSIONS_KEY:
        return _RESPONSE_V1.pack(size + 5, correlation_id, 0)
    return _RESPONSE_V0.pack(size + 4, correlation_id)


def encode_request(message: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request: length, request header, body."""
    chunks, flexible = _chunks(message, version)
    name = b"" if client_id is None else client_id.encode()
    tags = b"\0" if flexible else b""
    size = 10 + len(name) + len(tags) + sum(map(len, chunks))
    api_key = schema_of(type(message)).api_key
    try:
        header = _REQUEST_V1.pack(size, api_key, version, correlation_id, -1 if client_id is None else len(name))
    except error as failure:
        raise ValueError(f"header of {type(message).__name__} v{version}: {failure}") from None
    return _joined((header, name, tags, *chunks), message, version)


def supported_versions(cls: type) -> Versions:
    """The versions that the schema table of a request or response covers."""
    versions = schema_of(cls).versions
    if versions is None:
        raise ValueError(f"{cls.__name__} is a part of other messages and has no versions of its own")
    return versions


def _chunks(message: Any, version: int) -> tuple[list[bytes], bool]:
    cls = type(message)
    known = _encoders.get((cls, version))
    if known is None:
        known = _encoders[cls, version] = _encoder_of(cls, version), is_flexible(cls, version)
    try:
        return known[0](message, version), known[1]
    except _UNFIT as failure:
        raise _unfit(message, version, failure) from None


def _decoder_of(cls: type, version: int) -> Decoder:
    typed = _typed(cls, version)
    return compile_decoder(cls, version) if typed is None else getattr(typed, f"read_{cls.__name__}")


def _encoder_of(cls: type, version: int) -> Encoder:
    typed = _typed(cls, version)
    return compile_encoder(cls, version) if typed is None else getattr(typed, f"encode_{cls.__name__}")


def _typed(cls: type, version: int) -> Any:
    """The compiled module that has a message's functions, if there is one. ValueError if there is no such version."""
    is_flexible(cls, version)
    name = module_name(cls.__module__)
    if name not in compiled.in_use or schema_of(cls).versions is None:
        return None
    return import_module(name)


def _joined(chunks: Iterable[bytes], message: Any, version: int) -> bytes:
    try:
        return b"".join(chunks)
    except TypeError as failure:  # text where bytes belong
        raise _unfit(message, version, failure) from None


def _unfit(message: Any, version: int, failure: Exception) -> ValueError:
    return ValueError(explain(message, version) or f"{type(message).__name__} v{version}: {failure}")
