"""The `rack` assignor: as even as `uniform`; among the even assignments, one in which members read nearby.

A partition is near a member if its leader or one of its replicas is in the member's rack, because a consumer may
fetch from a replica in its own rack (KIP-392). As many partitions have a near owner as balance allows. A near
partition stays with its owner when its leader moves between its replicas; a far one moves only if that brings it or
another one near.

KIP-881 asks this of assignors in clients; Kafka's assignors on the server ignore racks. Exchanges are found one by one:
where several subscriptions and several racks meet, a better assignment may exist.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kohort.coordinator.assignors.placement import place_partitions
from kohort.coordinator.assignors.spec import Assignment, GroupSpec


class RackAssignor(msgspec.Struct, frozen=True):
    name: str = "rack"

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        return place_partitions(group, racks=True)
