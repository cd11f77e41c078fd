"""End a transaction that is prepared: its records are in the logs, and only its result is missing.

EndTxn names transactional id, producer id and epoch, and any process may send it; no session of the producer is needed.
So a process that finds a `Prepared` in a database can commit it, as often as it likes. It must not call InitProducerId
for the transactional id before it has the outcome: that would abort the transaction.

In version 1 kohort takes an end on a connection that is older than the producer's for a late one of an earlier
transaction, if both have the same client id and host. So `renew_connections` comes first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import Enum

from kohort.client.errors import ServerError, check
from kohort.client.transactions import requests
from kohort.client.transactions.identity import FIRST, HIGHEST_VERSIONS, Identity, Prepared
from kohort.client.transactions.reactions import ENDED_BY_OTHERS
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import TRANSACTION, Router
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import schema_of
from kohort.wire.schemas.end_txn import EndTxnRequest, EndTxnResponse

ATTEMPTS_AT_UNKNOWN_ERRORS = 5


class Outcome(Enum):
    """What has become of a transaction that was to be committed, or aborted."""

    DONE = "done"
    """It is ended as asked, now or before."""
    OTHERWISE = "otherwise"
    """It is ended the other way: most often it timed out before the commit, and was aborted."""
    FORGOTTEN = "forgotten"
    """The coordinator does not have this transactional id, or not with this producer id. It forgets ids that are idle
    for `transactional.id.expiration.ms` (7 days by default)."""


def renew_connections(router: Router, prepared: Iterable[Prepared]) -> None:
    """Call this before `end_prepared` if another process has prepared one of the transactions."""
    if any(transaction.protocol == FIRST for transaction in prepared):
        router.close()  # it opens new connections when they are needed


def end_prepared(router: Router, prepared: Prepared, *, committed: bool = True) -> Outcome:
    """Commit or abort a prepared transaction. Raises KafkaError if no coordinator could be asked in time.

    `OTHERWISE` is certain only if nobody has called InitProducerId for the id since the transaction was prepared.
    """
    try:
        ask_to_end(router, prepared, committed=committed)
    except ServerError as error:
        if error.code in ENDED_BY_OTHERS:
            return Outcome.OTHERWISE
        if error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Outcome.FORGOTTEN
        raise
    return Outcome.DONE


def ask_to_end(router: Router, prepared: Prepared, *, committed: bool) -> EndTxnResponse:
    """Send EndTxn until it is answered, and check the answer's code. Raises KafkaError.

    If a transaction ends while its producer is fenced, Apache Kafka 4.3 answers UNKNOWN_SERVER_ERROR. Asked again a
    moment later, it says which of the two happened.
    """
    request = requests.end(prepared, committed=committed)

    def ask(connection: Connection) -> EndTxnResponse:
        answer = connection.request(request, EndTxnResponse, version=version_in(connection, EndTxnRequest, prepared))
        check(answer.error_code, f"end of transaction {prepared.transactional_id}")
        return answer

    for attempt in range(1, ATTEMPTS_AT_UNKNOWN_ERRORS):
        try:
            return router.at_coordinator(prepared.transactional_id, ask, TRANSACTION)
        except ServerError as error:
            if error.code != ErrorCode.UNKNOWN_SERVER_ERROR:
                raise
        time.sleep(router.backoff(attempt))
    return router.at_coordinator(prepared.transactional_id, ask, TRANSACTION)


def version_in(connection: Connection, request_class: type, of: Prepared | Identity) -> int:
    """The version of a request in the protocol of its transaction. Raises UnsupportedVersion."""
    connection.version_of(request_class)  # raises
    api_key = schema_of(request_class).api_key
    assert api_key is not None
    return min(connection.api_versions[api_key].last, HIGHEST_VERSIONS[of.protocol][request_class])
