"""The `range` assignor: of every topic a run of neighbouring partitions, of equal topics the same run.

The partitions of a topic are cut into as many runs as it has subscribers, the longer ones first. Topics that have the
same subscribers are cut in the same places, as far as their numbers of partitions allow, and a member has the same
place in all of them: topics with the same number of partitions are co-partitioned, and can be joined by a member alone.

Who gets which place:

- Static members come first, in the order of their instance ids, as in Kafka. A member that returns under its instance
  id has its place again, whatever else happened to the group, and instance `worker-0` has the first run.
- The ids of other members are random, and so would their order be. They keep the place where they own most already;
  what is left is filled in the order of the ids. So when one leaves, the last run's owner takes its place, and the
  others feel it only where the runs' ends shift. Kafka sorts here too, and moves everyone behind a newcomer.

With fewer partitions than subscribers the last places are empty. A member of many topics may have the longer run of
each: that is the price of co-partitioning. `uniform` does not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from kohort.coordinator.assignors.spec import Assignment, GroupSpec
from kohort.coordinator.assignors.units import NOBODY, Units, alike, assignments, units_of


class RangeAssignor(msgspec.Struct, frozen=True):
    name: str = "range"

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        units = units_of(group)
        owners = [NOBODY] * len(units.owners)
        together: dict[int, list[int]] = {}
        for place, first in enumerate(alike(units)):
            together.setdefault(first, []).append(place)
        for first, places in together.items():
            subscribers = _in_order(units, chain.from_iterable(units.classes[c] for c in units.topic_classes[first]))
            if not subscribers:
                continue
            members = _seated(units, subscribers, places)
            for place in places:
                start, end = units.starts[place], units.starts[place + 1]
                for member, (low, high) in zip(members, _runs(end - start, len(members)), strict=True):
                    owners[start + low : start + high] = [member] * (high - low)
        return assignments(units, owners)


def _in_order(units: Units, members: Iterable[int]) -> list[int]:
    """Static members first, by instance id; then the others, by member id."""

    def order(index: int) -> tuple[bool, str, int]:
        instance_id = units.members[index].instance_id
        return (instance_id is None, instance_id or "", index)

    return sorted(members, key=order)


def _runs(partitions: int, members: int) -> list[tuple[int, int]]:
    least, longer = divmod(partitions, members)
    ends = [least * (place + 1) + min(place + 1, longer) for place in range(members)]
    return list(zip([0, *ends], ends, strict=False))


def _seated(units: Units, subscribers: Sequence[int], places: Sequence[int]) -> list[int]:
    """The subscribers in the order of their runs."""
    static = sum(units.members[member].instance_id is not None for member in subscribers)
    seats: list[int] = [*subscribers[:static], *[NOBODY] * (len(subscribers) - static)]
    standing = {member: order for order, member in enumerate(subscribers[static:])}
    for _, order, seat in sorted(
        (-partitions, standing[member], seat)
        for (member, seat), partitions in _owned_by_seat(units, len(seats), places).items()
        if member in standing
    ):
        member = subscribers[static + order]
        if member in standing and seats[seat] == NOBODY:
            seats[seat] = member
            del standing[member]
    rest = iter(standing)
    return [member if member != NOBODY else next(rest) for member in seats]


def _owned_by_seat(units: Units, seats: int, places: Sequence[int]) -> dict[tuple[int, int], int]:
    """How many partitions of each run each member owns already."""
    owned: dict[tuple[int, int], int] = {}
    for place in places:
        start, end = units.starts[place], units.starts[place + 1]
        for seat, (low, high) in enumerate(_runs(end - start, seats)):
            for member in units.owners[start + low : start + high]:
                if member != NOBODY:
                    owned[member, seat] = owned.get((member, seat), 0) + 1
    return owned
