"""The size of the members of all groups, over all shards, and how much a join may add to it.

Half of `group.max.total.bytes` is for members; the other half is for offsets (offsets/sizes.py). The last quarter of
the members' half is left for small members, so that a few large ones do not keep everybody else out. A request that
adds nothing is never refused.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.coordinator.events import Millis

MEMBER_BYTES = 2_048
"""Counted for each member, besides its protocols and subscribed names."""
PARTITION_BYTES = 256
"""Counted for each partition that a consumer group's members are assigned: the target, the present assignment and the
owner. A request of a few bytes may subscribe to thousands of partitions."""
SMALL = 65_536
"""A member that brings no more may use the last quarter."""
COUNT_AGAIN_MS = 100
"""To count looks at every group: thousands of them take milliseconds, and each request may need it once the room is
used. So what a member gives back may be used this much later."""


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
        if self._estimate > bound and not 0 <= self.now - self._counted_ms < COUNT_AGAIN_MS:
            self._counted_ms = self.now
            self._estimate = self._exact() + more
        if self._estimate <= bound:
            return True
        self._estimate -= more
        return False
