"""Produce: finds the partitions, whose logs validate and number the batches.

acks=0 gets no response at all, and when something is wrong the connection is closed, which is all that such a client
can notice (W8). acks=1 and acks=all are answered when the turn is durable, like everything else.

A request with many partitions is handled in steps. Batches that take long to decompress or to compress are prepared
before, in steps too (logs/preparation.py).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.handlers.transactional_produce import ADDS, TOPIC_IDS, Writer, is_transactional, writer_of
from kohort.broker.logs.partition import Partition
from kohort.broker.logs.preparation import AT_ONCE, Batch, costly_batches, look_through, prepare
from kohort.broker.logs.validation import Room
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, CloseConnection, InSteps, RequestContext
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

STEP = 300
"""Partitions of a step."""
WITHOUT_START = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
"""Errors of an append whose answers do not say where the log begins, as in Kafka."""
_ACKS = (-1, 0, 1)


Result = ProduceResponse | CloseConnection | None


def produce(state: BrokerState, request: ProduceRequest, context: RequestContext) -> Result | InSteps:
    config = state.catalog.config_of(context.broker_id)
    room = Room(config.message_max_records, config.message_max_uncompressed_bytes)
    partitions, work, transactional = look_through(request)
    costly = costly_batches(state, request, by_id=context.api_version >= TOPIC_IDS) if work > AT_ONCE else []
    if costly or partitions > STEP:
        return InSteps(_in_steps(state, request, context, room, costly))
    leaders = CurrentLeaders(state, context.listener)
    writer = writer_of(request, state, context) if transactional else None
    topics = [_topic(state, request, topic, context, leaders, room, writer) for topic in request.topic_data]
    return _answer(request, topics, leaders)


def _in_steps(
    state: BrokerState, request: ProduceRequest, context: RequestContext, room: Room, costly: list[Batch]
) -> Generator[int, None, Result]:
    yield from prepare(costly, room)
    leaders, writer = CurrentLeaders(state, context.listener), writer_of(request, state, context)
    yield ROW_BYTES
    topics = []
    for topic in request.topic_data:
        made: list[PartitionProduceResponse] = []
        for first in range(0, len(topic.partition_data), STEP):
            if first:
                yield STEP * ROW_BYTES
            if isinstance(writer, Writer):
                writer.ask_again()
            part = changed(topic, partition_data=topic.partition_data[first : first + STEP])
            made.extend(_topic(state, request, part, context, leaders, room, writer).partition_responses)
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=tuple(made)))
        yield ROW_BYTES
    return _answer(request, topics, leaders)


def _answer(request: ProduceRequest, topics: list[TopicProduceResponse], leaders: CurrentLeaders) -> Result:
    nodes = [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in leaders.nodes()]
    if request.acks != 0:
        return ProduceResponse(responses=tuple(topics), node_endpoints=tuple(nodes))
    for topic in topics:
        for partition in topic.partition_responses:
            if partition.error_code:
                name = topic.name or topic.topic_id.hex()
                error = ErrorCode(partition.error_code).name
                return CloseConnection(f"produce with acks=0 to {name}-{partition.index} failed: {error}")
    return None


def _topic(
    state: BrokerState,
    request: ProduceRequest,
    data: TopicProduceData,
    context: RequestContext,
    leaders: CurrentLeaders,
    room: Room,
    writer: Writer | ErrorCode | None,
) -> TopicProduceResponse:
    if context.api_version >= TOPIC_IDS:
        topic, unknown = state.catalog.by_id.get(data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic, unknown = state.topic(data.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    logs = [] if topic is None else state.topics.partitions[topic.topic_id]
    return TopicProduceResponse(
        name=data.name,
        topic_id=data.topic_id,
        partition_responses=tuple(
            [
                _refused(partition.index, unknown)
                if topic is None
                else _partition(state, request, topic, logs, partition, context, leaders, room, writer)
                for partition in data.partition_data
            ]
        ),
    )


def _partition(
    state: BrokerState,
    request: ProduceRequest,
    topic: Topic,
    logs: Sequence[Partition],
    data: PartitionProduceData,
    context: RequestContext,
    leaders: CurrentLeaders,
    room: Room,
    writer: Writer | ErrorCode | None,
) -> PartitionProduceResponse:
    index = data.index
    if not 0 <= index < len(logs):
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition, assignment = logs[index], topic.partitions[index]
    if request.acks not in _ACKS:
        return _refused(index, ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.is_internal:
        return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION, "Clients do not write to internal topics")
    if assignment.leader != context.broker_id:
        leaders.add(assignment.leader)
        current = LeaderIdAndEpoch(leader_id=assignment.leader, leader_epoch=assignment.leader_epoch)
        return _refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=current)
    if request.acks == -1 and len(assignment.replicas) < partition.settings.min_insync_replicas:
        return _refused(index, ErrorCode.NOT_ENOUGH_REPLICAS)
    if isinstance(writer, ErrorCode):
        return _refused(index, writer)
    new_epochs = False
    if writer is not None and is_transactional(data.records):
        if error := writer.check(topic, index, partition, request):
            return _refused(index, error)
        new_epochs = context.api_version >= ADDS
    appended = state.turn.append(partition, data.records or b"", room, new_epochs=new_epochs)
    if appended.error:
        # Kafka compares the epoch of a transaction's records before it looks at the log.
        is_early = appended.error is ErrorCode.INVALID_PRODUCER_EPOCH and is_transactional(data.records)
        has_start = appended.error not in WITHOUT_START and not is_early
        return changed(
            _refused(index, appended.error, appended.message),
            log_start_offset=partition.start_offset if has_start else -1,
            record_errors=tuple(
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=appended.message)
                for index in appended.refused_records
            ),
        )
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.start_offset,
    )


def _refused(
    index: int, error: ErrorCode, message: str | None = None, current_leader: LeaderIdAndEpoch | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        error_message=message,
        current_leader=current_leader or LeaderIdAndEpoch(),
    )
