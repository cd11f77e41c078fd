"""A story: what the journal keeps of one rebalance, or of a single happening without one. Its JSON is the format.

The JSON is the value of a record of `__kohort_journal`, the answer to `kohort groups explain`, and what Spark reads, so
names and types stay as they are; fields may be added. What is not known or empty is left out. Instants are milliseconds
since the epoch, `…_after_ms` and `took_ms` are milliseconds from the story's start or a phase's. Names that clients
made up are cut to `LONGEST_TEXT` characters.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kohort.coordinator.events import JournalEntry, MemberStory, Millis

LONGEST_TEXT = 250
"""Characters kept of a member id, client id, instance id or reason: a request can carry ones of a megabyte."""

Partitions = dict[str, list[int]]
"""By topic, ascending."""


class Happening(msgspec.Struct, omit_defaults=True):
    """One thing that happened, and to whom."""

    what: str
    """One of `events.What`."""
    after_ms: Millis = 0
    cause: str = ""
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    waited_ms: Millis | None = None
    """session expired: how long it was silent. member removed for being late: how long the others waited."""


class PhaseLength(msgspec.Struct, omit_defaults=True):
    phase: str
    """PreparingRebalance or CompletingRebalance; of a consumer group Assigning or Reconciling."""
    took_ms: Millis | None = None
    """None while it lasts."""
    ended_by: str = ""


class Steps(msgspec.Struct, omit_defaults=True):
    """A member of a consumer group on its way to the target: what it had to give up, and what it got."""

    revoked: int = 0
    """Partitions that it was told to give up."""
    times: int = 0
    """How often it was told to give some up: in a gradual hand-over, or when the target changed on the way."""
    told_after_ms: Millis | None = None
    """The first time."""
    told_by: str = ""
    """"push", as the answer to a heartbeat that was held, or "heartbeat", its next one; the first time."""
    revoked_after_ms: Millis | None = None
    """It said that it had given up the last of them; None if it never did."""
    gave_up_in_ms: Millis | None = None
    """From being told to having said so; the longest of all times."""
    waited_after_ms: Millis | None = None
    """It began to wait for partitions that others still had."""
    waited_ms: Millis | None = None
    """How long it waited for such in all; None while it waits for the first ones."""
    waited_for: list[str] = []
    """The ids of some of those others."""
    got: int = 0
    """Partitions that it got."""
    got_after_ms: Millis | None = None
    """The last of them."""
    got_by: str = ""
    """As `told_by`."""


class HeldBack(msgspec.Struct, omit_defaults=True):
    """Why the target of a consumer group, or a part of it, had to wait."""

    why: str
    """"assignment interval", "initial delay", "gradual hand-over", "rollout hold"."""
    after_ms: Millis = 0
    for_ms: Millis = 0
    """At most, from the first time to the end of the last."""
    times: int = 1
    partitions: int = 0
    """How many waited, when most of them did; 0 where that is not known."""


class MemberThen(msgspec.Struct, omit_defaults=True):
    """A member when the rebalance was over, or one that was gone by then."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    joined_after_ms: Millis | None = None
    """After the rebalance began."""
    synced_after_ms: Millis | None = None
    """After the generation began."""
    partitions: int = 0
    assignment: Partitions = {}
    """What it has now. Long ones are cut; `partitions` counts all."""
    gained: Partitions = {}
    lost: Partitions = {}
    assignment_bytes: int | None = None
    """The size of an assignment that is not the consumer protocol's."""
    assignment_bytes_before: int | None = None
    steps: Steps | None = None


class HeldUp(msgspec.Struct, omit_defaults=True):
    """Somebody whom the others waited for."""

    how: str
    """"joined last", "led and synced late", "did not rejoin in time", "did not sync in time", "session expired"; of a
    consumer group "gave up late", "session expired", and why it was removed."""
    waited_ms: Millis
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""


class Story(msgspec.Struct, omit_defaults=True):
    group: str
    number: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    """Counts up within the group."""
    started_ms: Millis
    cause: Happening
    why: str = ""
    """The rebalance's own words for it, which sum up several causes of one moment."""
    outcome: str = ""
    """"" while it runs; Stable, Empty, superseded (by the next rebalance), interrupted (the server stopped, or the
    group moved); noted: it was a single happening, and no rebalance."""
    took_ms: Millis | None = None
    """None also when a crash interrupted it, since nobody knows when that was."""
    group_type: str = ""
    """"consumer" for a consumer group (KIP-848); its generations are group epochs."""
    generation_before: int = -1
    generation_after: int = -1
    assignment_epoch: int = -1
    """Of a consumer group: the epoch of its newest target."""
    protocol_type: str = ""
    protocol: str = ""
    phases: list[PhaseLength] = []
    happenings: list[Happening] = []
    """What else happened while it ran: the first ones, in order."""
    more: dict[str, int] = {}
    """How often what happened beyond those."""
    held_up_by: list[HeldUp] = []
    held_back: list[HeldBack] = []
    """Of a consumer group: one a reason."""
    pushed: int = 0
    """Of a consumer group: how often a member was told of partitions as the answer to a heartbeat that was held."""
    polled: int = 0
    """How often with its next heartbeat."""
    members: list[MemberThen] = []
    """When it was over; those whose partitions changed come first. Before, those who have taken steps."""
    members_count: int | None = None
    gone: list[MemberThen] = []
    """Had an assignment before and are no members any more."""
    gone_count: int = 0
    partitions_count: int | None = None
    moved: int | None = None
    """Partitions that went from one member to another; None where the assignments cannot be read."""
    taken: int = 0
    """Partitions that nobody had before."""
    released: int = 0
    """Partitions that somebody had before and nobody has now."""


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def happening(entry: JournalEntry, after_ms: Millis) -> Happening:
    return Happening(
        what=entry.what,
        after_ms=after_ms,
        cause=cut(entry.cause),
        member_id=cut(entry.member_id),
        instance_id=None if entry.instance_id is None else cut(entry.instance_id),
        client_id=cut(entry.client_id),
        host=cut(entry.host),
        waited_ms=entry.waited_ms if entry.waited_ms >= 0 else None,
    )


def member_then(member: MemberStory) -> MemberThen:
    """Without its partitions."""
    return MemberThen(
        member_id=cut(member.member_id),
        instance_id=None if member.instance_id is None else cut(member.instance_id),
        client_id=cut(member.client_id),
        host=cut(member.host),
        joined_after_ms=member.joined_after_ms if member.joined_after_ms >= 0 else None,
        synced_after_ms=member.synced_after_ms if member.synced_after_ms >= 0 else None,
    )


def held_up(who: JournalEntry | MemberStory, how: str, waited_ms: Millis) -> HeldUp:
    return HeldUp(
        how=cut(how),
        waited_ms=max(waited_ms, 0),
        member_id=cut(who.member_id),
        instance_id=None if who.instance_id is None else cut(who.instance_id),
        client_id=cut(who.client_id),
        host=cut(who.host),
    )
