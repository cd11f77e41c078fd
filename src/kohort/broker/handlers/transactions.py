"""The APIs of transactional producers: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn; and WriteTxnMarkers.

The shard that owns a transactional id decides. Here requests find it, topics are checked to exist, and errors become
those of the request's version. Producers that add partitions by Produce and TxnOffsetCommit do not send the first two.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from kohort.broker.change_log import tell_change
from kohort.broker.request import ROW_BYTES, ROWS, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.transactions.events import PartitionsAdded, TransactionEnd
from kohort.coordinator.transactions.transaction import Place
from kohort.wire.errors import ErrorCode
from kohort.wire.markers import Marker
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kohort.wire.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kohort.wire.schemas.end_txn import EndTxnRequest, EndTxnResponse
from kohort.wire.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NONE = ErrorCode.NONE
FENCED = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that knows PRODUCER_FENCED."""
MANY_IDS = 4
"""The first version of AddPartitionsToTxn that names many transactional ids, and may only ask about partitions."""
NEW_EPOCH = 5
"""The first version of EndTxn that gives the producer a new epoch (KIP-890)."""
MARKERS = 20
"""Markers that WriteTxnMarkers appends in one step."""


def refusal(state: BrokerState, transactional_id: str, context: RequestContext) -> ErrorCode:
    """Why this broker does not serve a transactional id; NONE if it does."""
    if not transactional_id or len(transactional_id) > LONGEST_NAME:
        return ErrorCode.INVALID_REQUEST
    is_ours = state.transactions.coordinator_of(transactional_id) == context.broker_id
    return NONE if is_ours else ErrorCode.NOT_COORDINATOR


def _for_version(error: ErrorCode, context: RequestContext) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


# -- adding


@in_steps
def add_partitions_to_txn(
    state: BrokerState, request: AddPartitionsToTxnRequest, context: RequestContext
) -> Generator[int, None, AddPartitionsToTxnResponse]:
    if context.api_version < MANY_IDS:
        one = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        topics = yield from _added(state, one, context)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    results = []
    for wanted in request.transactions:
        topics = yield from _added(state, wanted, context)
        results.append(AddPartitionsToTxnResult(transactional_id=wanted.transactional_id, topic_results=topics))
        yield ROW_BYTES
    return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))


def _added(
    state: BrokerState, wanted: AddPartitionsToTxnTransaction, context: RequestContext
) -> Generator[int, None, tuple[AddPartitionsToTxnTopicResult, ...]]:
    """One error for each partition. If one of them cannot be added, none is (TX11)."""
    errors: list[ErrorCode] = []
    for at, place in enumerate(_places(wanted.topics), 1):
        errors.append(_place_error(state, place, context))
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
    if any(errors):
        errors = [error or ErrorCode.OPERATION_NOT_ATTEMPTED for error in errors]
    elif error := refusal(state, wanted.transactional_id, context):
        errors = [error] * len(errors)
    elif wanted.verify_only:
        errors = yield from _verified(state, wanted)
    elif errors:
        error = _for_version(_add(state, wanted, context), context)
        errors = [error] * len(errors)
    return (yield from _results(wanted.topics, iter(errors)))


def _place_error(state: BrokerState, place: Place, context: RequestContext) -> ErrorCode:
    topic = state.topic(place.topic)
    if topic is None or not 0 <= place.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Clients add offsets by AddOffsetsToTxn; a broker asks for its group coordinator.
    may_be_internal = context.api_version >= MANY_IDS and place.topic == OFFSETS_TOPIC
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.is_internal and not may_be_internal else NONE


def _places(topics: Sequence[AddPartitionsToTxnTopic]) -> Iterator[Place]:
    for topic in topics:
        for index in topic.partitions:
            yield Place(topic.name, index)


def _add(state: BrokerState, wanted: AddPartitionsToTxnTransaction, context: RequestContext) -> ErrorCode:
    event = PartitionsAdded(
        context.request_id,
        wanted.transactional_id,
        wanted.producer_id,
        wanted.producer_epoch,
        tuple(dict.fromkeys(_places(wanted.topics))),
        bumps=context.api_version >= MANY_IDS,
        connection=context.connection,
        client=context.client,
    )
    return state.transactions.ask_owner(event).error


