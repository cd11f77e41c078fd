"""The `uniform` assignor: every member the same number of partitions, and as few moves as that takes.

Where all members subscribe to the same topics, no two of them differ by more than one partition, and exactly those
partitions move that a member has above its share. Where subscriptions differ, the assignment is the most even one that
they allow: no partition could be passed on, over however many members, to one that has at least two fewer.

The properties are those of Kafka's UniformAssignor. Kafka evens out topic by topic and leaves chains over several
topics alone; it fills one member after the other, where here what is free goes round, so that a member of a group with
many topics gets some of each. A topic that does not exist is no error here: its subscribers get the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kohort.coordinator.assignors.allot import allotted
from kohort.coordinator.assignors.spec import Assignment, GroupSpec


class UniformAssignor(msgspec.Struct, frozen=True):
    name: str = "uniform"

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        return allotted(group, racks=False)
