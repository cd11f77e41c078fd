"""Copies of messages. Messages are frozen, so a change is another message."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

_M = TypeVar("_M")


def changed(message: _M, **values: Any) -> _M:
    """The message with some fields replaced."""
    copy: _M = msgspec.structs.replace(message, **values)  # type: ignore[type-var]
    return copy
