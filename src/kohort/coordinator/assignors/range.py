"""The `range` assignor: a run of consecutive partitions of each topic, and the same run of topics that are alike.

The partitions of a topic are cut into as many runs as it has subscribers, the longer ones first. Topics with the same
subscribers are cut at the same places, as far as their partition counts allow, and a member has the same place in all
of them: topics with the same number of partitions are co-partitioned, so one member can join them.

The order of the members:

- Static members come first, in the order of their instance ids, as in Kafka. A member that returns under its instance
  id gets its place back, and instance `worker-0` has the first run.
- The ids of other members are random, and so would their order be. They keep the place where they own most; the others
  fill the remaining places in the order of their ids. When a member leaves, the owner of the last run takes its place,
  and the others change only where the ends of the runs shift. Kafka sorts these members too, so a new one moves all
  later ones.

With fewer partitions than subscribers the last places are empty. A member of many topics may get the longer run of
each; that is the price of co-partitioning. `uniform` does not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kohort.coordinator.assignors.group_index import NOBODY, GroupIndex, alike, assignments, index_of
from kohort.coordinator.assignors.spec import Assignment, GroupSpec


class RangeAssignor(msgspec.Struct, frozen=True):
    name: str = "range"

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        indexed = index_of(group)
        owners = [NOBODY] * len(indexed.owners)
        together: dict[int, list[int]] = {}
        for place, first in enumerate(alike(indexed)):
            together.setdefault(first, []).append(place)
        for first, places in together.items():
            subscribers = _in_order(indexed, indexed.subscribers(first))
            if not subscribers:
                continue
            members = _seated(indexed, subscribers, places)
            for place in places:
                start, end = indexed.starts[place], indexed.starts[place + 1]
                for member, (low, high) in zip(members, _runs(end - start, len(members)), strict=True):
                    owners[start + low : start + high] = [member] * (high - low)
        return assignments(indexed, owners)


def _in_order(indexed: GroupIndex, members: Iterable[int]) -> list[int]:
    """Static members by instance id, then the others by member id."""

    def order(index: int) -> tuple[bool, str, int]:
        instance_id = indexed.members[index].instance_id
        return (instance_id is None, instance_id or "", index)

    return sorted(members, key=order)


def _runs(partitions: int, members: int) -> list[tuple[int, int]]:
    least, longer = divmod(partitions, members)
    ends = [least * (place + 1) + min(place + 1, longer) for place in range(members)]
    return list(zip([0, *ends], ends, strict=False))


def _seated(indexed: GroupIndex, subscribers: Sequence[int], places: Sequence[int]) -> list[int]:
    """The subscribers in the order of their runs."""
    static = sum(indexed.members[member].instance_id is not None for member in subscribers)
    seats: list[int] = [*subscribers[:static], *[NOBODY] * (len(subscribers) - static)]
    standing = {member: order for order, member in enumerate(subscribers[static:])}
    for _, order, seat in sorted(
        (-partitions, standing[member], seat)
        for (member, seat), partitions in _owned_by_seat(indexed, len(seats), places).items()
        if member in standing
    ):
        member = subscribers[static + order]
        if member in standing and seats[seat] == NOBODY:
            seats[seat] = member
            del standing[member]
    rest = iter(standing)
    return [member if member != NOBODY else next(rest) for member in seats]


def _owned_by_seat(indexed: GroupIndex, seats: int, places: Sequence[int]) -> dict[tuple[int, int], int]:
    """How many partitions of each run each member owns now."""
    owned: dict[tuple[int, int], int] = {}
    for place in places:
        start, end = indexed.starts[place], indexed.starts[place + 1]
        for seat, (low, high) in enumerate(_runs(end - start, seats)):
            for member in indexed.owners[start + low : start + high]:
                if member != NOBODY:
                    owned[member, seat] = owned.get((member, seat), 0) + 1
    return owned
