"""Produce: finds the partitions, whose logs validate and number the batches.

acks=0 gets no response at all, and when something is wrong the connection is closed, which is all that such a client
can notice (W8). acks=1 and acks=all are answered when the turn is durable, like everything else.
"""

from __future__ import annotations

from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.logs.validation import Room
from kohort.broker.messages import changed
from kohort.broker.request import CloseConnection, RequestContext
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

TOPIC_IDS = 13
"""The first version that names topics by their ids."""
_ACKS = (-1, 0, 1)


def produce(
    state: BrokerState, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | CloseConnection | None:
    leaders = CurrentLeaders(state)
    config = state.catalog.config_of(context.broker_id)
    room = Room(config.message_max_records, config.message_max_uncompressed_bytes)
    response = ProduceResponse(
        responses=tuple(_topic(state, request, topic, context, leaders, room) for topic in request.topic_data),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in leaders.nodes()
        ),
    )
    if request.acks != 0:
        return response
    for topic in response.responses:
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
) -> TopicProduceResponse:
    if context.api_version >= TOPIC_IDS:
        topic, unknown = state.catalog.by_id.get(data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic, unknown = state.topic(data.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicProduceResponse(
        name=data.name,
        topic_id=data.topic_id,
        partition_responses=tuple(
            _refused(partition.index, unknown)
            if topic is None
            else _partition(state, request, topic, partition, context, leaders, room)
            for partition in data.partition_data
        ),
    )


def _partition(
    state: BrokerState,
    request: ProduceRequest,
    topic: Topic,
    data: PartitionProduceData,
    context: RequestContext,
    leaders: CurrentLeaders,
    room: Room,
) -> PartitionProduceResponse:
    partition = state.partition(topic, data.index)
    if partition is None:
        return _refused(data.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assignment = topic.partitions[data.index]
    if request.acks not in _ACKS:
        return _refused(data.index, ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.is_internal:
        return _refused(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION, "Clients do not write to internal topics")
    if assignment.leader != context.broker_id:
        leaders.add(assignment.leader)
        current = LeaderIdAndEpoch(leader_id=assignment.leader, leader_epoch=assignment.leader_epoch)
        return _refused(data.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=current)
    if request.acks == -1 and len(assignment.replicas) < partition.settings.min_insync_replicas:
        return _refused(data.index, ErrorCode.NOT_ENOUGH_REPLICAS)
    if request.transactional_id is not None:
        return _refused(data.index, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    appended = state.turn.append(partition, data.records or b"", room)
    if appended.error:
        return changed(
            _refused(data.index, appended.error, appended.message),
            record_errors=tuple(
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=appended.message)
                for index in appended.refused_records
            ),
        )
    return PartitionProduceResponse(
        index=data.index,
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
