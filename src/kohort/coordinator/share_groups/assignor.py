"""The assignor of share groups, `simple`: it spreads the members over the partitions.

With P partitions and M members, each partition has ceil(M / P) members, and the members' numbers of partitions differ
by one at most. If there are fewer members than partitions, each partition has one member. Members keep what they have
as far as that allows. Source: SimpleAssignor.java, row SH21; which member gets what is not Kafka's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from kohort.coordinator.share_groups.group import NOTHING, Partitions
from kohort.wire.schemas.share_group_records import ShareTopicPartitions

NAME = "simple"


def assigned(
    subscribed: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, Sequence[int]],
    former: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """`subscribed`: the topic ids of each member, `partitions`: those that may be assigned of each topic, in order."""
    alike: dict[frozenset[bytes], list[str]] = {}
    for member in sorted(subscribed):
        alike.setdefault(subscribed[member], []).append(member)
    had = {member: {one.topic_id: one.partitions for one in former.get(member, NOTHING)} for member in subscribed}
    if len(alike) == 1:
        [(topics, members)] = alike.items()
        whole = _Places([(topic, partitions[topic]) for topic in sorted(topics) if topic in partitions])
        kept = {member: whole.numbers_of(had[member]) for member in members}
        return {member: whole.partitions_of(given) for member, given in _spread(members, whole.count, kept).items()}
    found: dict[str, list[ShareTopicPartitions]] = {member: [] for member in subscribed}
    members_of: dict[bytes, list[str]] = {}
    for member in sorted(subscribed):
        for topic in subscribed[member]:
            members_of.setdefault(topic, []).append(member)
    for topic in sorted(partitions):
        whole = _Places([(topic, partitions[topic])])
        members = members_of.get(topic, [])
        kept = {member: whole.numbers_of(had[member]) for member in members}
        for member, given in _spread(members, whole.count, kept).items():
            found[member] += whole.partitions_of(given)
    return {member: tuple(given) for member, given in found.items()}


class _Places:
    """Partitions of topics as numbers, so that thousands of them are divided quickly."""

    def __init__(self, topics: Sequence[tuple[bytes, Sequence[int]]]) -> None:
        self._topics = topics
        self._firsts: list[int] = []
        """The number of each topic's first partition."""
        self.count = 0
        for _, indexes in topics:
            self._firsts.append(self.count)
            self.count += len(indexes)

    def numbers_of(self, had: Mapping[bytes, Sequence[int]]) -> list[int]:
        numbers: list[int] = []
        for first, (topic, indexes) in zip(self._firsts, self._topics, strict=True):
            mine = had.get(topic)
            if not mine:
                continue
            if indexes[-1] == len(indexes) - 1:
                numbers += [first + index for index in mine if index < len(indexes)]
            else:
                place = {index: first + at for at, index in enumerate(indexes)}
                numbers += [place[index] for index in mine if index in place]
        return numbers

    def partitions_of(self, numbers: Iterable[int]) -> Partitions:
        ordered = sorted(numbers)
        found = []
        low = 0
        for first, (topic, indexes) in zip(self._firsts, self._topics, strict=True):
            if low == len(ordered):
                break
            high = bisect_left(ordered, first + len(indexes), low)
            if high > low:
                of_topic = tuple([indexes[number - first] for number in ordered[low:high]])
                found.append(ShareTopicPartitions(topic_id=topic, partitions=of_topic))
            low = high
        return tuple(found)


def _spread(members: Sequence[str], partitions: int, kept: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Which of the numbers below `partitions` each member gets. `kept`: what it has now."""
    if not members or not partitions:
        return {member: [] for member in members}
    each = -(-len(members) // partitions)
    places = each * partitions
    counts = [-(-places * (at + 1) // len(members)) - -(-places * at // len(members)) for at in range(len(members))]
    room = [each] * partitions
    # Who has much keeps much: the larger numbers go to those that can use them.
    ordered = sorted(members, key=lambda member: (-len(kept[member]), member))
    quota = dict(zip(ordered, sorted(counts, reverse=True), strict=True))
    found: dict[str, list[int]] = {}
    for member in ordered:
        mine = found[member] = []
        most = quota[member]
        for number in kept[member]:
            if room[number]:
                if len(mine) == most:
                    break
                mine.append(number)
                room[number] -= 1
    if each == 1:
        free = [number for number, left in enumerate(room) if left]
        at = 0
        for member in ordered:
            wants = quota[member] - len(found[member])
            found[member] += free[at : at + wants]
            at += wants
        return found
    free = [number for number, left in enumerate(room) for _ in range(left)]
    shared = {member: set(found[member]) for member in ordered}
    for member in ordered:
        _fill(shared, member, quota[member], free)
    return {member: list(given) for member, given in shared.items()}


def _fill(found: dict[str, set[int]], member: str, quota: int, free: list[int]) -> None:
    """Give a member places that are left. If it has all of these already, it exchanges one with another member."""
    mine = found[member]
    at = 0
    while len(mine) < quota and at < len(free):
        if free[at] not in mine:
            mine.add(free.pop(at))
        else:
            at += 1
    while len(mine) < quota and free:
        one = free.pop()
        for other in found:
            give = next((have for have in sorted(found[other]) if have not in mine and one not in found[other]), None)
            if give is not None:
                found[other].remove(give)
                found[other].add(one)
                mine.add(give)
                break
        else:
            break
