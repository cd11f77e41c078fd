"""The inputs and outputs of a coordinator shard: frozen values with the cause inside.

    step(event, now)  -> Effects      decide; may change soft state only
    apply(record)     -> None         the only writer of hard state, live and in recovery
    next_deadline()   -> Millis|None  when step(DeadlineReached(), now) is due

The caller applies the records of the effects right after `step`, before any other event, and releases the replies only
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
"""Assigned by the broker, one for each request, never reused."""


class Client(msgspec.Struct, frozen=True, gc=False):
    """The sender of a request."""

    client_id: str
    host: str
    """As Kafka prints it: "/127.0.0.1"."""
    software_name: str = ""
    """From ApiVersions v3+; "" if unknown."""
    software_version: str = ""
    principal: str = ""
    """As Kafka prints it: "User:alice"; "" if the client has not authenticated."""


class GroupRequested(msgspec.Struct, frozen=True, gc=False):
    """A request of a group API. `body` is a wire message (JoinGroupRequest, OffsetCommitRequest, …) of one group."""

    request_id: RequestId
    version: int
    client: Client
    body: Any
    nonce: str = ""
    """Randomness as an argument: the UUID text for a new member id."""
    hold_ms: Millis = 0
    """How long the answer to a heartbeat may be held, so that a rebalance can be pushed; 0: not at all."""


class RequestAbandoned(msgspec.Struct, frozen=True, gc=False):
    """The connection of a parked request is closed. Its reply is dropped; the member stays until its session ends."""

    request_id: RequestId


class AnswerHeld(msgspec.Struct, frozen=True, gc=False):
    """Another request arrived behind a held heartbeat: answer the heartbeat now."""

    request_id: RequestId


class DeadlineReached(msgspec.Struct, frozen=True, gc=False):
    """`next_deadline()` has come."""


class TopicsDeleted(msgspec.Struct, frozen=True, gc=False):
    """Delete the committed offsets of these topics (O25)."""

    topics: tuple[str, ...]


class GroupOffsetsDeleted(msgspec.Struct, frozen=True, gc=False):
    """Delete a part of the offsets that a deleted group had: those that are still the same."""

    group_id: str
    offsets: tuple[tuple[tuple[str, int], Any], ...]
    """Topic, partition and value, which is the object that the hard state had."""
    client: Client | None = None
    """The one that asked for it."""


class ShareStatesDeleted(msgspec.Struct, frozen=True, gc=False):
    """Delete a part of what the share-partitions of a group without members have, before the group is deleted."""

    group_id: str


class TopicOffsetsDeleted(msgspec.Struct, frozen=True, gc=False):
    """Delete a part of a group's offsets: those of deleted topics."""

    group_id: str
    places: tuple[tuple[str, int], ...]
    topics: tuple[str, ...]
    total: int
    """With the last part: how many there were in all parts, for the journal. Otherwise 0."""


class TopicsChanged(msgspec.Struct, frozen=True, gc=False):
    """Topics were created, grew, moved or were deleted; `topics` are all topics now. Comes before Loaded."""

    topics: Topics
    names: tuple[str, ...] | None = None
    """The names that changed; None: possibly all."""


class GroupConfigsChanged(msgspec.Struct, frozen=True, gc=False):
    """The new configs of a GROUP resource. Comes before Loaded for each group that has configs."""

    group_id: str
    overrides: Mapping[str, str]


