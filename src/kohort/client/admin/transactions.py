"""Transactions as their coordinators know them: list and describe them, fence their producers.

Each transactional id has a coordinator. Lists are requested from every broker, because each knows the ids of its own
partitions of `__transaction_state` only. Sources: KIP-664, KIP-994 and KIP-1152 for the filters of a list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kohort.client.errors import BadAnswer, UnsupportedVersion, check
from kohort.client.metadata import TopicPartition
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import TRANSACTION, Router
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""Readers of committed records may wait for a transaction in one of these states."""

ANY = -1
"""No filter by duration."""
FIRST_WITH_DURATION, FIRST_WITH_PATTERN = 1, 2
"""Versions of ListTransactions."""


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """One row of a list; `coordinator` is a broker's id."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its transaction, as the coordinator knows it.

    `started_ms` is None if no transaction has begun. In a Prepare state, `partitions` are those that still wait for
    their marker; it is empty if the transaction has ended. The client sees only the topics that it may describe.

    `aborts`: what the journal has of transactions that the coordinator aborted, the newest last, as JSON objects with
    the fields of `kohort.coordinator.journal.transaction_aborts.TransactionAbort`. Only kohort keeps a journal.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: int
    aborts: tuple[dict[str, Any], ...] = ()

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactions a list has; a transaction fits if it fits all filters that are given.

    `longer_than_ms`: the coordinator's clock minus the start of the transaction. Ids without a transaction fit too, so
    combine this filter with `states`. `pattern`: RE2's regular expressions; matches the whole id.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int = ANY
    pattern: str | None = None


def list_transactions(router: Router, wanted: TransactionFilter) -> list[ListedTransaction]:
    found: dict[int, list[ListedTransaction]] = {}

    def attempt() -> None:
        for node_id in sorted(router.nodes()):
            if node_id not in found:
                found[node_id] = _transactions_of(router.connection(node_id), node_id, wanted)

    router.retrying(attempt)
    listed = [transaction for transactions in found.values() for transaction in transactions]
    return sorted(listed, key=lambda transaction: transaction.transactional_id)


def _transactions_of(connection: Connection, node_id: int, wanted: TransactionFilter) -> list[ListedTransaction]:
    version = connection.version_of(ListTransactionsRequest)
    for given, first, filtered in (
        (wanted.longer_than_ms >= 0, FIRST_WITH_DURATION, "duration (Apache Kafka 3.8 and later)"),
        (wanted.pattern is not None, FIRST_WITH_PATTERN, "pattern (Apache Kafka 4.1 and later)"),
    ):
        if given and version < first:
            raise UnsupportedVersion(f"the broker at {connection.address} cannot filter transactions by {filtered}")
    request = ListTransactionsRequest(
        state_filters=wanted.states,
        producer_id_filters=wanted.producer_ids,
        duration_filter=wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    answer = connection.request(request, ListTransactionsResponse)
    check(answer.error_code, f"transactions of broker {node_id} at {connection.address}")
    return [
        ListedTransaction(row.transactional_id, row.producer_id, row.transaction_state, node_id)
        for row in answer.transaction_states
    ]


def describe_transactions(
    router: Router, transactional_ids: Iterable[str], aborts: int = 0
) -> dict[str, TransactionDescription]:
    described = {one: _describe(router, one, aborts) for one in dict.fromkeys(transactional_ids)}
    return {one: found for one, found in described.items() if found is not None}


def _describe(router: Router, transactional_id: str, aborts: int) -> TransactionDescription | None:
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,), aborts_last=max(aborts, 0))

    def ask(connection: Connection) -> TransactionDescription | None:
        row = connection.request(request, DescribeTransactionsResponse).transaction_states[0]
        if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        check(row.error_code, f"cannot describe the transaction of {transactional_id}")
        return TransactionDescription(
            transactional_id,
            row.transaction_state,
            row.producer_id,
            row.producer_epoch,
            row.transaction_timeout_ms,
            row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
            tuple(sorted((topic.topic, index) for topic in row.topics for index in topic.partitions)),
            router.coordinator(transactional_id, TRANSACTION),
            _aborts(row, connection.address),
        )

    return router.at_coordinator(transactional_id, ask, TRANSACTION)


def _aborts(row: TransactionState, address: str) -> tuple[dict[str, Any], ...]:
    try:
        return tuple(json.loads(entry) for entry in row.aborts)
    except ValueError as error:
        raise BadAnswer(address, f"a journal entry that is no JSON: {error}") from None


def fence_producer(router: Router, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
    """Returns the producer id and epoch that the coordinator has given to this call, which does not use them."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def ask(connection: Connection) -> tuple[int, int]:
        answer = connection.request(request, InitProducerIdResponse)
        check(answer.error_code, f"cannot fence the producer of {transactional_id}")
        return answer.producer_id, answer.producer_epoch

    return router.at_coordinator(transactional_id, ask, TRANSACTION)
