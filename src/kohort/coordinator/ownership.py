"""Who of a group has what, and what moved between two assignments.

An assignment is opaque bytes; a consumer's can be read. Members whose bytes stayed the same kept what they had, and
are not looked into, so a rebalance of ten thousand members costs the reading of those that changed. A static member is
known by its instance id: its member id changes when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from kohort.coordinator.events import MemberStory
from kohort.coordinator.stories import Partitions
from kohort.wire.embedded import assignment_in

Identity = tuple[str, str]


class Owner(msgspec.Struct, frozen=True):
    """A member and what it has. The bytes are the coordinator's own object, so keeping them costs nothing."""

    member: MemberStory
    count: int
    """Partitions; 0 where the bytes cannot be read."""

    @property
    def assignment(self) -> bytes:
        return self.member.assignment


Owners = dict[Identity, Owner]


class Change(NamedTuple):
    """What one member gained and lost."""

    gained: Partitions
    lost: Partitions


class Comparison(NamedTuple):
    owners: Owners
    changes: dict[Identity, Change]
    """Members that gained or lost something, those that are gone included."""
    moved: int
    taken: int
    released: int


def identity_of(member: MemberStory) -> Identity:
    return ("", member.member_id) if member.instance_id is None else ("instance", member.instance_id)


def partitions_of(assignment: bytes) -> dict[str, set[int]] | None:
    """None where the bytes are no consumer's assignment. No bytes at all are an assignment of nothing."""
    if not assignment:
        return {}
    found = assignment_in(assignment)
    return None if found is None else {topic: set(indexes) for topic, indexes in found.items()}


def owners_of(members: Iterable[MemberStory], before: Mapping[Identity, Owner]) -> Owners:
    owners: Owners = {}
    for member in members:
        identity = identity_of(member)
        old = before.get(identity)
        if old is not None and old.assignment == member.assignment:
            count = old.count
        else:
            count = sum(map(len, (partitions_of(member.assignment) or {}).values()))
        owners[identity] = Owner(member, count)
    return owners


def compare(before: Owners, members: Iterable[MemberStory]) -> Comparison:
    after = owners_of(members, before)
    changes: dict[Identity, Change] = {}
    losers: dict[tuple[str, int], Identity] = {}
    gainers: dict[tuple[str, int], Identity] = {}
    for identity in [*after, *(identity for identity in before if identity not in after)]:
        old = before[identity].assignment if identity in before else b""
        new = after[identity].assignment if identity in after else b""
        if old == new:
            continue
        had, has = partitions_of(old) or {}, partitions_of(new) or {}
        gained, lost = _minus(has, had), _minus(had, has)
        if gained or lost:
            changes[identity] = Change(gained, lost)
            gainers.update(((topic, index), identity) for topic, indexes in gained.items() for index in indexes)
            losers.update(((topic, index), identity) for topic, indexes in lost.items() for index in indexes)
    moved = sum(partition in losers for partition in gainers)
    return Comparison(after, changes, moved, len(gainers) - moved, len(losers) - moved)


def _minus(these: Mapping[str, set[int]], those: Mapping[str, set[int]]) -> Partitions:
    found = {topic: sorted(indexes - those.get(topic, set())) for topic, indexes in sorted(these.items())}
    return {topic: indexes for topic, indexes in found.items() if indexes}