class AssignmentMade(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an `AssignmentAsked`."""

    group_id: str
    epoch: int
    assignor: str
    result: Mapping[str, Assignment] | str
    """Checked (`assignors/check.py`): the assignment of each member, or why there is none."""
    prepared: Any = None
    """A PreparedTarget (consumer/target_work.py): the target that the result gives, and its records. None: not made."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """The matches of a pattern among the first of the names to compare it with."""

    looked_at: int
    """How many names were compared; at least one."""
    names: tuple[str, ...]


class PatternsResolved(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a `PatternsAsked`."""

    number: int
    found: tuple[Found | None, ...]
    """For each pattern, in the order of the request; None: not a valid pattern."""


class ServerPaused(msgspec.Struct, frozen=True, gc=False):
    """The server has answered nobody for a while. That time does not count against its members.

    The requests that arrived meanwhile follow; the deadlines of members are served after them."""

    lost_ms: Millis
    """How much time each deadline of a member gets."""
    why: str


class ExpireOffsets(msgspec.Struct, frozen=True, gc=False):
    """The periodic sweep: delete offsets and groups past their retention (KIP-211)."""


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """The replay is complete: timers start with a full session timeout (R3)."""


class Unloaded(msgspec.Struct, frozen=True, gc=False):
    """The shard moves to another broker or the server stops: answer parked requests with 16 (R1)."""


class Restored(msgspec.Struct, frozen=True, gc=False):
    """The log is from a backup: clients may have seen larger numbers than it holds, and other members. Comes after the
    replay, instead of Loaded, in a process that serves no clients."""

    by_clock: int
    """The number that the clock gives (restored.raised)."""


Event = (
    GroupRequested
    | RequestAbandoned
    | AnswerHeld
    | DeadlineReached
    | TopicsDeleted
    | GroupOffsetsDeleted
    | TopicOffsetsDeleted
    | ShareStatesDeleted
    | TopicsChanged
    | GroupConfigsChanged
    | AssignmentMade
    | PatternsResolved
    | ServerPaused
    | ExpireOffsets
    | Loaded
    | Unloaded
    | Restored
)


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One record of the `__consumer_offsets` log. `value` None is a tombstone. `timestamp` is the step's `now`."""

    key: bytes
    value: bytes | None
    parsed: tuple[Any, Any] | None = None
    """The decoded key and value (records.py), if the writer has them."""
    producer_id: int = -1
    """The producer whose open transaction the record belongs to: it counts when a marker has committed it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (self.key, self.value) == (other.key, other.value)

    def __hash__(self) -> int:
        return hash((self.key, self.value))


class TargetRecords(msgspec.Struct, frozen=True, gc=False):
    """The records of a group's target, made together: one for each member. One by one: `records.target_record`."""

    group: str
    targets: Mapping[str, frozenset[tuple[bytes, int]]]
    """The member's partitions: topic id and number."""
    encoded: bytes
    """All records, encoded as in a record batch that contains only them."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request, now or long after it was parked. `body` is the wire response message."""

    request_id: RequestId
    body: Any


class MemberStory(msgspec.Struct, frozen=True, gc=False):
    """A member at the end of a rebalance."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    joined_after_ms: Millis = -1
    """From the start of the rebalance to its JoinGroup; -1: unknown."""
    synced_after_ms: Millis = -1
    """From the start of the generation to its SyncGroup; -1: not before the leader's."""
    assignment: bytes = b""


What = Literal[
    # of a member
    "member joined",
    "member left",  # cause: the reason in the request
    "member removed",  # by the coordinator or by an operator; the cause says which, and why
    "session expired",
    "subscription changed",  # its protocols or their metadata; in a consumer group: what it subscribes to, the cause
    "leader rejoined",
    "static member returned",
    "subscription refused",  # it is not a regular expression
    # of a member of a consumer group on its way to the target (STEPS)
    "told to revoke",
    "revoked",
    "waits for partitions",
    "got partitions",
    # of the group
    "rebalance started",  # in a consumer group: its epoch was raised, possibly again
    "topics changed",  # of a consumer group; the cause says which, and how
    "target made",  # of a consumer group
    "held back",  # of a consumer group: a target, or part of it, is delayed; the cause says why
    "generation began",
    "group is stable",
    "group is empty",
    "assignment refused",  # the group's record would be too large; in a consumer group: its assignor failed
    "topics matched",  # those that match the regular expressions of its members
    "rollout hold ended",
    "group upgraded",  # from the classic protocol to the consumer protocol
    "group downgraded",
    "group deleted",
    "group restored",  # from a backup, without its members
    "group loaded",
    "group unloaded",
    "offsets deleted",
    "offsets changed",  # by commits from outside of a live group
    # of a share group
    "records archived",  # cause: how many, why, and where; the member rejected them, or had them last
    "records redelivered",  # by an operator; the cause says how many
    "share offsets set",  # by an operator, as the next one
    "share offsets deleted",
    "server paused",  # deadlines of members would have passed meanwhile; the cause says what kept the server
]


STEPS = frozenset(("told to revoke", "revoked", "waits for partitions", "got partitions"))


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened to a group, with its cause; the journal folds them into stories."""

    group: str
    what: What
    cause: str = ""
    generation_id: int = -1
    """The generation of the group at the time."""
    member_id: str = ""
    """The member that it happened to or that caused it; "" if none."""
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    principal: str = ""
    """offsets deleted, offsets changed: of the client, if it has authenticated."""
    waited_ms: Millis = -1
    """session expired: how long the member was silent. member removed for being late: how long the others waited.
    rebalance started, generation began, group is stable, group is empty: how long the phase before took.
    held back: the longest delay. server paused: the time that the members got. -1 otherwise."""
    protocol_type: str = ""
    protocol: str = ""
    assignment_epoch: int = -1
    """Of a consumer group: the epoch of its target, while `generation_id` is the group's epoch. -1: not a consumer
    group."""
    partitions: int = 0
    """The number of partitions of a step; held back: how many are delayed, 0 if unknown."""
    pushed: bool = False
    """True if the answer to a held heartbeat brought the change; False if its next heartbeat did."""
    peers: tuple[str, ...] = ()
    """waits for partitions, got partitions: the ids of some members that still own those it waits for."""
    members: tuple[MemberStory, ...] = ()
    """group is stable, group loaded: all members with their assignments, in the group's order."""
    changes: tuple[tuple[str, int, int, int], ...] = ()
    """offsets deleted, offsets changed: topic, partition, and the committed offset before and after; -1 for none."""
    follows: bool = False
    """offsets deleted, offsets changed: it is a part of what the entry before told, if that was just now."""
    goes_on: bool = False
    """offsets changed: the client of the entry before has committed the same partitions again."""


class AssignmentAsked(msgspec.Struct, frozen=True, gc=False):
    """Compute the target assignment of a group at this epoch. `AssignmentMade` returns the outcome."""

    group_id: str
    epoch: int
    assignor: str
    group: Any
    """A Snapshot (consumer/target_work.py), or a GroupSpec."""
    wants_lag: bool = False
    """The broker, which knows the ends of the logs, adds the group's lag to the topics."""

    @property
    def spec(self) -> GroupSpec:
        """The assignor's input. It is made here: ask for it once, outside of the shard."""
        group = self.group
        spec: GroupSpec = group if isinstance(group, GroupSpec) else group.spec()
        return spec

    def made(self, result: Mapping[str, Assignment] | str) -> AssignmentMade:
        """The outcome. Call this outside of the shard too."""
        prepared = None
        if not isinstance(result, str) and not isinstance(self.group, GroupSpec):
            prepared = self.group.prepared(result)
        return AssignmentMade(self.group_id, self.epoch, self.assignor, result, prepared)


class PatternsAsked(msgspec.Struct, frozen=True, gc=False):
    """Find the topics that match regular expressions (`patterns.resolved`)."""

    number: int
    """Returned with the outcome."""
    asked: tuple[tuple[str, tuple[str, ...]], ...]
    """Patterns, each with the names to compare it with."""


Task = AssignmentAsked | PatternsAsked
"""Work that takes longer than a step may. The edge computes it, and the outcome arrives as an event. If the process
ends first, the next load of the shard asks again."""


Cause = Literal["asked", "fenced", "timed out", "loaded"]
"""Why a transaction ends: its producer has asked; another producer has the id now; its timeout has passed; the outcome
was decided before the shard was loaded."""


class Ending(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a transaction is decided: write its markers, then tell the shard (`MarkersWritten`)."""

    transactional_id: str
    producer_id: int
    epoch: int
    """Of the markers."""
    committed: bool
    places: tuple[tuple[str, int], ...]
    """The partitions that get a marker, by topic and index, sorted."""
    cause: Cause = "asked"
    started: Millis = -1
    timeout_ms: Millis = 0
    fenced_by: Client | None = None
    """The client that asked for the transactional id, if that fenced the producer."""


class Effects(msgspec.Struct, frozen=True, gc=False):
    records: tuple[Record | TargetRecords, ...] = ()
    """With a `producer`, the records of its transaction."""
    replies: tuple[Reply, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    tasks: tuple[Task, ...] = ()
    holds_over: tuple[str, ...] = ()
    """Groups whose rollout hold ended early. The broker removes the hold's configs (`HOLD`), so that it is over after a
    restart too; `GroupConfigsChanged` follows."""
    endings: tuple[Ending, ...] = ()
    shares: tuple[Any, ...] = ()
    """ShareEffects (shares/events.py): what the group coordinator and share-partitions have for each other, and for
    those that wait."""
    producer: tuple[int, int] | None = None
    """The id and the epoch of the producer in whose transaction the records are written: a batch of their own."""
