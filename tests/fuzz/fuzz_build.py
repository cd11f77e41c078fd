"""Whether kohort runs compiled in this process, and the plain codec beside the one that is in use."""

from __future__ import annotations

import importlib.util
import struct
from functools import cache
from typing import Any

from kohort.wire.decoders import compile_decoder
from kohort.wire.encoders import compile_encoder
from kohort.wire.errors import ProtocolError


def _in_use() -> frozenset[str]:
    if importlib.util.find_spec("kohort.compiled") is None:
        return frozenset()
    return frozenset(importlib.import_module("kohort.compiled").in_use)


IS_COMPILED = bool(_in_use())
"""Then there are two codecs to compare."""
RUNNING = "compiled" if IS_COMPILED else "pure"

_decoder = cache(compile_decoder)
_encoder: Any = cache(compile_encoder)


def plainly_read(cls: type, version: int, data: bytes) -> tuple[Any, int] | None:
    """The message and its end by the codec that is not compiled; None if it refuses."""
    decoder: Any = _decoder(cls, version)
    try:
        message, end = decoder(data, 0, version) if IS_COMPILED else decoder(data, 0)
    except (ProtocolError, struct.error, IndexError, UnicodeDecodeError):
        return None
    return (message, end) if end <= len(data) else None


def plainly_written(message: Any, version: int) -> bytes:
    encoder = _encoder(type(message), version)
    return b"".join(encoder(message, version) if IS_COMPILED else encoder(message))