def _verified(state: BrokerState, wanted: AddPartitionsToTxnTransaction) -> Generator[int, None, list[ErrorCode]]:
    errors: list[ErrorCode] = []
    for at, place in enumerate(_places(wanted.topics), 1):
        shard = state.transactions.owner(wanted.transactional_id)
        errors.append(shard.verify(wanted.transactional_id, wanted.producer_id, wanted.producer_epoch, place))
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
    return errors


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Iterator[ErrorCode]
) -> Generator[int, None, tuple[AddPartitionsToTxnTopicResult, ...]]:
    results = []
    for at, topic in enumerate(topics, 1):
        partitions = []
        for index in topic.partitions:
            result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=next(errors))
            partitions.append(result)
            if len(partitions) % ROWS == 0:
                yield ROWS * ROW_BYTES
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(partitions)))
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
    return tuple(results)


def add_offsets_to_txn(
    state: BrokerState, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Adds the group's partition of `__consumer_offsets`. The group need not exist."""
    if error := refusal(state, request.transactional_id, context):
        return AddOffsetsToTxnResponse(error_code=error)
    event = PartitionsAdded(
        context.request_id,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        (Place(OFFSETS_TOPIC, state.shard_of(request.group_id)),),
        bumps=False,
        connection=context.connection,
        client=context.client,
    )
    return AddOffsetsToTxnResponse(error_code=_for_version(state.transactions.ask_owner(event).error, context))


# -- ending


def end_txn(state: BrokerState, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    if error := refusal(state, request.transactional_id, context):
        return EndTxnResponse(error_code=error)
    event = TransactionEnd(
        context.request_id,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        bumps=context.api_version >= NEW_EPOCH,
        connection=context.connection,
        client=context.client,
    )
    reply = state.transactions.ask_owner(event)
    return EndTxnResponse(
        error_code=_for_version(reply.error, context), producer_id=reply.producer_id, producer_epoch=reply.epoch
    )


@in_steps
def write_txn_markers(
    state: BrokerState, request: WriteTxnMarkersRequest, context: RequestContext
) -> Generator[int, None, WriteTxnMarkersResponse]:
    """Ends transactions on single partitions, whatever their coordinator says: for tools, when a transaction hangs."""
    errors: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    done = 0
    for wanted in request.markers:
        of_producer = errors.setdefault(wanted.producer_id, {})
        for topic in wanted.topics:
            of_topic = of_producer.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                of_topic[index] = _write_marker(state, wanted, topic.name, index, context)
                done += 1
                if done % MARKERS == 0:
                    yield MARKERS * ROW_BYTES
    results = []
    for producer_id, topics in errors.items():
        results.append(WritableTxnMarkerResult(producer_id=producer_id, topics=(yield from _marker_results(topics))))
    return WriteTxnMarkersResponse(markers=tuple(results))


def _write_marker(
    state: BrokerState, wanted: WritableTxnMarker, name: str, index: int, context: RequestContext
) -> ErrorCode:
    topic = state.topic(name)
    partition = None if topic is None else state.partition(topic, index)
    if topic is None or partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.partitions[index].leader != context.broker_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    marker = Marker(wanted.producer_id, wanted.producer_epoch, wanted.transaction_result, wanted.coordinator_epoch)
    if name == OFFSETS_TOPIC:
        if state.shards[index].unavailable:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        appended = state.groups.end_transaction(index, marker, wanted.transaction_version)
    elif topic.is_internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION  # nothing is written there in transactions
    else:
        appended = state.turn.append_marker(partition, marker, wanted.transaction_version)
    if not appended.error:
        what = "transaction committed in a partition" if marker.committed else "transaction aborted in a partition"
        values = {"producer_id": wanted.producer_id, "epoch": wanted.producer_epoch}
        tell_change(state, context, what, partition=f"{name}-{index}", **values)
    return appended.error


def _marker_results(
    topics: dict[str, dict[int, ErrorCode]],
) -> Generator[int, None, tuple[WritableTxnMarkerTopicResult, ...]]:
    results = []
    for name, errors in topics.items():
        yield ROW_BYTES
        partitions = tuple(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error) for index, error in errors.items()
        )
        results.append(WritableTxnMarkerTopicResult(name=name, partitions=partitions))
    return tuple(results)
