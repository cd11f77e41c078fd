"""How a setting is declared, and the error of a bad one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

INT_MAX = 2_147_483_647
LONG_MAX = 9_223_372_036_854_775_807


class ConfigError(ValueError):
    """A setting has an unknown name or a bad value; the message names it and says what is allowed."""


def setting(
    default: Any,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    one_of: tuple[str, ...] = (),
    secret: bool = False,
    check: Callable[[str], object] | None = None,
) -> Any:
    """`secret`: the value is in no repr, log or answer. `check` raises ValueError, whose text says what a value is."""
    metadata = {"doc": doc, "low": low, "high": high, "one_of": one_of, "secret": secret, "check": check}
    return field(default=default, repr=not secret, metadata=metadata)
