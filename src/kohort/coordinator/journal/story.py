"""A story: the journal's account of one rebalance, or of a single event without a rebalance. Its JSON is a format.

The JSON is the value of a record of `__kohort_journal`, the answer to `kohort groups explain` and the input of Spark:
names and types stay as they are; fields may be added. Unknown and empty values are left out. Instants are milliseconds
since the epoch; `…_after_ms` and `took_ms` are milliseconds from the start of the story or of a phase. Names that
clients chose are cut to `LONGEST_TEXT` characters.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kohort.coordinator.events import JournalEntry, MemberStory, Millis

LONGEST_TEXT = 250
"""Characters that are kept of a member id, client id, instance id or reason: requests can carry a megabyte."""

MOST_CHANGES = 1_000
"""Changed offsets of a story; the next ones begin another story."""

Partitions = dict[str, list[int]]
"""By topic, ascending."""


class Happening(msgspec.Struct, omit_defaults=True):
    """One event, and its member."""

    what: str
    """One of `events.What`."""
    after_ms: Millis = 0
    cause: str = ""
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    principal: str = ""
    """offsets deleted, offsets changed: "User:alice", if the client has authenticated."""
    waited_ms: Millis | None = None
    """session expired: how long the member was silent. member removed for being late: how long the others waited."""


class PhaseLength(msgspec.Struct, omit_defaults=True):
    phase: str
    """PreparingRebalance or CompletingRebalance; for a consumer group Assigning or Reconciling."""
    took_ms: Millis | None = None
    """None while it lasts."""
    ended_by: str = ""


class Steps(msgspec.Struct, omit_defaults=True):
    """The steps of a consumer group's member to its target: the partitions that it gave up and those that it got."""

    revoked: int = 0
    """Partitions that the member had to give up."""
    times: int = 0
    """How many requests to give partitions up it got: several in a gradual hand-over or if the target changed."""
    told_after_ms: Millis | None = None
    """The first request."""
    told_by: str = ""
    """"push" (the answer to a held heartbeat) or "heartbeat" (the answer to its next one); for the first request."""
    revoked_after_ms: Millis | None = None
    """When it acknowledged the last of them; None if it never did."""
    gave_up_in_ms: Millis | None = None
    """From a request to its acknowledgement; the longest."""
    waited_after_ms: Millis | None = None
    """When it began to wait for partitions that others still owned."""
    waited_ms: Millis | None = None
    """How long it waited in all; None while it waits for the first ones."""
    waited_for: list[str] = []
    """The ids of some of those others."""
    got: int = 0
    """Partitions that it got."""
    got_after_ms: Millis | None = None
    """When it got the last of them."""
    got_by: str = ""
    """As `told_by`."""


class HeldBack(msgspec.Struct, omit_defaults=True):
    """Why the target of a consumer group, or a part of it, was delayed."""

    why: str
    """"assignment interval", "initial delay", "departure", "gradual hand-over", "rollout hold"."""
    after_ms: Millis = 0
    for_ms: Millis = 0
    """At most: from the first delay to the end of the last."""
    times: int = 1
    partitions: int = 0
    """The most partitions that were delayed at once; 0 if unknown."""


class MemberThen(msgspec.Struct, omit_defaults=True):
    """A member at the end of the rebalance, or a member that had left by then."""

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
    """What it owns now. Long assignments are cut; `partitions` counts all."""
    gained: Partitions = {}
    lost: Partitions = {}
    assignment_bytes: int | None = None
    """The size of an assignment that is not the consumer protocol's."""
    assignment_bytes_before: int | None = None
    steps: Steps | None = None


class HeldUp(msgspec.Struct, omit_defaults=True):
    """A member that the others waited for."""

    how: str
    """"joined last", "led and synced late", "did not rejoin in time", "did not sync in time", "session expired"; in a
    consumer group "gave up late", "session expired", or why it was removed."""
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
    """The cause as the rebalance states it, which sums up several causes of one moment."""
    outcome: str = ""
    """"" while it runs; Stable, Empty, superseded (by the next rebalance), interrupted (the server stopped or the group
    moved); noted: a single happening, not a rebalance."""
    took_ms: Millis | None = None
    """None also if a crash interrupted it, because the time of the crash is unknown."""
    group_type: str = ""
    """"consumer" for a consumer group (KIP-848); its generations are group epochs."""
    generation_before: int = -1
    generation_after: int = -1
    assignment_epoch: int = -1
    """For a consumer group: the epoch of its newest target."""
    protocol_type: str = ""
    protocol: str = ""
    phases: list[PhaseLength] = []
    happenings: list[Happening] = []
    """Other events during the rebalance, in order; only the first ones are kept."""
    more: dict[str, int] = {}
    """The number of further events by `what`."""
    held_up_by: list[HeldUp] = []
    held_back: list[HeldBack] = []
    """For a consumer group: one entry for each reason."""
    pushed: int = 0
    """For a consumer group: how often a member learned of partitions from the answer to a held heartbeat."""
    polled: int = 0
    """How often from its next heartbeat."""
    members: list[MemberThen] = []
    """At the end; members whose partitions changed come first. Before the end, the members that have taken steps."""
    members_count: int | None = None
    gone: list[MemberThen] = []
    """Former members that had an assignment."""
    gone_count: int = 0
    partitions_count: int | None = None
    moved: int | None = None
    """Partitions that went from one member to another; None if the assignments cannot be read."""
    taken: int = 0
    """Partitions that had no owner before."""
    released: int = 0
    """Partitions that had an owner before and have none now."""
    changed: dict[str, list[tuple[int, int, int]]] = {}
    """Of "offsets deleted" and "offsets changed", by topic: the partition, and its committed offset before and after
    the first change of this story; -1 for none."""
    goes_on: bool = False
    """offsets changed: the client committed again and again without being a member, for longer than `took_ms` maybe.
    Later stories say which offsets it had reached when something else changed them."""


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
        principal=cut(entry.principal),
        waited_ms=entry.waited_ms if entry.waited_ms >= 0 else None,
    )


def changed_count(story: Story) -> int:
    return sum(map(len, story.changed.values()))


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
