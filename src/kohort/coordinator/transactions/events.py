"""The events of a transaction shard, and the bodies of its replies.

The handlers translate between these and the messages of the wire. They also check what needs no state: permissions, the
empty id (42), the timeout (50), topics."""

from __future__ import annotations

import msgspec

from kohort.coordinator.events import Client, Millis, RequestId
from kohort.coordinator.transactions.transaction import Place
from kohort.wire.errors import ErrorCode


class ProducerInit(msgspec.Struct, frozen=True, gc=False):
    """InitProducerId with a transactional id."""

    request_id: RequestId
    transactional_id: str
    timeout_ms: Millis
    producer_id: int = -1
    """-1, as its epoch, if the producer names none."""
    epoch: int = -1
    client: Client | None = None
    """For the journal."""


class PartitionsAdded(msgspec.Struct, frozen=True, gc=False):
    """Add partitions to the open transaction, or begin one: AddPartitionsToTxn, AddOffsetsToTxn, and what newer clients
    leave to Produce and TxnOffsetCommit."""

    request_id: RequestId
    transactional_id: str
    producer_id: int
    epoch: int
    places: tuple[Place, ...]
    bumps: bool
    """True if the client gets a new epoch with each end of a transaction (KIP-890); its request version says so."""
    connection: int = 0
    """The number of the client's connection; a later connection has a larger one."""
    client: Client | None = None


class TransactionEnd(msgspec.Struct, frozen=True, gc=False):
    """EndTxn."""

    request_id: RequestId
    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    bumps: bool
    connection: int = 0
    client: Client | None = None


class MarkersWritten(msgspec.Struct, frozen=True, gc=False):
    """All partitions of an `Ending` have their markers or are gone."""

    transactional_id: str
    producer_id: int
    epoch: int


TransactionEvent = ProducerInit | PartitionsAdded | TransactionEnd | MarkersWritten


class ProducerReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to ProducerInit and TransactionEnd: what the producer uses from now on, or -1 and -1."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class AddReply(msgspec.Struct, frozen=True, gc=False):
    """The answer to PartitionsAdded: one error for all partitions."""

    error: ErrorCode
