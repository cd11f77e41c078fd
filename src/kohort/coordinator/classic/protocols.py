"""The protocols that a member of a classic group offers."""

from __future__ import annotations

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols in its order of preference: name and metadata."""


def size_of(protocols: Protocols) -> int:
    """Bytes of the names and the metadata."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)
