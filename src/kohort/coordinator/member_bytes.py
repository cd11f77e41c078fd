"""The size of the members of all groups, over all shards, and how much a join may add to it.

Half of `group.max.total.bytes` is for members; the other half is for offsets (offsets/sizes.py). The last quarter of
the members' half is left for small members, so that a few large ones do not keep everybody else out. A request that
adds nothing is never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kohort.coordinator.events import Millis

MEMBER_BYTES = 2_048
"""Counted for each member, besides its names, its protocols and the topics that it subscribes to."""
CLASSIC_GROUP_BYTES, CONSUMER_GROUP_BYTES = 1_024, 2_048
"""Counted for each group that has members or has no offsets. A group that has only offsets is counted with them
(offsets/sizes.py)."""
PENDING_BYTES = 1_024
"""Counted for each member id that a group has given out and that is not used yet."""
ASSIGNED_BYTES = 512
"""The first bytes of a classic member's assignment are part of its MEMBER_BYTES. So a full server does not refuse the
assignments of a small group, whose members would have to join again."""
PROTOCOL_BYTES = 160
"""Counted for each protocol of a member, besides its name and its metadata."""
NAME_BYTES = 64
"""Counted for each name that a member subscribes to, besides its characters."""
SUBSCRIBED_BYTES, INDEX_BYTES = 64, 192
"""Counted for each name that a consumer group subscribes to, however many members do, and for each that any group of a
shard does."""
WIDEST = 8
"""Bytes of a character in memory, at most: Python keeps a text that was encoded in UTF-8 too."""
PARTITION_BYTES = 256
"""Counted for each partition that a consumer group's members are assigned: the target, the present assignment and the
owner. A request of a few bytes may subscribe to thousands of partitions."""
SMALL = 65_536
"""A member that brings no more may use the last quarter."""
COUNT_AGAIN_MS = 100
"""To count looks at every group: thousands of them take milliseconds, and each request may need it once the room is
used. So what a member gives back may be used this much later."""
COUNT_ANYWAY_MS = 30_000
"""A server whose room is half used counts this often, because sizes also grow without a join: a group whose offsets are
deleted is counted as a group without offsets."""


def text_bytes(*texts: str | None) -> int:
    """The characters of these texts in memory, besides what each text takes."""
    return sum([len(text) if text.isascii() else WIDEST * len(text) for text in texts if text])


def subscription_bytes(names: Collection[str]) -> int:
    """What a member's list of topic names takes."""
    return NAME_BYTES * len(names) + text_bytes("".join(names))  # thousands of names, one by one, take milliseconds


class MemberBytes:
    def __init__(self, exact: Callable[[], int], limit: int) -> None:
        """`exact` counts; it looks at every group. `limit`: group.max.total.bytes."""
        self.now: Millis = 0
        """The time of the step under way."""
        self._exact = exact
        self._half = limit // 2
        self._estimate = 0
        """Not less than the exact size: it grows with each join, and is counted anew when it reaches a bound."""
        self._counted_ms: Millis = -COUNT_AGAIN_MS

    def has_room(self, more: int, soon: int = 0) -> bool:
        """True if a member may bring this many bytes more. `soon`: what its assignment needs, which is counted when it
        is made."""
        if more + soon <= 0:
            return True
        bound = (self._half if more + soon <= SMALL else self._half - self._half // 4) - soon
        self._estimate += more
        wait_ms = COUNT_AGAIN_MS if self._estimate > bound else COUNT_ANYWAY_MS
        if self._estimate > bound // 2 and not 0 <= self.now - self._counted_ms < wait_ms:
            self._counted_ms = self.now
            self._estimate = self._exact() + more
        if self._estimate <= bound:
            return True
        self._estimate -= more
        return False
