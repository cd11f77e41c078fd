"""Descriptions of groups are made in parts, because a group may have thousands of members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

_T = TypeVar("_T")

MEMBERS = 200
"""Members of a part: about a millisecond."""
MEMBER_BYTES, PARTITION_BYTES = 200, 64
"""The memory of a described member, and at most of a partition of its assignment, about."""
PART_BYTES = 30_000
"""Of a part, where members have many partitions."""


def in_parts(members: list[_T]) -> Iterator[list[_T]]:
    for first in range(0, len(members), MEMBERS):
        yield members[first : first + MEMBERS]
