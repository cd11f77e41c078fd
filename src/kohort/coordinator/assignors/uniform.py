"""The `uniform` assignor: each member gets the same number of partitions, with as few moves as possible.

If all members subscribe to the same topics, they differ by at most one partition, and only the partitions above a
member's share move. If subscriptions differ, the assignment is the most even one that they allow: no partition can be
passed on, directly or through other members, to a member with at least two fewer.

The properties are those of Kafka's UniformAssignor. Kafka evens out each topic by itself and ignores chains over
several topics. Kafka fills one member after the other; here free partitions are dealt out in turn, so a member of a
group with many topics gets some of each. A topic that does not exist is no error: its subscribers get the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kohort.coordinator.assignors.placement import place_partitions
from kohort.coordinator.assignors.spec import Assignment, GroupSpec


class UniformAssignor(msgspec.Struct, frozen=True):
    name: str = "uniform"

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        return place_partitions(group, racks=False)
