"""A producer's transactions, blocking, step by step.

    writer = TransactionalWriter(router, "orders-7")
    writer.init()                    # fences earlier producers of the id, and aborts their transaction
    writer.begin()
    writer.produce({("orders", 0): [NewRecord(b"k", b"v", now)]})
    writer.send_offsets("group", {("input", 0): Committed(17)})
    writer.prepared()                # all is in the logs; this is what another process needs to end it
    writer.commit()                  # or abort()

One request to a partition is under way at a time, and its retries have the same sequence number, so each batch is
written once. After `MustAbort` call `abort` and begin anew; after `ProducerFailed` the writer is done for. If `commit`
raises a retriable error, its outcome is unknown: call `commit` again, or keep `prepared()` for `end_prepared`.

Source: KIP-98, KIP-360, KIP-890; Apache Kafka 4.x, TransactionManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

from kohort.client.admin.groups import NOBODY, Committed, Committer
from kohort.client.errors import KafkaError, Misuse, ServerError, check, error_code, server_error
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import Failures, ask_leaders, raise_worst
from kohort.client.transactions import requests
from kohort.client.transactions.endings import ask_to_end, version_in
from kohort.client.transactions.identity import (
    FIRST,
    LAST_EPOCH,
    SECOND,
    TRANSACTION_VERSION,
    Identity,
    Prepared,
)
from kohort.client.transactions.reactions import (
    MustAbort,
    ProducerFailed,
    after_adding,
    after_ending,
    after_offsets,
    after_produce,
)
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import TRANSACTION, Router
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnResponse
from kohort.wire.schemas.add_partitions_to_txn import AddPartitionsToTxnResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.schemas.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from kohort.wire.schemas.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

DEFAULT_TIMEOUT_MS = 60_000

WRITTEN_BEFORE = -1
"""The offset of a batch of which only the retry was answered."""

Batch = bytes | Sequence[NewRecord]
"""An encoded record batch, or the records of one."""


class _State(Enum):
    IDLE = "no transaction is open"
    OPEN = "a transaction is open"
    BROKEN = "the transaction must be aborted"
    COMMITTING = "the outcome of a commit is unknown"
    ABORTING = "the outcome of an abort is unknown"
    FAILED = "the producer has failed"


class TransactionalWriter:
    """The transactions of one transactional id. Use it from one thread.

    `timeout_ms`: the server aborts a transaction that is open for longer; at most the server's
    `transaction.max.timeout.ms` (15 minutes by default). `router` is shared with whatever else the thread does.
    `own_epochs`: each transaction has an epoch of its own in the first protocol too, at the price of InitProducerId
    before each; then a request that arrives late cannot end or extend the next transaction. `highest_protocol`: 1 keeps
    to the first protocol also where the cluster has the second.
    """

    def __init__(
        self,
        router: Router,
        transactional_id: str,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        own_epochs: bool = False,
        highest_protocol: int = SECOND,
    ) -> None:
        self.transactional_id = transactional_id
        self._router = router
        self._timeout_ms = timeout_ms
        self._own_epochs = own_epochs
        self._highest_protocol = highest_protocol
        self._epoch_used = False
        self._identity = Identity()
        self._state = _State.IDLE
        self._partitions: set[TopicPartition] = set()
        """The partitions of the open transaction, as far as this client has added them itself."""
        self._groups: set[str] = set()
        self._touched = False
        """Whether the coordinator or a broker may know of the open transaction."""

    # -- the transaction

    def init(self) -> None:
        """Get a producer id and the next epoch: fences all earlier producers of the id, and aborts their transaction.

        Raises KafkaError: INVALID_TRANSACTION_TIMEOUT, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, … Misuse while the
        outcome of a commit is unknown.
        """
        if self._state is _State.COMMITTING:
            raise Misuse(f"transactional id {self.transactional_id}: {self._state.value}; InitProducerId may abort it")
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)

        def ask(connection: Connection) -> None:
            answer = connection.request(request, InitProducerIdResponse)
            check(answer.error_code, f"producer id of {self.transactional_id}")
            self._identity.adopt(
                answer.producer_id, answer.producer_epoch, min(_protocol(connection), self._highest_protocol)
            )

        self._router.at_coordinator(self.transactional_id, ask, TRANSACTION)
        self._forget_transaction(_State.IDLE)
        self._epoch_used = False

    def begin(self) -> None:
        """Begin a transaction; no request, unless the producer needs a new epoch. Raises Misuse, KafkaError."""
        self._expect(_State.IDLE)
        shared = self._own_epochs and self._epoch_used and self._identity.protocol == FIRST
        if shared or not self._identity.known or self._identity.epoch >= LAST_EPOCH:
            self.init()
        self._state = _State.OPEN

    def produce(self, batches: Mapping[TopicPartition, Batch]) -> dict[TopicPartition, int]:
        """Append one record batch to each of several partitions. Returns the offset of the first record of each, or
        `WRITTEN_BEFORE`. All of them are in the logs then. Raises MustAbort, ProducerFailed."""
        self._expect(_State.OPEN)
        encoded = {
            place: batch if isinstance(batch, bytes) else encode_batch(batch) for place, batch in batches.items()
        }
        if self._identity.protocol == FIRST:
            self._add_partitions([place for place in encoded if place not in self._partitions])
        self._touched = True
        stamped = {
            place: requests.stamped(batch, self._identity, self._identity.sequence(place))
            for place, batch in encoded.items()
        }
        stored: dict[TopicPartition, int] = {}
        try:
            self._router.retrying(lambda: self._append(stamped, stored))
        except KafkaError as error:
            raise self._broken(after_produce(error)) from None
        for place, batch in encoded.items():
            self._identity.written(place, requests.record_count(batch))
        return stored

    def send_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed], member: Committer = NOBODY
    ) -> None:
        """Make offsets of a consumer group part of the transaction; they are committed with it.

        `member` fences: the coordinator of the group refuses a member that is not in its present generation. Raises
        MustAbort, ProducerFailed.
        """
        self._expect(_State.OPEN)
        if not offsets:
            return
        if self._identity.protocol == FIRST and group_id not in self._groups:
            self._add_group(group_id)
        self._touched = True
        request = requests.offset_commit(self.transactional_id, self._identity, group_id, offsets, member)

        def ask(connection: Connection) -> None:
            version = version_in(connection, TxnOffsetCommitRequest, self._identity)
            answer = connection.request(request, TxnOffsetCommitResponse, version=version)
            for (topic, index), code in requests.refused_offsets(answer):
                raise server_error(code, f"offset of group {group_id}, {topic}-{index}")

        try:
            self._router.at_coordinator(group_id, ask)
        except KafkaError as error:
            raise self._broken(after_offsets(error)) from None

    def prepared(self) -> Prepared:
        """What any process needs to end the open transaction. Raises Misuse if none is open, or nothing is in it."""
        self._expect(_State.OPEN, _State.COMMITTING)
        if not self._touched:
            raise Misuse(f"transactional id {self.transactional_id}: nothing is in the transaction")
        return self._named()

    def commit(self) -> None:
        """Commit. Raises ProducerFailed or MustAbort if the transaction is not committed, and a retriable KafkaError if
        the outcome is unknown: call it again then. An empty transaction needs no request."""
        self._expect(_State.OPEN, _State.COMMITTING)
        self._end(_State.COMMITTING, committed=True)

    def abort(self) -> None:
        """Abort. Raises ProducerFailed if another producer has taken over, and a retriable KafkaError if the outcome is
        unknown. Nothing happens if no transaction is open."""
        if self._state is _State.IDLE:
            return
        self._expect(_State.OPEN, _State.BROKEN, _State.ABORTING)
        unsure = self._state is _State.BROKEN and self._identity.protocol == FIRST
        self._end(_State.ABORTING, committed=False)
        if unsure:
            self._identity.forget()  # a sequence may be used or not; a new epoch begins at 0

    # -- requests

    def _append(self, batches: Mapping[TopicPartition, bytes], stored: dict[TopicPartition, int]) -> None:
        """One attempt for the batches that are not in `stored`."""

        def request(partitions: Sequence[TopicPartition]) -> ProduceRequest:
            return requests.produce(self.transactional_id, self._router.timing.request, partitions, batches)

        def rows(answer: ProduceResponse) -> Iterator[tuple[TopicPartition, PartitionProduceResponse]]:
            return (((topic.name, row.index), row) for topic in answer.responses for row in topic.partition_responses)

        rest = [place for place in batches if place not in stored]
        answered, failed = ask_leaders(
            self._router,
            rest,
            "Produce",
            request,
            ProduceResponse,
            rows,
            version=lambda connection: version_in(connection, ProduceRequest, self._identity),
        )
        failed |= _append_failures(answered, stored)
        raise_worst(self._router, failed)

    def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:
            return
        request = requests.add_partitions(self.transactional_id, self._identity, partitions)

        def ask(connection: Connection) -> None:
            answer = connection.request(request, AddPartitionsToTxnResponse)
            refused = {place: code for place, code in requests.added(answer) if code}
            # One partition's error makes the others OPERATION_NOT_ATTEMPTED.
            causes = {place: code for place, code in refused.items() if code != ErrorCode.OPERATION_NOT_ATTEMPTED}
            for (topic, index), code in (causes or refused).items():
                raise server_error(code, f"transaction {self.transactional_id}, partition {topic}-{index}")

        self._touched = True
        try:
            self._router.at_coordinator(self.transactional_id, ask, TRANSACTION)
        except KafkaError as error:
            raise self._broken(after_adding(error)) from None
        self._partitions.update(partitions)

    def _add_group(self, group_id: str) -> None:
        request = requests.add_offsets(self.transactional_id, self._identity, group_id)

        def ask(connection: Connection) -> None:
            answer = connection.request(request, AddOffsetsToTxnResponse)
            check(answer.error_code, f"transaction {self.transactional_id}, group {group_id}")

        self._touched = True
        try:
            self._router.at_coordinator(self.transactional_id, ask, TRANSACTION)
        except KafkaError as error:
            raise self._broken(after_adding(error)) from None
        self._groups.add(group_id)

    def _end(self, under_way: _State, *, committed: bool) -> None:
        if self._touched:
            self._state = under_way
            self._epoch_used = True
            try:
                answer = ask_to_end(self._router, self._named(), committed=committed)
            except ServerError as error:
                if error.retriable or error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
                    raise
                if not committed and error.code == ErrorCode.INVALID_TXN_STATE:
                    self._identity.forget()  # nothing was open: no partition was added
                else:
                    raise self._broken(after_ending(error)) from None
            else:
                if answer.producer_id >= 0:
                    self._identity.adopt(answer.producer_id, answer.producer_epoch, SECOND)
        self._forget_transaction(_State.IDLE)

    # -- states

    def _named(self) -> Prepared:
        identity = self._identity
        return Prepared(self.transactional_id, identity.producer_id, identity.epoch, identity.protocol)

    def _expect(self, *states: _State) -> None:
        if self._state not in states:
            raise Misuse(f"transactional id {self.transactional_id}: {self._state.value}")

    def _broken(self, error: KafkaError) -> KafkaError:
        self._state = _State.BROKEN if isinstance(error, MustAbort) else _State.FAILED
        return error

    def _forget_transaction(self, state: _State) -> None:
        self._partitions.clear()
        self._groups.clear()
        self._touched = False
        self._state = state


def _protocol(connection: Connection) -> int:
    """The protocol of this cluster's transactions. A server finalizes level 2 only if it serves all its requests."""
    return SECOND if connection.finalized.get(TRANSACTION_VERSION, 0) >= SECOND else FIRST


def _append_failures(
    answered: Mapping[TopicPartition, PartitionProduceResponse], stored: dict[TopicPartition, int]
) -> Failures:
    """Put the offsets of written batches into `stored`; return the failures."""
    failed: Failures = {}
    for place, row in answered.items():
        code = error_code(row.error_code)
        if not row.error_code:
            stored[place] = row.base_offset
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            stored[place] = WRITTEN_BEFORE
        else:
            failed[place] = server_error(row.error_code, f"Produce {place[0]}-{place[1]}", row.error_message)
    return failed


def batches_by_round(batches: Iterable[tuple[TopicPartition, Batch]]) -> Iterator[dict[TopicPartition, Batch]]:
    """Batches in the order of each partition, one of each partition at a time, as `produce` takes them."""
    waiting: dict[TopicPartition, list[Batch]] = {}
    for place, batch in batches:
        waiting.setdefault(place, []).append(batch)
    while waiting:
        yield {place: queue[0] for place, queue in waiting.items()}
        waiting = {place: queue[1:] for place, queue in waiting.items() if len(queue) > 1}


__all__ = ["DEFAULT_TIMEOUT_MS", "WRITTEN_BEFORE", "Batch", "ProducerFailed", "TransactionalWriter", "batches_by_round"]
