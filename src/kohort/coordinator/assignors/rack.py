"""The `rack` assignor: as even as `uniform`, and of the even assignments one that reads near.

A partition is near a member whose rack holds its leader or one of its replicas, for a consumer may fetch from a replica
in its own rack (KIP-392). As many partitions as balance allows have a near owner. A near partition stays where it is
when its leader moves from one replica to another; a far one moves only if that brings it, or another one, near.

KIP-881 wants this of the assignors that clients run; Kafka's assignors on the server leave racks aside. Where several
subscriptions meet several racks, exchanges are found one after the other, and a better assignment may exist.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kohort.coordinator.assignors.allot import allotted
from kohort.coordinator.assignors.spec import Assignment, GroupSpec


class RackAssignor(msgspec.Struct, frozen=True):
    name: str = "rack"

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        return allotted(group, racks=True)
