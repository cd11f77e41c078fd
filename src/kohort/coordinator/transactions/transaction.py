"""The state of one transactional id: an immutable value, and the transitions from one to the next.

A transition does not check whether it is allowed; the shard does. Each remembers the producer id before it
(`previous_id`), so that a client whose answer was lost can name the one that it knows.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import NamedTuple

import msgspec

from kohort.coordinator.events import Millis

LAST_EPOCH = 32_766
"""The highest epoch that a producer gets. Markers that end a transaction at this epoch have the next, 32,767."""


class Place(NamedTuple):
    """A partition that takes part in a transaction."""

    topic: str
    partition: int


class State(IntEnum):
    """The numbers are those of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def title(self) -> str:
        """As Kafka's tools show it: "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Transaction(msgspec.Struct, frozen=True, gc=False):
    producer_id: int
    epoch: int
    """-1 for a new id, before its first InitProducerId is decided."""
    timeout_ms: Millis
    state: State = State.EMPTY
    previous_id: int = -1
    """The producer id before the last transition."""
    next_id: int = -1
    """The producer id after the present ending; -1 while the present one stays."""
    last_epoch: int = -1
    """The epoch whose holder got the present one; -1 if nobody may ask for it again."""
    places: frozenset[Place] = frozenset()
    started: Millis = -1
    """When the first partition was added."""
    updated: Millis = -1
    client_version: int = 0
    """The transaction version of the last request: 2 if each end gives a new epoch. Markers are checked by that of the
    end, which may differ from that of the beginning: AddPartitionsToTxn v4 and EndTxn v4 of one client, for example."""

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided; markers are not all written."""
        return self.state in PREPARED

    def by_topic(self) -> list[tuple[str, list[int]]]:
        """The partitions, sorted."""
        partitions: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in self.places:
            partitions[topic].append(partition)
        for indexes in partitions.values():
            indexes.sort()
        return sorted(partitions.items())

    @property
    def next_producer(self) -> tuple[int, int]:
        """The producer id and epoch of the next transaction, also while this one ends."""
        return (self.next_id, 0) if self.next_id >= 0 else (self.producer_id, self.epoch)

    def initialised(self, timeout_ms: Millis, now: Millis, epoch: int, last_epoch: int) -> Transaction:
        """No transaction, at this epoch of the same producer id."""
        return Transaction(
            producer_id=self.producer_id,
            epoch=epoch,
            timeout_ms=timeout_ms,
            previous_id=self.producer_id if self.epoch >= 0 else -1,
            last_epoch=last_epoch,
            updated=now,
            client_version=self.client_version,
        )

    def renamed(self, producer_id: int, timeout_ms: Millis, now: Millis, last_epoch: int) -> Transaction:
        """No transaction, with another producer id, which begins at epoch 0."""
        return msgspec.structs.replace(
            self.initialised(timeout_ms, now, 0, last_epoch), producer_id=producer_id, previous_id=self.producer_id
        )

    def with_places(self, places: frozenset[Place], now: Millis, client_version: int) -> Transaction:
        """Open, with these partitions in addition."""
        begins = self.state is not State.ONGOING
        return msgspec.structs.replace(
            self,
            state=State.ONGOING,
            previous_id=self.producer_id,
            places=places if begins else self.places | places,
            started=now if begins else self.started,
            updated=now,
            client_version=client_version,
        )

    def decided(self, committed: bool, now: Millis) -> Transaction:
        """The outcome is decided, and the producer keeps its epoch."""
        return msgspec.structs.replace(
            self,
            state=State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
            previous_id=self.producer_id,
            updated=now,
            client_version=min(self.client_version, 1),
        )

    def decided_with_bump(self, committed: bool, now: Millis, next_id: int = -1, *, retryable: bool) -> Transaction:
        """The outcome is decided under the next epoch.

        `next_id` is given at the last epoch of a producer id. `retryable`: the holder of the present epoch may ask for
        the new one."""
        decided = self.decided(committed, now)
        return msgspec.structs.replace(
            decided,
            epoch=min(self.epoch + 1, LAST_EPOCH + 1),
            next_id=next_id,
            last_epoch=self.epoch if retryable else -1,
            client_version=2 if retryable else decided.client_version,
            started=self.started if self.state is State.ONGOING else now,
            places=self.places if self.state is State.ONGOING else frozenset(),
        )

    def completed(self, now: Millis) -> Transaction:
        """All markers are written."""
        producer_id, epoch = self.next_producer
        committed = self.state is State.PREPARE_COMMIT
        return msgspec.structs.replace(
            self,
            producer_id=producer_id,
            epoch=epoch,
            state=State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT,
            previous_id=self.producer_id,
            next_id=-1,
            places=frozenset(),
            updated=now,
        )

    def restored(self, next_id: int, now: Millis) -> Transaction:
        """From a backup: its producers may have had later epochs since, so the id goes on with a producer id that
        nobody has. An open transaction is aborted, because its producer has sent more than the log holds."""
        if self.state is State.ONGOING:
            return self.decided_with_bump(False, now, next_id, retryable=False)
        if self.is_prepared:
            return msgspec.structs.replace(self, next_id=next_id)
        return msgspec.structs.replace(self.renamed(next_id, self.timeout_ms, now, -1), previous_id=-1)
