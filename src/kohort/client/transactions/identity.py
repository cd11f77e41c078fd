"""What a producer is to the brokers: its transactional id, producer id, epoch and sequence numbers. Without IO.

A partition's leader accepts a batch if its base sequence follows the last one of the same producer id and epoch, and
answers a batch that it has with the stored offset: so a retry with the same numbers is written once (KIP-98). The
numbers of a partition begin at 0 with each epoch. There are two protocols:

- version 1: the epoch changes with InitProducerId only, so the transactions of one epoch share its sequences;
- version 2 (KIP-890): each EndTxn answers with the next epoch, so each transaction has an epoch of its own.

The client decides by the versions of its requests: EndTxn 5, Produce 12 and TxnOffsetCommit 5 are version 2. A
transaction is ended in the version in which it was begun, because the answers to a repeated EndTxn differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.client.metadata import TopicPartition
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.produce import ProduceRequest
from kohort.wire.schemas.txn_offset_commit import TxnOffsetCommitRequest

TRANSACTION_VERSION = "transaction.version"
"""The feature whose finalized level says whether a cluster speaks version 2."""

FIRST, SECOND = 1, 2

HIGHEST_VERSIONS: dict[int, dict[type, int]] = {
    FIRST: {ProduceRequest: 11, EndTxnRequest: 4, TxnOffsetCommitRequest: 4},
    SECOND: {ProduceRequest: 12, EndTxnRequest: 5, TxnOffsetCommitRequest: 5},
}
"""By version of the protocol: the highest versions of requests. Produce 13 and TxnOffsetCommit 6 name topics by id."""

LAST_EPOCH = 32_766
"""A transaction does not begin at this epoch, because its end would change the producer id."""

SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction whose records and offsets are all in the logs: what any process needs to end it."""

    transactional_id: str
    producer_id: int
    epoch: int
    protocol: int
    """1 or 2: the protocol in which it was begun, and must be ended."""


@dataclass(slots=True)
class Identity:
    """A producer's id and epoch, and the next sequence number of each partition in this epoch."""

    producer_id: int = -1
    epoch: int = -1
    protocol: int = FIRST
    _sequences: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return self.producer_id >= 0

    def adopt(self, producer_id: int, epoch: int, protocol: int) -> None:
        """Go on as the coordinator says."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch, self.protocol = producer_id, epoch, protocol

    def forget(self) -> None:
        """Make the next transaction begin with InitProducerId."""
        self.adopt(-1, -1, FIRST)

    def sequence(self, partition: TopicPartition) -> int:
        """The base sequence of the partition's next batch."""
        return self._sequences.get(partition, 0)

    def written(self, partition: TopicPartition, records: int) -> None:
        """A batch of this many records is in the log. After 2^31 - 1 sequences begin at 0 again."""
        self._sequences[partition] = (self.sequence(partition) + records) % SEQUENCES
