"""Changed copies of frozen messages; shortened error texts."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

_M = TypeVar("_M")

LONGEST_TEXT = 1_000
"""Characters of an error message. It quotes the request, whose strings may be longer than those of an answer."""


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"


def changed(message: _M, **values: Any) -> _M:
    """The message with some fields replaced."""
    copy: _M = msgspec.structs.replace(message, **values)  # type: ignore[type-var]
    return copy
