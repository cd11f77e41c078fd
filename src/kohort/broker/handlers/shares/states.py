"""The APIs of the share coordinator (83 to 87), which Kafka's brokers ask each other, and tools may ask.

kohort's own leaders do not use them: they ask the shard of the share-partition. A write from outside replaces what a
leader here has locked only where it says that records are finished.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kohort.broker.request import ROW_BYTES, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.coordinator.shares.events import Delete, Initialize, ShareKey, Write
from kohort.coordinator.shares.state import ShareState
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import delete_share_group_state as deleting
from kohort.wire.schemas import initialize_share_group_state as initializing
from kohort.wire.schemas import read_share_group_state as reading
from kohort.wire.schemas import read_share_group_state_summary as summing
from kohort.wire.schemas import write_share_group_state as writing

STEP = 25
"""Partitions of one step."""
Row = Callable[[ShareKey, Any], Any]


def _rows(
    state: BrokerState, request: Any, context: RequestContext, topic_row: Any, row: Row, refused: Callable[..., Any]
) -> Generator[int, None, tuple[Any, ...]]:
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            key = ShareKey(request.group_id, topic.topic_id, asked.partition)
            error = _refusal(state, key, context)
            rows.append(
                refused(partition=key.partition, error_code=error, error_message=error.message)
                if error
                else row(key, asked)
            )
            if len(rows) % STEP == 0:
                yield STEP * ROW_BYTES
        topics.append(topic_row(topic_id=topic.topic_id, partitions=tuple(rows)))
        yield ROW_BYTES
    return tuple(topics)


def _refusal(state: BrokerState, key: ShareKey, context: RequestContext) -> ErrorCode:
    if not state.shares.is_served:
        return ErrorCode.UNSUPPORTED_VERSION
    if not key.group or len(key.group) > 8_000:
        return ErrorCode.INVALID_REQUEST
    state.shares.create()
    if state.shares.coordinator_of(key) != context.broker_id:
        return ErrorCode.NOT_COORDINATOR
    topic = state.catalog.by_id.get(key.topic_id)
    if topic is None or state.partition(topic, key.partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _stored(state: BrokerState, key: ShareKey) -> ShareState | None:
    shard = state.shares.find(key)
    return None if shard is None else shard.states.get(key)


def _result(kind: Callable[..., Any], key: ShareKey, error: ErrorCode) -> Any:
    return kind(partition=key.partition, error_code=error, error_message=error.message if error else None)


@in_steps
def initialize(
    state: BrokerState, request: initializing.InitializeShareGroupStateRequest, context: RequestContext
) -> Generator[int, None, initializing.InitializeShareGroupStateResponse]:
    def row(key: ShareKey, asked: initializing.PartitionData) -> Any:
        event = Initialize((key,), asked.state_epoch, asked.start_offset, context.request_id)
        return _result(initializing.PartitionResult, key, state.shares.ask(key, event, context.request_id))

    kind, refused = initializing.InitializeStateResult, initializing.PartitionResult
    results = yield from _rows(state, request, context, kind, row, refused)
    return initializing.InitializeShareGroupStateResponse(results=results)


@in_steps
def read(
    state: BrokerState, request: reading.ReadShareGroupStateRequest, context: RequestContext
) -> Generator[int, None, reading.ReadShareGroupStateResponse]:
    def row(key: ShareKey, asked: reading.PartitionData) -> Any:
        stored = _stored(state, key)
        if stored is None:
            return _result(reading.PartitionResult, key, ErrorCode.INVALID_REQUEST)
        if 0 <= asked.leader_epoch < stored.leader_epoch:
            return _result(reading.PartitionResult, key, ErrorCode.FENCED_LEADER_EPOCH)
        return reading.PartitionResult(
            partition=key.partition,
            state_epoch=stored.state_epoch,
            start_offset=stored.start,
            state_batches=tuple(
                reading.StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
                for first, last, kind, count in stored.cells
            ),
        )

    results = yield from _rows(state, request, context, reading.ReadStateResult, row, reading.PartitionResult)
    return reading.ReadShareGroupStateResponse(results=results)


@in_steps
def write(
    state: BrokerState, request: writing.WriteShareGroupStateRequest, context: RequestContext
) -> Generator[int, None, writing.WriteShareGroupStateResponse]:
    def row(key: ShareKey, asked: writing.PartitionData) -> Any:
        cells = sorted(
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in asked.state_batches
        )
        event = Write(
            key,
            asked.state_epoch,
            asked.leader_epoch,
            asked.start_offset,
            asked.delivery_complete_count,
            tuple(cells),
            context.request_id,
        )
        return _result(writing.PartitionResult, key, state.shares.ask(key, event, context.request_id))

    results = yield from _rows(state, request, context, writing.WriteStateResult, row, writing.PartitionResult)
    return writing.WriteShareGroupStateResponse(results=results)


@in_steps
def delete(
    state: BrokerState, request: deleting.DeleteShareGroupStateRequest, context: RequestContext
) -> Generator[int, None, deleting.DeleteShareGroupStateResponse]:
    def row(key: ShareKey, asked: deleting.PartitionData) -> Any:
        state.shares.ask(key, Delete((key,)))
        return _result(deleting.PartitionResult, key, ErrorCode.NONE)

    results = yield from _rows(state, request, context, deleting.DeleteStateResult, row, deleting.PartitionResult)
    return deleting.DeleteShareGroupStateResponse(results=results)


@in_steps
def read_summary(
    state: BrokerState, request: summing.ReadShareGroupStateSummaryRequest, context: RequestContext
) -> Generator[int, None, summing.ReadShareGroupStateSummaryResponse]:
    def row(key: ShareKey, asked: summing.PartitionData) -> Any:
        stored = _stored(state, key)
        if stored is None:
            return summing.PartitionResult(
                partition=key.partition, state_epoch=0, leader_epoch=0, start_offset=-1, delivery_complete_count=-1
            )
        return summing.PartitionResult(
            partition=key.partition,
            state_epoch=stored.state_epoch,
            leader_epoch=stored.leader_epoch,
            start_offset=stored.start,
            delivery_complete_count=stored.complete,
        )

    kind, refused = summing.ReadStateSummaryResult, summing.PartitionResult
    results = yield from _rows(state, request, context, kind, row, refused)
    return summing.ReadShareGroupStateSummaryResponse(results=results)
