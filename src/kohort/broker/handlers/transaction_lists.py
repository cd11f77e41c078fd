"""DescribeTransactions and ListTransactions: the transactional ids whose coordinator is the broker that is asked."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import groupby

from kohort.broker.handlers.transactions import refusal
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, ROWS, RequestContext, Room, in_steps
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import not_too_often
from kohort.coordinator.transactions.transaction import State, Transaction
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kohort.wire.schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kohort.wire.schemas.list_transactions import TransactionState as ListedTransaction

TITLES = {state.title: state for state in State}
TITLES_OF_NONE = frozenset(("Dead", "PrepareEpochFence"))
"""States that Kafka knows too, and in which no transaction is listed."""
MOST_JOURNAL_BYTES = 4 * 1024 * 1024
"""Bytes of journal entries in one answer. Beyond it, the ids named last have none."""


@in_steps
def describe_transactions(
    state: BrokerState, request: DescribeTransactionsRequest, context: RequestContext
) -> Generator[int, None, DescribeTransactionsResponse]:
    last = request.aborts_last if state.config.deviations.extensions else 0
    room = Room(MOST_JOURNAL_BYTES)
    described = []
    for transactional_id in not_too_often(request.transactional_ids):
        one = _described(state, transactional_id, context)
        size = 0
        if last > 0 and not one.error_code:
            aborts = tuple(state.transactions.aborts.last(transactional_id, last))
            size = sum(map(len, aborts))
            one = changed(one, aborts=aborts if room.take(size) else ())
        described.append(one)
        yield ROW_BYTES * (1 + len(one.topics)) + size
    return DescribeTransactionsResponse(transaction_states=tuple(described))


def _described(state: BrokerState, transactional_id: str, context: RequestContext) -> TransactionState:
    if error := refusal(state, transactional_id, context):
        return _undescribed(transactional_id, error)
    shard = state.transactions.owner(transactional_id)
    if shard.unavailable:
        return _undescribed(transactional_id, shard.unavailable)
    transaction = shard.ids.get(transactional_id)
    if transaction is None:
        return _undescribed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    if transaction.is_prepared:
        places = state.transactions.unwritten(transactional_id)
    else:
        places = tuple(sorted(transaction.places))
    topics = tuple(
        TopicData(topic=topic, partitions=tuple(index for _, index in of_topic))
        for topic, of_topic in groupby(places, key=lambda place: place[0])
    )
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=topics,
    )


def _undescribed(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )


@in_steps
def list_transactions(
    state: BrokerState, request: ListTransactionsRequest, context: RequestContext
) -> Generator[int, None, ListTransactionsResponse]:
    """Of all filters that are given, an id must match each."""
    unknown = tuple(title for title in request.state_filters if title not in TITLES and title not in TITLES_OF_NONE)
    matches = _pattern(state, request.transactional_id_pattern)
    if isinstance(matches, ErrorCode):
        return ListTransactionsResponse(error_code=matches, unknown_state_filters=unknown, transaction_states=())
    wanted = _wanted(request, state.now)
    found: list[ListedTransaction] = []
    for index, shard in enumerate(state.transactions.shards):
        if state.transactions.leader_of(index) != context.broker_id:
            continue
        if shard.unavailable is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # half a list would mislead
            return ListTransactionsResponse(
                error_code=shard.unavailable, unknown_state_filters=unknown, transaction_states=()
            )
        for at, (transactional_id, transaction) in enumerate(list(shard.ids.items()), 1):
            if at % ROWS == 0:
                yield 0
            if wanted(transaction) and (matches is None or matches(transactional_id)):
                found.append(
                    ListedTransaction(
                        transactional_id=transactional_id,
                        producer_id=transaction.producer_id,
                        transaction_state=transaction.state.title,
                    )
                )
                yield ROW_BYTES
        yield 0
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=tuple(found)
    )


def _wanted(request: ListTransactionsRequest, now: int) -> Callable[[Transaction], bool]:
    states = frozenset(TITLES.get(title) for title in request.state_filters)
    producer_ids = frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter

    def is_wanted(transaction: Transaction) -> bool:
        return (
            (not states or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (duration_ms < 0 or transaction.started < 0 or now - transaction.started > duration_ms)
        )

    return is_wanted


def _pattern(state: BrokerState, text: str | None) -> Callable[[str], bool] | ErrorCode | None:
    """Whether an id matches the pattern as a whole; None if every id does."""
    if not text:
        return None
    from kohort.coordinator.patterns.regex import compiled_pattern

    found = compiled_pattern(text, state.config.group_consumer_regex_max_length)
    return ErrorCode.INVALID_REGULAR_EXPRESSION if isinstance(found, str) else found
