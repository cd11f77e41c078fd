"""The size of the committed offsets, and how much a commit may add to it.

The sizes are counted where records are applied, so a replay of the log counts the same. Half of `group.max.total.bytes`
is for the offsets of all groups, over all shards; the other half is for members. The last quarter of the offsets' half
is left for offsets with short metadata, as most consumers commit them. A commit that adds nothing is never refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import OffsetCommitValue

Offsets = Mapping[tuple[str, int], OffsetCommitValue]
"""A group's offsets, by topic name and partition."""
GROUP_BYTES = 512
"""Counted for each group with offsets, besides its name."""
OFFSET_BYTES = 256
"""Counted for each offset, besides its metadata."""
SHORT = 64
"""Bytes of metadata that may use the last quarter."""
WIDEST = 4
"""Bytes of a character in memory, at most."""


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else WIDEST * len(text)


def group_bytes(group_id: str, offsets: Offsets) -> int:
    """The size of a group's offsets, counted anew."""
    metadata = sum(text_bytes(value.metadata) for value in offsets.values())
    return GROUP_BYTES + text_bytes(group_id) + OFFSET_BYTES * len(offsets) + metadata


def is_too_long(metadata: str, limit: int) -> bool:
    """`limit`: offset.metadata.max.bytes; UTF-16 units, as Kafka counts them."""
    return len(metadata) * 2 > limit and len(metadata.encode("utf-16-le")) // 2 > limit


class Total:
    """Bytes of all groups' offsets, over all shards that share it."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Counted:
    """When the sizes of a commit that repeats were counted."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1
        """`HardState.metadata_changes` when it was counted last."""


class Room:
    """How much a commit may add to a group's offsets. Made for one commit, before any of its records is applied."""

    __slots__ = ("_left", "_most", "_offsets", "_reserve")

    def __init__(self, total: int, group_id: str, offsets: Offsets | None, limit: int) -> None:
        half = limit // 2
        self._reserve = half // 4
        self._left = half - self._reserve - total
        self._offsets = offsets
        # What the commit adds if no partition of it has an offset. An exact count is made only where this is too much.
        self._most = 0 if offsets else GROUP_BYTES + text_bytes(group_id)

    @staticmethod
    def is_needed(total: int, group_id: str, count: int, longest: int, limit: int) -> bool:
        """False if this number of offsets, with metadata of up to `longest` characters, fits in any case."""
        most = GROUP_BYTES + WIDEST * len(group_id) + count * (OFFSET_BYTES + WIDEST * longest)
        return total + most > limit // 2 - limit // 8

    def error(self, topic: str, partition: int, metadata: str) -> ErrorCode:
        """The error for an offset without room. Clients know both: the commit fails, and the member goes on."""
        if not self.refuses(topic, partition, metadata):
            return ErrorCode.NONE
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if metadata else ErrorCode.INVALID_COMMIT_OFFSET_SIZE

    def refuses(self, topic: str, partition: int, metadata: str) -> bool:
        """True if there is no room for this offset. If there is room, the offset counts for those that follow."""
        size = text_bytes(metadata)
        more = OFFSET_BYTES + size
        self._most += more
        if self._most <= self._left:
            return False
        left = self._left + self._reserve if size <= SHORT else self._left
        former = self._offsets.get((topic, partition)) if self._offsets is not None else None
        if former is not None:
            held = OFFSET_BYTES + text_bytes(former.metadata)
            more -= held
            self._most -= held
        if more <= 0 or self._most <= left:
            return False
        self._most -= more
        return True
