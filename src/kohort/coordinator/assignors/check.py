"""Checks an assignor's answer; nothing else of a plug-in is trusted.

An answer with any error, such as one unknown partition, is refused as a whole, and the group keeps its assignment. The
rest is normalized: partitions are sorted, topics without partitions dropped, members that are not mentioned get
nothing. Unassigned partitions are no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TypeAlias

from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec, TopicId

Result: TypeAlias = "Mapping[str, Assignment] | str"
"""The assignment of every member of a group, or why there is none."""

MAX_QUOTED = 80
"""Characters of a plug-in's value that an error quotes."""
MAX_RAISED = 500
"""Characters that are kept of a plug-in's exception."""


def assigned(assignor: Assignor, group: GroupSpec) -> Result:
    """The checked answer of an assignor. An exception is a refusal."""
    try:
        return checked(group, assignor.assign(group))
    except Exception as error:  # of a plug-in
        return f"{type(error).__name__}: {error}"[:MAX_RAISED]


def checked(group: GroupSpec, result: object) -> Result:
    """The assignment of every member, or why the answer is refused."""
    if not isinstance(result, Mapping):
        return f"the answer is {_quoted(result)}, not a mapping of members to their partitions"
    unknown = [member_id for member_id in result if not isinstance(member_id, str) or member_id not in group.members]
    if unknown:
        return f"unknown member {_quoted(unknown[0])}"
    owners: dict[tuple[TopicId, int], str] = {}
    assignments: dict[str, Assignment] = {}
    subscriptions: dict[int, frozenset[TopicId]] = {}
    """Members with the same subscription share the tuple of its topics."""
    for member_id, member in group.members.items():
        if (topics := subscriptions.get(id(member.topics))) is None:
            topics = subscriptions[id(member.topics)] = frozenset(member.topics)
        given = result.get(member_id, {})
        if not isinstance(given, Mapping):
            return f"member {member_id} gets {_quoted(given)}, not a mapping of topic ids to partitions"
        tidy: dict[TopicId, tuple[int, ...]] = {}
        for topic_id, partitions in given.items():
            numbers = _partitions(group, topics, topic_id, partitions)
            if isinstance(numbers, str):
                return f"member {member_id} gets {numbers}"
            for number in numbers:
                other = owners.setdefault((topic_id, number), member_id)
                if other != member_id:
                    return f"partition {number} of {group.topics[topic_id].name} goes to {other} and to {member_id}"
            if numbers:
                tidy[topic_id] = numbers
        assignments[member_id] = tidy
    return assignments


def _partitions(
    group: GroupSpec, subscribed: frozenset[TopicId], topic_id: object, partitions: object
) -> tuple[int, ...] | str:
    """A member's partitions of a topic, or what is wrong with them."""
    topic = group.topics.get(topic_id) if isinstance(topic_id, bytes) else None
    if topic is None:
        return f"partitions of an unknown topic, {_quoted(topic_id)}"
    if topic.topic_id not in subscribed:
        return f"partitions of {topic.name}, which it is not subscribed to"
    # The look at the abstract class is slow: it is the last one.
    if not isinstance(partitions, (tuple, list, range, set, frozenset)) and not isinstance(partitions, Set):
        return f"{_quoted(partitions)} as partitions of {topic.name}"
    if len(partitions) > topic.partitions:
        return f"{len(partitions)} partitions of {topic.name}, which has {topic.partitions}"
    for number in partitions:
        if type(number) is not int or not 0 <= number < topic.partitions:
            return f"partition {_quoted(number)} of {topic.name}, which has {topic.partitions}"
    if len(set(partitions)) < len(partitions):
        return f"a partition of {topic.name} twice"
    return tuple(sorted(partitions))


def _quoted(value: object) -> str:
    if isinstance(value, str | int | bytes):
        text = repr(value)
        return text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…"
    # The repr of anything else runs the plug-in's code or is as long as the answer.
    return f"a {type(value).__name__}"[:MAX_QUOTED]
