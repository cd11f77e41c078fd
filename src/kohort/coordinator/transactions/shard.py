"""One shard of the transaction coordinator: it owns one partition of `__transaction_state` and its ids.

`step` decides; `apply` alone changes the state of an id. From the decision about an outcome until `MarkersWritten`,
every other change is refused with 51. The decision is an `Ending` of the effects, and it comes again with `Loaded`:
markers may be written twice.

Three departures from Kafka, each with a setting: InitProducerId with an old epoch does not abort the transaction of the
present producer; a commit that lost to a time-out gets 90 instead of 48; a client without new epochs is refused on a
connection older than one on which it has added partitions at this epoch, because the request is late. Another client is
not: EndTxn may come from a process that ends what others have prepared
(docs/decisions/0018-late-requests-of-old-connections.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.coordinator.deadlines import Deadlines
from kohort.coordinator.events import (
    Cause,
    Client,
    DeadlineReached,
    Effects,
    Ending,
    Event,
    Loaded,
    Millis,
    Record,
    Reply,
    Restored,
    Unloaded,
)
from kohort.coordinator.offsets.sizes import Total, text_bytes
from kohort.coordinator.state_machine import LogName
from kohort.coordinator.transactions.events import (
    AddReply,
    MarkersWritten,
    PartitionsAdded,
    ProducerInit,
    ProducerReply,
    TransactionEnd,
    TransactionEvent,
)
from kohort.coordinator.transactions.records import parse, transaction_record
from kohort.coordinator.transactions.settings import TransactionSettings
from kohort.coordinator.transactions.transaction import LAST_EPOCH, Place, State, Transaction
from kohort.wire.errors import ErrorCode

TRANSACTIONS_TOPIC = "__transaction_state"
NONE = ErrorCode.NONE
MOST_PLACES = 10_000
"""Partitions of one transaction. Each change of it writes all of them."""
DUE_AT_ONCE = 10
"""Ids whose deadlines one step serves. The shard stays due while there are more."""


ID_BYTES, PLACE_BYTES = 640, 160
"""Counted for a transactional id, besides its characters, and for each partition of its transaction."""
NEW_IDS = 0.75
"""The share of transaction.state.max.bytes that new ids may fill; the rest is for the transactions of known ids."""


class TransactionShard:
    """The `StateMachine` of the transaction coordinator."""

    def __init__(
        self,
        index: int,
        settings: TransactionSettings,
        new_producer_id: Callable[[], int],
        total: Total | None = None,
    ) -> None:
        """`new_producer_id` returns an id that was never given before. `total` is shared by all shards."""
        self.log = LogName(TRANSACTIONS_TOPIC, index)
        self.ids: dict[str, Transaction] = {}
        """The hard state. Handlers may read it."""
        self.unavailable: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._settings = settings
        self._new_producer_id = new_producer_id
        self._total = Total() if total is None else total
        self._deadlines: Deadlines[str] = Deadlines()
        self._added_on: dict[str, tuple[int, Client | None]] = {}
        """The newest connection on which a producer without new epochs has added partitions at its present epoch."""

    @property
    def bytes(self) -> int:
        """The size of all ids, over all shards."""
        return self._total.bytes

    def step(self, event: Event | TransactionEvent, now: Millis) -> Effects:
        match event:
            case ProducerInit():
                return self._unavailable(event, ProducerReply) or self._init(event, now)
            case PartitionsAdded():
                return self._unavailable(event, AddReply) or self._add(event, now)
            case TransactionEnd():
                return self._unavailable(event, ProducerReply) or self._end(event, now)
            case MarkersWritten():
                return self._complete(event, now)
            case DeadlineReached():
                return self._serve_deadlines(now)
            case Loaded():
                return self._load(now)
            case Unloaded():
                self.unavailable = ErrorCode.NOT_COORDINATOR
                self._deadlines = Deadlines()
                self._added_on.clear()
                return Effects()
            case Restored():
                restored = ((name, each.restored(self._new_producer_id(), now)) for name, each in self.ids.items())
                return Effects(records=tuple(transaction_record(name, each) for name, each in restored))
            case _:
                return Effects()

    def apply(self, record: Record, timestamp: Millis) -> None:
        parsed = record.parsed or parse(record)
        if parsed is None:
            return
        transactional_id, transaction = parsed
        before = self.ids.get(transactional_id)
        if before is not None:
            self._total.bytes -= size_of(transactional_id, before)
        if transaction is None:
            self.ids.pop(transactional_id, None)
            self._deadlines.clear(transactional_id)
            self._added_on.pop(transactional_id, None)
            return
        if before is None or (before.producer_id, before.epoch) != (transaction.producer_id, transaction.epoch):
            self._added_on.pop(transactional_id, None)
        self._total.bytes += size_of(transactional_id, transaction)
        self.ids[transactional_id] = transaction
        if not self.unavailable:
            self._arm(transactional_id, transaction, timestamp)

    def next_deadline(self) -> Millis | None:
        return self._deadlines.next()

    def validate(self) -> None:
        """Raises AssertionError; for tests and the simulator."""
        for transactional_id, transaction in self.ids.items():
            ends = transaction.is_prepared
            assert 0 <= transaction.epoch <= LAST_EPOCH + 1, f"{transactional_id} has an impossible epoch"
            assert ends or transaction.next_id == -1, f"{transactional_id} keeps a producer id for an ending"
            assert not transaction.places or ends or transaction.state is State.ONGOING
            assert transaction.state is not State.ONGOING or transaction.places
            assert self.unavailable or ends or transactional_id in self._deadlines, f"{transactional_id} never ends"

    def verify(self, transactional_id: str, producer_id: int, epoch: int, place: Place) -> ErrorCode:
        """Whether a partition is in the producer's open transaction: 0 or 120, or why that is not a question."""
        if self.unavailable:
            return self.unavailable
        transaction = self.ids.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED
        if transaction.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_in = transaction.state is State.ONGOING and place in transaction.places
        return NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE

    # -- requests

    def _unavailable(self, event: Any, kind: type[ProducerReply] | type[AddReply]) -> Effects | None:
        if not self.unavailable:
            return None
        return Effects(replies=(Reply(event.request_id, kind(self.unavailable)),))

    def _init(self, event: ProducerInit, now: Millis) -> Effects:
        transaction = self.ids.get(event.transactional_id)
        if transaction is None:  # whatever the producer names: an expired id is accepted
            if not self._has_room(size_of(event.transactional_id), NEW_IDS):
                return _refused(event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            new = Transaction(self._new_producer_id(), self._settings.first_epoch, event.timeout_ms, updated=now)
            return self._decided(event.transactional_id, new, _producer(event, new))
        if transaction.is_prepared:
            return _refused(event, ErrorCode.CONCURRENT_TRANSACTIONS)
        if event.producer_id >= 0 and not self._may_init(transaction, event):
            return _refused(event, ErrorCode.PRODUCER_FENCED)
        if transaction.state is State.ONGOING:
            fenced = self._fenced(transaction, now)
            busy = Reply(event.request_id, ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS))
            return Effects(
                records=(transaction_record(event.transactional_id, fenced),),
                replies=(busy,),
                endings=(_ending(event.transactional_id, fenced, "fenced", event.client),),
            )
        new = self._initialised(transaction, event, now)
        return self._decided(event.transactional_id, new, _producer(event, new))

    def _may_init(self, transaction: Transaction, event: ProducerInit) -> bool:
        """Whether a producer that names its id and epoch is served."""
        if not self._settings.zombie_init and transaction.state is State.ONGOING:
            return event.producer_id == transaction.producer_id
        return _knows(transaction, event.producer_id, event.epoch)

    def _initialised(self, transaction: Transaction, event: ProducerInit, now: Millis) -> Transaction:
        is_named = event.producer_id >= 0
        if is_named and event.epoch == transaction.last_epoch:  # its answer was lost
            return transaction.initialised(event.timeout_ms, now, transaction.epoch, transaction.last_epoch)
        last_epoch = transaction.epoch if is_named else -1
        if transaction.epoch >= LAST_EPOCH:
            return transaction.renamed(self._new_producer_id(), event.timeout_ms, now, last_epoch)
        return transaction.initialised(event.timeout_ms, now, transaction.epoch + 1, last_epoch)

    def _add(self, event: PartitionsAdded, now: Millis) -> Effects:
        transaction = self.ids.get(event.transactional_id)
        error = _check_adding(transaction, event)
        if not error and not event.bumps:
            if self._is_late(event):
                error = ErrorCode.PRODUCER_FENCED
            else:
                self._added_on[event.transactional_id] = (event.connection, event.client)
        reply = Reply(event.request_id, AddReply(error))
        if error or transaction is None:
            return Effects(replies=(reply,))
        begins = transaction.state is not State.ONGOING
        if not begins and transaction.places.issuperset(event.places):
            return Effects(replies=(reply,))
        client_version = 2 if event.bumps else min(self._settings.version, 1)
        opened = transaction.with_places(frozenset(event.places), now, client_version)
        if not 0 < len(opened.places) <= MOST_PLACES:
            return Effects(replies=(Reply(event.request_id, AddReply(ErrorCode.INVALID_REQUEST)),))
        if not self._has_room(PLACE_BYTES * (len(opened.places) - len(transaction.places)), 1):
            return Effects(replies=(Reply(event.request_id, AddReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)),))
        return self._decided(event.transactional_id, opened, reply)

    def _end(self, event: TransactionEnd, now: Millis) -> Effects:
        transaction = self.ids.get(event.transactional_id)
        if transaction is None:
            return _refused(event, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return self._end_with_bump(transaction, event, now) if event.bumps else self._end_plain(transaction, event, now)

    def _end_plain(self, transaction: Transaction, event: TransactionEnd, now: Millis) -> Effects:
        """EndTxn before version 5: the producer keeps its epoch."""
        if error := _check_producer(transaction, event):
            return _refused(event, error)
        if transaction.is_prepared:
            return _refused(event, ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is State.ONGOING:
            if self._is_late(event):
                return _refused(event, ErrorCode.PRODUCER_FENCED)
            decided = transaction.decided(event.committed, now)
            return self._decided(event.transactional_id, decided, Reply(event.request_id, ProducerReply(NONE)))
        ended = State.COMPLETE_COMMIT if event.committed else State.COMPLETE_ABORT
        return _refused(event, NONE if transaction.state is ended else ErrorCode.INVALID_TXN_STATE)

    def _end_with_bump(self, transaction: Transaction, event: TransactionEnd, now: Millis) -> Effects:
        if transaction.is_prepared:
            return _refused(event, ErrorCode.CONCURRENT_TRANSACTIONS)
        if _is_repeated_end(transaction, event):
            return self._repeated_end(transaction, event)
        if error := _check_producer(transaction, event):
            return _refused(event, error)
        if event.committed and transaction.state is not State.ONGOING:
            return _refused(event, ErrorCode.INVALID_TXN_STATE)
        decided = self._bumped(transaction, event.committed, now)
        producer_id, epoch = decided.next_producer
        reply = Reply(event.request_id, ProducerReply(NONE, producer_id, epoch))
        return self._decided(event.transactional_id, decided, reply)

    def _repeated_end(self, transaction: Transaction, event: TransactionEnd) -> Effects:
        ended = State.COMPLETE_COMMIT if event.committed else State.COMPLETE_ABORT
        if transaction.state is ended:
            return Effects(replies=(_producer(event, transaction),))
        has_lost = transaction.state is State.COMPLETE_ABORT and not self._settings.lost_to_timeout
        if transaction.state is State.COMPLETE_COMMIT or has_lost:
            return _refused(event, ErrorCode.INVALID_TXN_STATE)
        return _refused(event, ErrorCode.PRODUCER_FENCED)

    def _is_late(self, event: PartitionsAdded | TransactionEnd) -> bool:
        """A request of an earlier transaction, which has the same epoch."""
        newest, client = self._added_on.get(event.transactional_id, (0, None))
        return self._settings.older_connection and event.connection < newest and event.client == client

    # -- what nobody asks for

    def _complete(self, event: MarkersWritten, now: Millis) -> Effects:
        transaction = self.ids.get(event.transactional_id)
        if transaction is None or not transaction.is_prepared:
            return Effects()
        if (transaction.producer_id, transaction.epoch) != (event.producer_id, event.epoch):
            return Effects()
        return self._decided(event.transactional_id, transaction.completed(now))

    def _serve_deadlines(self, now: Millis) -> Effects:
        records: list[Record] = []
        endings: list[Ending] = []
        while len(records) < DUE_AT_ONCE and (transactional_id := self._deadlines.pop_due(now)) is not None:
            transaction = self.ids[transactional_id]
            if transaction.state is State.ONGOING:
                transaction = self._fenced(transaction, now)
                records.append(transaction_record(transactional_id, transaction))
                endings.append(_ending(transactional_id, transaction, "timed out"))
            else:
                records.append(transaction_record(transactional_id, None))
        return Effects(records=tuple(records), endings=tuple(endings))

    def _load(self, now: Millis) -> Effects:
        self.unavailable = NONE
        for transactional_id, transaction in self.ids.items():
            self._arm(transactional_id, transaction, now)
        prepared = ((name, each) for name, each in self.ids.items() if each.is_prepared)
        return Effects(endings=tuple(_ending(name, each, "loaded") for name, each in prepared))

    def _fenced(self, transaction: Transaction, now: Millis) -> Transaction:
        """Abort the transaction under an epoch that its producer does not have."""
        if self._settings.version >= 2:
            return self._bumped(transaction, False, now)
        return transaction.decided_with_bump(False, now, retryable=False)

    def _bumped(self, transaction: Transaction, committed: bool, now: Millis) -> Transaction:
        next_id = self._new_producer_id() if transaction.epoch >= LAST_EPOCH else -1
        return transaction.decided_with_bump(committed, now, next_id, retryable=True)

    def _has_room(self, size: int, share: float) -> bool:
        """False if this many more bytes exceed that share of the limit."""
        return self._total.bytes + size <= share * self._settings.max_bytes

    def _arm(self, transactional_id: str, transaction: Transaction, now: Millis) -> None:
        """A time in the record may lie in the future if the clock has been set back since: then it counts as now."""
        if transaction.is_prepared:
            self._deadlines.clear(transactional_id)
        elif transaction.state is State.ONGOING:
            self._deadlines.set(transactional_id, min(transaction.started, now) + transaction.timeout_ms + 1)
        else:
            self._deadlines.set(transactional_id, min(transaction.updated, now) + self._settings.expiration_ms)

    def _decided(self, transactional_id: str, transaction: Transaction, *replies: Reply) -> Effects:
        return Effects(
            records=(transaction_record(transactional_id, transaction),),
            replies=replies,
            endings=(_ending(transactional_id, transaction),) if transaction.is_prepared else (),
        )


def size_of(transactional_id: str, transaction: Transaction | None = None) -> int:
    """About the memory of an id and of its transaction."""
    places = len(transaction.places) if transaction is not None else 0
    return ID_BYTES + text_bytes(transactional_id) + PLACE_BYTES * places


def _ending(
    transactional_id: str, transaction: Transaction, cause: Cause = "asked", fenced_by: Client | None = None
) -> Ending:
    return Ending(
        transactional_id,
        transaction.producer_id,
        transaction.epoch,
        transaction.state is State.PREPARE_COMMIT,
        tuple((topic, index) for topic, indexes in transaction.by_topic() for index in indexes),
        cause,
        transaction.started,
        transaction.timeout_ms,
        fenced_by,
    )


def _refused(event: ProducerInit | TransactionEnd, error: ErrorCode) -> Effects:
    return Effects(replies=(Reply(event.request_id, ProducerReply(error)),))


def _producer(event: ProducerInit | TransactionEnd, transaction: Transaction) -> Reply:
    return Reply(event.request_id, ProducerReply(NONE, transaction.producer_id, transaction.epoch))


def _knows(transaction: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether a producer is the present one, or the one whose answer with the present id and epoch was lost."""
    if producer_id == transaction.producer_id:
        return epoch in (transaction.epoch, transaction.last_epoch)
    return producer_id == transaction.previous_id and epoch >= LAST_EPOCH and epoch == transaction.last_epoch


def _check_adding(transaction: Transaction | None, event: PartitionsAdded) -> ErrorCode:
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.is_prepared:  # before the producer id, which may change with the end
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _check_producer(transaction, event)


def _check_producer(transaction: Transaction, event: PartitionsAdded | TransactionEnd) -> ErrorCode:
    if transaction.producer_id != event.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return NONE if transaction.epoch == event.epoch else ErrorCode.PRODUCER_FENCED


def _is_repeated_end(transaction: Transaction, event: TransactionEnd) -> bool:
    """The producer names the epoch before the present one, as after an end whose answer was lost."""
    if event.producer_id == transaction.producer_id:
        return event.epoch + 1 == transaction.epoch
    return event.producer_id == transaction.previous_id and event.epoch == LAST_EPOCH and transaction.epoch == 0
