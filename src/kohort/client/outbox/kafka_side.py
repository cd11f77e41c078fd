"""The Kafka side of an outbox: the producer of its present session. Blocking; use it from one thread at a time.

A session has a transactional id of its own, `NAME-SESSION`, that only the process of the session gives to
InitProducerId, except for one case: when an older session has no transaction to be committed, InitProducerId aborts
what it has left open, so that readers need not wait for a timeout. So if EndTxn is refused because of the epoch, the
transaction timed out; it cannot have been committed before somebody raised the epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random

from kohort.client.errors import KafkaError, Misuse, server_error
from kohort.client.outbox.payload import Outgoing, Placed, in_batches
from kohort.client.transactions.endings import Outcome, end_prepared, renew_connections
from kohort.client.transactions.identity import SECOND, Prepared
from kohort.client.transactions.writer import TransactionalWriter, batches_by_round
from kohort.client.wire.routing import Router
from kohort.wire.errors import ErrorCode

log = logging.getLogger("kohort.client")

STALE = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""The id has expired, or an earlier transaction timed out: a new epoch helps."""


class KafkaSide:
    """Opens connections on first use. `timeout_ms`: the server aborts a transaction that is open for longer."""

    def __init__(self, router: Router, timeout_ms: int, highest_protocol: int = SECOND) -> None:
        self._router = router
        self._timeout_ms = timeout_ms
        self._highest_protocol = highest_protocol
        self._writer: TransactionalWriter | None = None
        self._open: Prepared | None = None
        """The transaction that the writer has prepared and not ended."""
        self._random = Random()

    def close(self) -> None:
        self._router.close()

    def open_session(self, transactional_id: str, abandoned: str | None) -> None:
        """Begin a session. `abandoned` is the id of the session before, if it has no transaction to be committed.
        Raises KafkaError."""
        self._writer = None
        self._open = None
        if abandoned is not None:
            self._new_writer(abandoned).init()
        writer = self._new_writer(transactional_id)
        writer.init()
        self._writer = writer

    def prepare(self, records: Sequence[Outgoing]) -> tuple[Prepared, list[Placed]]:
        """Put the records into an open transaction; all are in the logs then. Raises KafkaError; nothing is open
        then."""
        batches = in_batches(records, self._partitions, self._random)
        return self.prepare_batches(batches), batches

    def prepare_batches(self, batches: Sequence[Placed]) -> Prepared:
        """As `prepare`, for batches that exist."""
        try:
            return self._attempt(batches)
        except KafkaError as error:
            self.give_up()
            if error.code not in STALE:
                raise
        try:
            return self._attempt(batches)
        except KafkaError:
            self.give_up()
            raise

    def end(self, prepared: Prepared) -> Outcome:
        """Commit a prepared transaction, of this session or of an older one. Raises KafkaError."""
        if self._writer is None or prepared != self._open:
            renew_connections(self._router, (prepared,))
            return end_prepared(self._router, prepared)
        outcome = _outcome(self._writer.commit)
        self._open = None
        if outcome is not Outcome.DONE:
            self._renew()
        return outcome

    def give_up(self) -> None:
        """Abort what is open, as far as the cluster can be reached; it times out otherwise."""
        self._open = None
        if self._writer is None:
            return
        try:
            self._writer.abort()
        except (KafkaError, Misuse) as error:  # Misuse: the writer has failed
            log.info("%s: a transaction is left to its timeout: %s", self._writer.transactional_id, error)
            self._renew()

    # -- steps

    def _attempt(self, batches: Sequence[Placed]) -> Prepared:
        assert self._writer is not None
        self._writer.begin()
        for batch_of in batches_by_round(batches):
            self._writer.produce(batch_of)
        self._open = self._writer.prepared()
        return self._open

    def _renew(self) -> None:
        """A new writer of the same id; it begins with InitProducerId, which aborts what is open."""
        assert self._writer is not None
        self._writer = self._new_writer(self._writer.transactional_id)

    def _new_writer(self, transactional_id: str) -> TransactionalWriter:
        return TransactionalWriter(
            self._router,
            transactional_id,
            timeout_ms=self._timeout_ms,
            own_epochs=True,
            highest_protocol=self._highest_protocol,
        )

    def _partitions(self, topic: str) -> int:
        """The number of a topic's partitions. Raises ServerError if it does not exist."""

        def attempt() -> int:
            found = self._router.fresh_view((topic,)).topics.get(topic)
            if found is None or found.error or not found.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
                self._router.forget_leader((topic, 0))
                raise server_error(code or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
            return len(found.partitions)

        return self._router.retrying(attempt)


def _outcome(commit: Callable[[], None]) -> Outcome:
    """What a commit by the writer itself has come to. Raises KafkaError while that is unknown."""
    try:
        commit()
    except KafkaError as error:
        if error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Outcome.FORGOTTEN
        if error.code in STALE or error.code == ErrorCode.INVALID_TXN_STATE:
            return Outcome.OTHERWISE
        raise
    return Outcome.DONE
