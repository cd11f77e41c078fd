"""What goes into a coordinator shard and what comes out of it: frozen values with the cause inside.

    step(event, now)  -> Effects      decide; may change soft state only
    apply(record)     -> None         the only writer of hard state; live and recovery are one path
    next_deadline()   -> Millis|None  when step(DeadlineReached(), now) is due

The caller applies the effects' records right after `step`, before any other event, and releases the replies only
when the records are durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NewType

import msgspec

from kohort.coordinator.assignors.spec import Assignment, GroupSpec
from kohort.coordinator.topics import Topics

Millis = int
RequestId = NewType("RequestId", int)
"""Given by the broker, one a request, never reused."""


class Client(msgspec.Struct, frozen=True, gc=False):
    """Who sent a request."""

    client_id: str
    host: str
    """As Kafka prints it: "/127.0.0.1"."""
    software_name: str = ""
    """From ApiVersions v3+; "" when the client did not say."""
    software_version: str = ""


class GroupRequested(msgspec.Struct, frozen=True, gc=False):
    """A request of a group API. `body` is a wire message (JoinGroupRequest, OffsetCommitRequest, …) of one group."""

    request_id: RequestId
    version: int
    client: Client
    body: Any
    nonce: str = ""
    """Chance as an argument: the UUID text of which the shard makes a new member id, should it need one."""
    hold_ms: Millis = 0
    """How long the answer to a heartbeat may be held, so that a rebalance can be pushed; 0 where it may not."""


class RequestAbandoned(msgspec.Struct, frozen=True, gc=False):
    """The connection of a parked request is gone. The member stays until its session ends; its reply is dropped."""

    request_id: RequestId


class AnswerHeld(msgspec.Struct, frozen=True, gc=False):
    """Another request arrived behind a heartbeat whose answer is held: it is answered now, with what there is."""

    request_id: RequestId


class DeadlineReached(msgspec.Struct, frozen=True, gc=False):
    """`next_deadline()` has come."""


class TopicsDeleted(msgspec.Struct, frozen=True, gc=False):
    """Committed offsets of these topics go (O25)."""

    topics: tuple[str, ...]


class TopicsChanged(msgspec.Struct, frozen=True, gc=False):
    """Topics were created, grew, moved or were deleted; `topics` is all that there are now. Comes before Loaded."""

    topics: Topics
    names: tuple[str, ...] | None = None
    """What changed; None: maybe all of them."""


class GroupConfigsChanged(msgspec.Struct, frozen=True, gc=False):
    """The configs of a GROUP resource are these now. Comes before Loaded for every group that has any."""

    group_id: str
    overrides: Mapping[str, str]


class AssignmentMade(msgspec.Struct, frozen=True, gc=False):
    """What became of an `AssignmentAsked`."""

    group_id: str
    epoch: int
    assignor: str
    result: Mapping[str, Assignment] | str
    """Checked (`assignors/check.py`): the assignment of every member that was asked for, or why there is none."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """What a pattern matches of the first names that it was to be compared with."""

    looked_at: int
    """How many; at least one."""
    names: tuple[str, ...]


class PatternsResolved(msgspec.Struct, frozen=True, gc=False):
    """What became of a `PatternsAsked`."""

    number: int
    found: tuple[Found | None, ...]
    """For each pattern, in the order in which they were asked for; None: it is none."""


class ExpireOffsets(msgspec.Struct, frozen=True, gc=False):
    """The periodic sweep: offsets and groups past their retention go (KIP-211)."""


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """The replay is over: timers start afresh with a full session timeout (R3)."""


class Unloaded(msgspec.Struct, frozen=True, gc=False):
    """The shard moves to another broker or the server stops: parked requests are answered with 16 (R1)."""


Event = (
    GroupRequested
    | RequestAbandoned
    | AnswerHeld
    | DeadlineReached
    | TopicsDeleted
    | TopicsChanged
    | GroupConfigsChanged
    | AssignmentMade
    | PatternsResolved
    | ExpireOffsets
    | Loaded
    | Unloaded
)


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One record of the `__consumer_offsets` log. `value` None is a tombstone. `timestamp` is the step's `now`."""

    key: bytes
    value: bytes | None
    parsed: tuple[Any, Any] | None = None
    """What the bytes say (records.py), where whoever wrote them knows."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (self.key, self.value) == (other.key, other.value)

    def __hash__(self) -> int:
        return hash((self.key, self.value))


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request, now or long after it was parked. `body` is the wire response message."""

    request_id: RequestId
    body: Any


