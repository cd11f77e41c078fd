"""A setting as a field of `Config`: its default, and what the table of settings says of it."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(
    default: Any,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    one_of: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """`secret`: the value is in no repr, log or answer."""
    metadata = {"doc": doc, "low": low, "high": high, "one_of": one_of, "secret": secret}
    return field(default=default, repr=not secret, metadata=metadata)
