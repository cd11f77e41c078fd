"""What goes into a coordinator shard and what comes out of it: frozen values with the cause inside.

    step(event, now)  -> Effects      decide; may change soft state only
    apply(record)     -> None         the only writer of hard state; live and recovery are one path
    next_deadline()   -> Millis|None  when step(DeadlineReached(), now) is due

The caller applies the effects' records right after `step`, before any other event, and releases the replies only
when the records are durable.
"""

from __future__ import annotations

from typing import Any, NewType

import msgspec

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


class RequestAbandoned(msgspec.Struct, frozen=True, gc=False):
    """The connection of a parked request is gone. The member stays until its session ends; its reply is dropped."""

    request_id: RequestId


class DeadlineReached(msgspec.Struct, frozen=True, gc=False):
    """`next_deadline()` has come."""


class TopicsDeleted(msgspec.Struct, frozen=True, gc=False):
    """Committed offsets of these topics go (O25)."""

    topics: tuple[str, ...]


class ExpireOffsets(msgspec.Struct, frozen=True, gc=False):
    """The periodic sweep: offsets and groups past their retention go (KIP-211)."""


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """The replay is over: timers start afresh with a full session timeout (R3)."""


class Unloaded(msgspec.Struct, frozen=True, gc=False):
    """The shard moves to another broker or the server stops: parked requests are answered with 16 (R1)."""


Event = GroupRequested | RequestAbandoned | DeadlineReached | TopicsDeleted | ExpireOffsets | Loaded | Unloaded


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of the `__consumer_offsets` log. `value` None is a tombstone. `timestamp` is the step's `now`."""

    key: bytes
    value: bytes | None


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request, now or long after it was parked. `body` is the wire response message."""

    request_id: RequestId
    body: Any


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One transition of a group, with its cause: what `kohort groups explain` will tell."""

    group: str
    what: str
    cause: str
    generation_id: int = -1
    member_id: str = ""


class Effects(msgspec.Struct, frozen=True, gc=False):
    records: tuple[Record, ...] = ()
    replies: tuple[Reply, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
