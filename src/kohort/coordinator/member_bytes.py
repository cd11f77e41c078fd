"""The size of the members of all groups, over all shards, and how much a join may add to it.

Half of `group.max.total.bytes` is for members; the other half is for offsets (offsets/sizes.py). The last quarter of
the members' half is left for small members, so that a few large ones do not keep everybody else out. A request that
adds nothing is never refused.
"""

from __future__ import annotations

from collections.abc import Callable

MEMBER_BYTES = 2_048
"""Counted for each member, besides its protocols and subscribed names."""
SMALL = 65_536
"""A member that brings no more may use the last quarter."""


class MemberBytes:
    def __init__(self, exact: Callable[[], int], limit: int) -> None:
        """`exact` counts; it looks at every group. `limit`: group.max.total.bytes."""
        self._exact = exact
        self._half = limit // 2
        self._estimate = 0
        """Not less than the exact size: it grows with each join, and is counted anew when it reaches a bound."""

    def has_room(self, more: int) -> bool:
        """True if a member may bring this many bytes more."""
        if more <= 0:
            return True
        bound = self._half if more <= SMALL else self._half - self._half // 4
        self._estimate += more
        if self._estimate > bound:
            self._estimate = self._exact() + more
        if self._estimate <= bound:
            return True
        self._estimate -= more
        return False