class MemberStory(msgspec.Struct, frozen=True, gc=False):
    """A member as it stands when a rebalance is over."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    joined_after_ms: Millis = -1
    """Its JoinGroup came this long after the rebalance began; -1: unknown."""
    synced_after_ms: Millis = -1
    """Its SyncGroup came this long after the generation began; -1: not before the leader's."""
    assignment: bytes = b""


What = Literal[
    # of a member
    "member joined",
    "member left",  # cause: the reason that it gave
    "member removed",  # by the coordinator or by an operator; the cause says who and why
    "session expired",
    "subscription changed",  # its protocols or their metadata; of a consumer group: what it subscribes to, the cause
    "leader rejoined",
    "static member returned",
    "subscription refused",  # what it gave is no regular expression
    # of a member of a consumer group on its way to the target: STEPS
    "told to revoke",
    "revoked",
    "waits for partitions",
    "got partitions",
    # of the group
    "rebalance started",  # of a consumer group: its epoch was raised, maybe once more
    "topics changed",  # of a consumer group; the cause says which, and how
    "target made",  # of a consumer group
    "held back",  # of a consumer group: a target, or part of it, waits; the cause says for what
    "generation began",
    "group is stable",
    "group is empty",
    "assignment refused",  # the group's record would be too large; of a consumer group: its assignor failed
    "topics matched",  # by a regular expression of its members: which, now that they were looked at
    "rollout hold ended",
    "group upgraded",  # from the classic protocol to the consumer protocol
    "group downgraded",
    "group deleted",
    "group loaded",
    "group unloaded",
    "offsets deleted",
]


STEPS = frozenset(("told to revoke", "revoked", "waits for partitions", "got partitions"))


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened to a group, with its cause; the journal makes the group's story of them."""

    group: str
    what: What
    cause: str = ""
    generation_id: int = -1
    """The group's when it happened."""
    member_id: str = ""
    """Whom it happened to, or who caused it; "" when it was nobody in particular."""
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    waited_ms: Millis = -1
    """session expired: how long it was silent. member removed for being late: how long the others waited.
    rebalance started, generation began, group is stable, group is empty: how long the phase before took.
    held back: how long it will last at most. -1 otherwise."""
    protocol_type: str = ""
    protocol: str = ""
    assignment_epoch: int = -1
    """Of consumer groups: the epoch of their target, while `generation_id` is the group's epoch. -1 tells that the
    group is none."""
    partitions: int = 0
    """How many partitions a step is about; held back: how many wait, 0 when that is not known."""
    pushed: bool = False
    """The member learned it as the answer to a heartbeat that was held; with its next heartbeat otherwise."""
    peers: tuple[str, ...] = ()
    """waits for partitions, got partitions: the ids of some of the members that have those which it lacks still."""
    members: tuple[MemberStory, ...] = ()
    """group is stable, group loaded: all members in the group's order, with their assignments."""


class AssignmentAsked(msgspec.Struct, frozen=True, gc=False):
    """Make a target assignment of a group as it is at this epoch. `AssignmentMade` tells what became of it."""

    group_id: str
    epoch: int
    assignor: str
    spec: GroupSpec
    wants_lag: bool = False
    """Whoever knows the logs' ends puts the group's lag into the spec first."""


class PatternsAsked(msgspec.Struct, frozen=True, gc=False):
    """Find the topics that match regular expressions (`patterns.resolved`)."""

    number: int
    """Comes back with the answer."""
    asked: tuple[tuple[str, tuple[str, ...]], ...]
    """Patterns, and the names that each is to be compared with."""


Task = AssignmentAsked | PatternsAsked
"""Work that takes longer than a step may. It is done elsewhere, and its outcome comes as an event; or never, when the
process ends: who loads the shard asks again."""


class Effects(msgspec.Struct, frozen=True, gc=False):
    records: tuple[Record, ...] = ()
    replies: tuple[Reply, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    tasks: tuple[Task, ...] = ()
    holds_over: tuple[str, ...] = ()
    """Groups whose rollout hold ended before its time. Who keeps their configs takes the hold's back (`HOLD`), so that
    it is over after a restart too; `GroupConfigsChanged` follows."""
