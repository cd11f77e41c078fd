"""The assignor of share groups, `simple`: it spreads the members over the partitions.

With P partitions and M members, each partition has ceil(M / P) members, and the members' numbers of partitions differ
by one at most. If there are fewer members than partitions, each partition has one member. Members keep what they have
as far as that allows. Source: SimpleAssignor.java, row SH21; which member gets what is not Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from kohort.coordinator.share_groups.group import NOTHING, Partitions, TopicPartition

NAME = "simple"


def assigned(
    subscribed: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, Sequence[int]],
    former: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """`subscribed`: the topic ids of each member, `partitions`: those that may be assigned of each topic."""
    alike: dict[frozenset[bytes], list[str]] = {}
    for member in sorted(subscribed):
        alike.setdefault(subscribed[member], []).append(member)
    if len(alike) == 1:
        [(topics, members)] = alike.items()
        whole = [(topic, index) for topic in sorted(topics) for index in partitions.get(topic, ())]
        return _spread(members, whole, former)
    found: dict[str, set[TopicPartition]] = {member: set() for member in subscribed}
    members_of: dict[bytes, list[str]] = {}
    kept: dict[bytes, dict[str, set[TopicPartition]]] = {}
    for member in sorted(subscribed):
        for topic in subscribed[member]:
            members_of.setdefault(topic, []).append(member)
        for one in former.get(member, NOTHING):
            kept.setdefault(one[0], {}).setdefault(member, set()).add(one)
    for topic in sorted(partitions):
        whole = [(topic, index) for index in partitions[topic]]
        for member, given in _spread(members_of.get(topic, ()), whole, kept.get(topic, {})).items():
            found[member] |= given
    return {member: frozenset(given) for member, given in found.items()}


def _spread(
    members: Sequence[str], partitions: Sequence[TopicPartition], former: Mapping[str, Set[TopicPartition]]
) -> dict[str, Partitions]:
    if not members:
        return {}
    if not partitions:
        return dict.fromkeys(members, NOTHING)
    each = -(-len(members) // len(partitions))
    places = each * len(partitions)
    counts = [-(-places * (at + 1) // len(members)) - -(-places * at // len(members)) for at in range(len(members))]
    room = dict.fromkeys(partitions, each)
    # Who has much keeps much: the larger numbers go to those that can use them.
    kept = {member: [one for one in sorted(former.get(member, NOTHING)) if one in room] for member in members}
    ordered = sorted(members, key=lambda member: (-len(kept[member]), member))
    quota = dict(zip(ordered, sorted(counts, reverse=True), strict=True))
    found: dict[str, set[TopicPartition]] = {}
    for member in ordered:
        mine = found[member] = set()
        for one in kept[member]:
            if len(mine) < quota[member] and room[one]:
                mine.add(one)
                room[one] -= 1
    free = [one for one, left in room.items() for _ in range(left)]
    for member in ordered:
        _fill(found, member, quota[member], free)
    return {member: frozenset(found[member]) for member in members}


def _fill(found: dict[str, set[TopicPartition]], member: str, quota: int, free: list[TopicPartition]) -> None:
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
