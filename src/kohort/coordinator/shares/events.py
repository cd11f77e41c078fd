"""The inputs and outputs of a `ShareShard`: frozen values."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kohort.coordinator.events import Millis, RequestId
from kohort.wire.errors import ErrorCode

NOBODYS = RequestId(0)
"""In place of the id of a request that is not answered."""
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
"""Acquire modes (KIP-1206)."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgements."""
RESET = -1
"""The start offset of a share-partition that nobody has read yet: its group's auto.offset.reset finds it."""


class ShareKey(NamedTuple):
    """A share-partition."""

    group: str
    topic_id: bytes
    partition: int


class Initialize(msgspec.Struct, frozen=True, gc=False):
    """Create the state of share-partitions, or set it anew. Answers ErrorCode: 124 for an older state epoch."""

    keys: tuple[ShareKey, ...]
    state_epoch: int
    start: int = RESET
    request_id: RequestId = NOBODYS
    anew: bool = True
    """False: share-partitions that have a state keep it."""


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Forget share-partitions; unknown ones are forgotten already."""

    keys: tuple[ShareKey, ...]


class Load(msgspec.Struct, frozen=True, gc=False):
    """A leader begins to serve a share-partition, or finds that its log was trimmed. Locks of an earlier leader end."""

    key: ShareKey
    leader_epoch: int
    log_start: int
    initial: int
    """Where to start if that is not known yet."""


class Span(NamedTuple):
    """A record batch of the log, with the gap behind it."""

    first: int
    last: int
    is_aborted: bool = False
    """Its transaction was aborted: nobody is to get it."""


class Acquire(msgspec.Struct, frozen=True, gc=False):
    """Lock records for a member. Answers Acquired."""

    key: ShareKey
    member: str
    offset: int
    """Where the read began: offsets from here on that no span has are not in the log."""
    spans: tuple[Span, ...]
    """In order, without gaps between them."""
    max_records: int
    batch_size: int
    mode: int = BATCH_OPTIMIZED
    request_id: RequestId = NOBODYS


class Acquired(msgspec.Struct, frozen=True, gc=False):
    ranges: tuple[tuple[int, int, int], ...] = ()
    """First offset, last offset, count of deliveries."""
    records: int = 0
    archived: int = 0
    """How many offsets were skipped, because they are aborted or not in the log."""


class AckBatch(NamedTuple):
    first: int
    last: int
    types: tuple[int, ...]
    """One for all offsets, or one for each."""


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """Finish records, give them back, or renew their locks. Answers ErrorCode; all batches succeed or none."""

    key: ShareKey
    member: str
    batches: tuple[AckBatch, ...]
    request_id: RequestId = NOBODYS


class Release(msgspec.Struct, frozen=True, gc=False):
    """A member's session is over: give back what it holds."""

    keys: tuple[ShareKey, ...]
    member: str


class Redeliver(msgspec.Struct, frozen=True, gc=False):
    """Make finished records available again. Answers how many, or an ErrorCode."""

    key: ShareKey
    ranges: tuple[tuple[int, int], ...]
    """First and last offset."""
    log_start: int
    request_id: RequestId = NOBODYS


class DeadLettered(msgspec.Struct, frozen=True, gc=False):
    """The dead letters of these offsets are written, or given up: archive those that wait for that."""

    key: ShareKey
    ranges: tuple[tuple[int, int], ...]
    """First and last offset, in order."""
    where: str
    """The dead-letter topic; empty if there are no dead letters."""


class Write(msgspec.Struct, frozen=True, gc=False):
    """A write of state from outside (API 85). Answers ErrorCode."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start: int
    complete: int
    cells: tuple[tuple[int, int, int, int], ...]
    request_id: RequestId = NOBODYS


class WriteSnapshots(msgspec.Struct, frozen=True, gc=False):
    """Write the whole state of these share-partitions, so that the log before may go."""

    keys: tuple[ShareKey, ...]


ShareEvent = (
    Initialize | Delete | Load | Acquire | Acknowledge | Release | Redeliver | DeadLettered | Write | WriteSnapshots
)


class Freed(msgspec.Struct, frozen=True, gc=False):
    """Records of a share-partition can be acquired (again): an effect, for those that wait for them."""

    key: ShareKey


class Archived(NamedTuple):
    """Records that nobody gets any more."""

    first: int
    last: int
    deliveries: int
    why: str
    member: str
    """The member that rejected the records, or held them last."""
    at_ms: Millis
    dead_letter: str = ""
    """The topic that has the dead letters; PENDING or NONE_WRITTEN; empty if the group has none."""


PENDING, NONE_WRITTEN = "not written yet", "none"


class RecordsArchived(msgspec.Struct, frozen=True, gc=False):
    """An effect for the journal of the group."""

    key: ShareKey
    archived: tuple[Archived, ...]
    await_dead_letters: bool = False
    """They are archived when their dead letters are written."""


class InitializeShares(msgspec.Struct, frozen=True, gc=False):
    """An effect of the group coordinator: `Initialize` these partitions of a topic."""

    group: str
    topic_id: bytes
    partitions: tuple[int, ...]
    state_epoch: int
    start: int = RESET
    anew: bool = True


class DeleteShares(msgspec.Struct, frozen=True, gc=False):
    """An effect of the group coordinator: `Delete` these partitions of a topic."""

    group: str
    topic_id: bytes
    partitions: tuple[int, ...]


ShareEffect = Freed | RecordsArchived | InitializeShares | DeleteShares
NONE = ErrorCode.NONE
