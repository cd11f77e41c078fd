"""The owners of a group's partitions, and the moves between two assignments.

An assignment is opaque bytes; only a consumer's can be read. Members whose bytes did not change kept their partitions
and are not decoded, so a rebalance of ten thousand members costs the decoding of those that changed. A static member is
identified by its instance id, because its member id changes when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from kohort.coordinator.events import MemberStory
from kohort.wire.embedded import assignment_in

Identity = tuple[str, str]

UNREAD = -1


class Owner(msgspec.Struct, frozen=True):
    """A member and what it owns. The bytes are the coordinator's own object, so they cost no memory."""

    member: MemberStory
    count: int
    """Partitions; 0 if the bytes cannot be read, UNREAD if they were not decoded yet."""

    @property
    def assignment(self) -> bytes:
        return self.member.assignment


Owners = dict[Identity, Owner]


class Change(NamedTuple):
    """The gains and losses of one member."""

    gained: dict[str, set[int]]
    lost: dict[str, set[int]]


class Comparison(NamedTuple):
    owners: Owners
    changes: dict[Identity, Change]
    """Members that gained or lost partitions, including former ones."""
    moved: int
    taken: int
    released: int


def identity_of(member: MemberStory) -> Identity:
    return ("", member.member_id) if member.instance_id is None else ("instance", member.instance_id)


def partitions_of(assignment: bytes) -> dict[str, set[int]] | None:
    """None if the bytes are not a consumer's assignment. No bytes at all are an empty assignment."""
    if not assignment:
        return {}
    found = assignment_in(assignment)
    return None if found is None else {topic: set(indexes) for topic, indexes in found.items()}


def unread_owners(members: Iterable[MemberStory]) -> Owners:
    """The owners at a start, not decoded: they may never change."""
    return {identity_of(member): Owner(member, UNREAD) for member in members}


def compare(before: Mapping[Identity, Owner], members: Iterable[MemberStory]) -> Comparison:
    after: Owners = {}
    changes: dict[Identity, Change] = {}
    for member in members:
        identity = identity_of(member)
        old = before.get(identity)
        if old is not None and old.count != UNREAD and old.assignment == member.assignment:
            after[identity] = Owner(member, old.count)
            continue
        has = partitions_of(member.assignment) or {}
        had = partitions_of(old.assignment) or {} if old is not None else {}
        after[identity] = Owner(member, sum(map(len, has.values())))
        if old is None or old.assignment != member.assignment:
            changes[identity] = Change(_minus(has, had), _minus(had, has))
    for identity, old in before.items():
        if identity not in after:
            changes[identity] = Change({}, partitions_of(old.assignment) or {})
    changes = {identity: change for identity, change in changes.items() if change.gained or change.lost}
    gained = {
        (topic, index) for change in changes.values() for topic in change.gained for index in change.gained[topic]
    }
    lost = {(topic, index) for change in changes.values() for topic in change.lost for index in change.lost[topic]}
    return Comparison(after, changes, len(gained & lost), len(gained - lost), len(lost - gained))


def _minus(these: Mapping[str, set[int]], those: Mapping[str, set[int]]) -> dict[str, set[int]]:
    found = {topic: indexes - those[topic] if topic in those else indexes for topic, indexes in these.items()}
    return {topic: indexes for topic, indexes in found.items() if indexes}
