"""A group with indexes instead of names, which makes the assignors fast.

The partitions of all topics are numbered in one row; such a number is a *unit*. Topics are in the order of their names
and members in the order of their ids, so an assignment does not depend on the order of the group's mappings. Members
with the same subscription form a *class*: a partition that one of them may own, all of them may own.
"""

from __future__ import annotations

import msgspec

from kohort.coordinator.assignors.spec import Assignment, GroupSpec, MemberSpec, TopicId, TopicSpec

NOBODY = -1


class GroupIndex(msgspec.Struct, frozen=True):
    """Members and topics are referred to by their index in `members` and `topics`."""

    members: tuple[MemberSpec, ...]
    topics: tuple[TopicSpec, ...]
    starts: tuple[int, ...]
    """A topic's first unit; one more entry than topics, the last is the number of indexed."""
    classes: tuple[tuple[int, ...], ...]
    """The members of each class, ascending."""
    topic_classes: tuple[tuple[int, ...], ...]
    """For each topic, the classes that subscribe to it, ascending."""
    owners: list[int]
    """For each unit, the member that owned it and still may, or NOBODY."""

    def units(self, topic: int) -> range:
        return range(self.starts[topic], self.starts[topic + 1])

    def subscribers(self, topic: int) -> list[int]:
        return [member for number in self.topic_classes[topic] for member in self.classes[number]]


def index_of(group: GroupSpec) -> GroupIndex:
    members = tuple(group.members[member_id] for member_id in sorted(group.members))
    topics = tuple(sorted(group.topics.values(), key=lambda topic: (topic.name, topic.topic_id)))
    starts = [0]
    for topic in topics:
        starts.append(starts[-1] + max(0, topic.partitions))
    places = {topic.topic_id: place for place, topic in enumerate(topics)}
    subscriptions: dict[frozenset[TopicId], list[int]] = {}
    seen: dict[tuple[TopicId, ...], frozenset[TopicId]] = {}
    for index, member in enumerate(members):
        subscription = seen.get(member.topics)
        if subscription is None:
            subscription = seen[member.topics] = frozenset(topic for topic in member.topics if topic in places)
        subscriptions.setdefault(subscription, []).append(index)
    topic_classes: list[list[int]] = [[] for _ in topics]
    for number, subscription in enumerate(subscriptions):
        for topic_id in subscription:
            topic_classes[places[topic_id]].append(number)
    return GroupIndex(
        members=members,
        topics=topics,
        starts=tuple(starts),
        classes=tuple(tuple(indexes) for indexes in subscriptions.values()),
        topic_classes=tuple(tuple(numbers) for numbers in topic_classes),
        owners=_owners(members, subscriptions, places, starts),
    )


def _owners(
    members: tuple[MemberSpec, ...],
    subscriptions: dict[frozenset[TopicId], list[int]],
    places: dict[TopicId, int],
    starts: list[int],
) -> list[int]:
    """If two members claim a partition, the first one owns it."""
    owners = [NOBODY] * starts[-1]
    for subscription, indexes in subscriptions.items():
        for index in indexes:
            for topic_id, partitions in members[index].owned.items():
                if topic_id not in subscription:
                    continue
                place = places[topic_id]
                start = starts[place]
                count = starts[place + 1] - start
                for partition in partitions:
                    if 0 <= partition < count and not 0 <= owners[start + partition] < index:
                        owners[start + partition] = index
    return owners


def assignments(indexed: GroupIndex, owners: list[int]) -> dict[str, Assignment]:
    """Each member's assignment, from the owners of the units."""
    result: list[dict[TopicId, tuple[int, ...]]] = [{} for _ in indexed.members]
    for place, topic in enumerate(indexed.topics):
        start, end = indexed.starts[place], indexed.starts[place + 1]
        partitions: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners[start:end]):
            if owner in partitions:
                partitions[owner].append(partition)
            else:
                partitions[owner] = [partition]
        partitions.pop(NOBODY, None)
        for owner, numbers in partitions.items():
            result[owner][topic.topic_id] = tuple(numbers)
    return {member.member_id: result[index] for index, member in enumerate(indexed.members)}


def alike(indexed: GroupIndex) -> list[int]:
    """For each topic, the first topic with the same subscribers. Assignors treat these topics alike."""
    firsts: dict[tuple[int, ...], int] = {}
    return [firsts.setdefault(classes, place) for place, classes in enumerate(indexed.topic_classes)]
