"""True if kohort runs compiled in this process; and the plain codec beside the codec in use."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from kohort import compiled
from kohort.wire.decoders import Decoder, compile_decoder
from kohort.wire.encoders import Encoder, compile_encoder
from kohort.wire.errors import ProtocolError

IS_COMPILED = bool(compiled.in_use)
"""Then there are two codecs to compare."""
RUNNING = "compiled" if IS_COMPILED else "pure"


@cache
def _decoder(cls: type, version: int) -> Decoder:
    return compile_decoder(cls, version)


@cache
def _encoder(cls: type, version: int) -> Encoder:
    return compile_encoder(cls, version)


def plainly_read(cls: type, version: int, data: bytes) -> tuple[Any, int] | None:
    """The message and its end by the codec that is not compiled; None if it refuses."""
    try:
        message, end = _decoder(cls, version)(data, 0, version)
    except (ProtocolError, struct.error, IndexError, UnicodeDecodeError):
        return None
    return (message, end) if end <= len(data) else None


def plainly_written(message: Any, version: int) -> bytes:
    return b"".join(_encoder(type(message), version)(message, version))
