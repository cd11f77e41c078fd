"""`range` and `roundrobin`: the result depends on the members and topics alone, not on earlier assignments.

As RangeAssignor.java and RoundRobinAssignor.java, except that `range` ignores racks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.client.assignors.spec import Assignor, Consumer, Division, subscribed


def divide_ranges(partitions: Mapping[str, int], consumers: Sequence[Consumer]) -> Division:
    """Each member gets a run of neighbouring partitions of each topic; the first runs are longer by one."""
    divided: Division = {consumer.member_id: [] for consumer in consumers}
    ranked = sorted(consumers, key=lambda consumer: consumer.rank)
    for topic in sorted({topic for consumer in consumers for topic in consumer.topics}):
        readers = [consumer for consumer in ranked if topic in consumer.topics]
        each, longer = divmod(partitions.get(topic, 0), len(readers))
        start = 0
        for n, consumer in enumerate(readers):
            end = start + each + (n < longer)
            divided[consumer.member_id] += [(topic, index) for index in range(start, end)]
            start = end
    return divided


def divide_in_turn(partitions: Mapping[str, int], consumers: Sequence[Consumer]) -> Division:
    """Partition after partition to member after member, without the members that do not subscribe to its topic."""
    divided: Division = {consumer.member_id: [] for consumer in consumers}
    ranked = sorted(consumers, key=lambda consumer: consumer.rank)
    turn = 0
    for topic, index in subscribed(partitions, consumers):
        while topic not in ranked[turn % len(ranked)].topics:
            turn += 1
        divided[ranked[turn % len(ranked)].member_id].append((topic, index))
        turn += 1
    return divided


RANGE = Assignor("range", divide_ranges)
ROUNDROBIN = Assignor("roundrobin", divide_in_turn)
