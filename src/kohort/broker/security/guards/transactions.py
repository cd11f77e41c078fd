"""The guards of the APIs of transactional producers."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from kohort.broker.authorization import Operation, Resource
from kohort.broker.handlers.transactions import MANY_IDS
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, ROWS
from kohort.broker.security.guards.ask import Ask, Narrowed, Refused, Verdict, denied_names
from kohort.broker.security.guards.rows import TopicRows, by_topic
from kohort.coordinator.classic.responses import pending_commit_error
from kohort.coordinator.offsets.transactional import TOPIC_IDS
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import add_partitions_to_txn as added
from kohort.wire.schemas import describe_transactions as described
from kohort.wire.schemas import list_transactions as listed
from kohort.wire.schemas import txn_offset_commit as committed
from kohort.wire.schemas import write_txn_markers as marked
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kohort.wire.schemas.end_txn import EndTxnRequest, EndTxnResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_O, _R = Operation, Resource
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def init_producer_id(ask: Ask, request: InitProducerIdRequest) -> Verdict:
    """A producer without an id needs the right to write idempotently, or to write to any topic."""
    if request.transactional_id is not None:
        if ask.may(_O.WRITE, _R.TRANSACTIONAL_ID, request.transactional_id):
            return None
        return Refused(InitProducerIdResponse(error_code=NO_ID, producer_epoch=-1))
    if ask.sees_cluster(_O.IDEMPOTENT_WRITE) or ask.may_any(_O.WRITE, _R.TOPIC):
        return None
    return Refused(InitProducerIdResponse(error_code=NO_CLUSTER, producer_epoch=-1))


# -- adding


def add_partitions_to_txn(
    ask: Ask, request: added.AddPartitionsToTxnRequest
) -> Verdict | Generator[int, None, Verdict]:
    """From version 4 on, brokers send it."""
    if ask.version >= MANY_IDS:
        if ask.may_cluster(_O.CLUSTER_ACTION):
            return None
        return Refused(added.AddPartitionsToTxnResponse(error_code=NO_CLUSTER))
    if not ask.may(_O.WRITE, _R.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        rows = tuple(_added(topic, NO_ID) for topic in request.v3_and_below_topics)
        return Refused(added.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))
    return _of_topics(ask, request)


def _of_topics(ask: Ask, request: added.AddPartitionsToTxnRequest) -> Generator[int, None, Verdict]:
    """If one topic is denied nothing is added (TX11)."""
    topics = request.v3_and_below_topics
    denied = yield from denied_names(ask, (topic.name for topic in topics), _O.WRITE, _R.TOPIC)
    if not denied:
        return None
    rows = []
    for topic in topics:
        yield ROW_BYTES
        found = None if topic.name in denied else ask.state.topic(topic.name)
        count = len(found.partitions) if found is not None else 0
        results = []
        for index in topic.partitions:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED
            if topic.name in denied or (found is not None and found.is_internal):
                error = NO_TOPIC
            elif not 0 <= index < count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(added.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error))
        rows.append(added.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(results)))
    return Refused(added.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=tuple(rows)))


def _added(topic: added.AddPartitionsToTxnTopic, error: ErrorCode) -> added.AddPartitionsToTxnTopicResult:
    return added.AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=tuple(
            added.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
            for index in topic.partitions
        ),
    )


def add_offsets_to_txn(ask: Ask, request: AddOffsetsToTxnRequest) -> Verdict:
    if not ask.may(_O.WRITE, _R.TRANSACTIONAL_ID, request.transactional_id):
        return Refused(AddOffsetsToTxnResponse(error_code=NO_ID))
    if not ask.may(_O.READ, _R.GROUP, request.group_id):
        return Refused(AddOffsetsToTxnResponse(error_code=NO_GROUP))
    return None


def _uncommitted(
    topic: committed.TxnOffsetCommitRequestTopic, error: ErrorCode
) -> committed.TxnOffsetCommitResponseTopic:
    return committed.TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            committed.TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
            for asked in topic.partitions
        ),
    )


COMMITTED = TopicRows("topics", "topics", _uncommitted, committed.TxnOffsetCommitResponse, ids_from=TOPIC_IDS)


def txn_offset_commit(ask: Ask, request: committed.TxnOffsetCommitRequest) -> Verdict | Generator[int, None, Verdict]:
    if not ask.may(_O.WRITE, _R.TRANSACTIONAL_ID, request.transactional_id):
        return Refused(pending_commit_error(request, NO_ID))
    if not ask.may(_O.READ, _R.GROUP, request.group_id):
        return Refused(pending_commit_error(request, NO_GROUP))
    return by_topic(COMMITTED, _O.READ, ask, request)


# -- ending


def end_txn(ask: Ask, request: EndTxnRequest) -> Verdict:
    if ask.may(_O.WRITE, _R.TRANSACTIONAL_ID, request.transactional_id):
        return None
    return Refused(EndTxnResponse(error_code=NO_ID))


def write_txn_markers(ask: Ask, request: marked.WriteTxnMarkersRequest) -> Verdict:
    if ask.sees_cluster(_O.ALTER) or ask.may_cluster(_O.CLUSTER_ACTION):
        return None
    return Refused(
        marked.WriteTxnMarkersResponse(
            markers=tuple(
                marked.WritableTxnMarkerResult(
                    producer_id=marker.producer_id, topics=tuple(map(_unmarked, marker.topics))
                )
                for marker in request.markers
            )
        )
    )


def _unmarked(topic: marked.WritableTxnMarkerTopic) -> marked.WritableTxnMarkerTopicResult:
    return marked.WritableTxnMarkerTopicResult(
        name=topic.name,
        partitions=tuple(
            marked.WritableTxnMarkerPartitionResult(partition_index=index, error_code=NO_CLUSTER)
            for index in topic.partition_indexes
        ),
    )


# -- lists


def describe_transactions(ask: Ask, request: described.DescribeTransactionsRequest) -> Generator[int, None, Verdict]:
    """What was aborted names topics and clients: it is for those who may describe the cluster."""
    denied = yield from denied_names(ask, request.transactional_ids, _O.DESCRIBE, _R.TRANSACTIONAL_ID)
    aborts_last = request.aborts_last if not request.aborts_last or ask.sees_cluster(_O.DESCRIBE) else 0
    kept = tuple(name for name in request.transactional_ids if name not in denied)
    refused = tuple(_undescribed(name) for name in dict.fromkeys(request.transactional_ids) if name in denied)
    narrowed = changed(request, transactional_ids=kept, aborts_last=aborts_last)
    return Narrowed(narrowed, partial(_described, ask, denied, refused))


def _undescribed(transactional_id: str) -> described.TransactionState:
    return described.TransactionState(
        error_code=NO_ID,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )


def _described(
    ask: Ask, denied: set[str], refused: tuple[Any, ...], answer: described.DescribeTransactionsResponse
) -> Generator[int, None, described.DescribeTransactionsResponse]:
    states = []
    for state in answer.transaction_states:
        yield ROW_BYTES
        if state.transactional_id not in denied:
            topics = tuple(topic for topic in state.topics if ask.sees(_O.DESCRIBE, _R.TOPIC, topic.topic))
            states.append(changed(state, topics=topics))
    return changed(answer, transaction_states=(*states, *refused))


def list_transactions(ask: Ask, request: listed.ListTransactionsRequest) -> Verdict:
    return Narrowed(request, partial(_listed, ask))


def _listed(ask: Ask, answer: listed.ListTransactionsResponse) -> Generator[int, None, listed.ListTransactionsResponse]:
    kept = []
    for at, state in enumerate(answer.transaction_states, 1):
        if ask.sees(_O.DESCRIBE, _R.TRANSACTIONAL_ID, state.transactional_id):
            kept.append(state)
        if at % ROWS == 0:
            yield 0
    return changed(answer, transaction_states=tuple(kept))
