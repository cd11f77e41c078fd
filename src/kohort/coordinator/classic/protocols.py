"""The protocols that a member of a classic group offers."""

from __future__ import annotations

from kohort.coordinator.member_bytes import PROTOCOL_BYTES, text_bytes

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols in its order of preference: name and metadata."""


def size_of(protocols: Protocols) -> int:
    """Bytes of the names and the metadata."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def held_by(protocols: Protocols) -> int:
    """About their bytes in memory."""
    return sum([PROTOCOL_BYTES + text_bytes(name) + len(metadata) for name, metadata in protocols])
