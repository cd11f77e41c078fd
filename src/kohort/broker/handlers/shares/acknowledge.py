"""ShareAcknowledge: finishes records, gives them back, renews their locks. The turn's commit makes that durable."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.handlers.shares.requests import STEP, acknowledge, check_names, end_of, session_of
from kohort.broker.request import ROW_BYTES, InSteps, RequestContext
from kohort.broker.shares.sessions import CLOSES, Session
from kohort.broker.state import BrokerState
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def share_acknowledge(state: BrokerState, request: ShareAcknowledgeRequest, context: RequestContext) -> Any:
    if not state.shares.is_served:
        return ShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if wrong := check_names(request.group_id, request.member_id):
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=wrong)
    session = session_of(state, request, context)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session, error_message=session.message)
    steps = _steps(state, request, context, session)
    ends = len(session.partitions) if request.share_session_epoch == CLOSES else 0
    if max(ends, sum(len(topic.partitions) for topic in request.topics)) > STEP:
        return InSteps(steps)
    return _last(steps)


def _last(steps: Generator[int, None, Any]) -> Any:
    """The result of steps that are few."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def _steps(
    state: BrokerState, request: ShareAcknowledgeRequest, context: RequestContext, session: Session
) -> Generator[int, None, ShareAcknowledgeResponse]:
    assert request.group_id is not None
    assert request.member_id is not None
    leaders = CurrentLeaders(state, context.listener)
    names = request.group_id, request.member_id
    topics = []
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            place = topic.topic_id, partition.partition_index
            batches = partition.acknowledgement_batches
            acked = acknowledge(state, context, names, place, batches, leaders, renews=request.is_renew_ack)
            rows.append(
                PartitionData(
                    partition_index=partition.partition_index,
                    error_code=acked.error,
                    error_message=acked.error.message if acked.error else None,
                    current_leader=LeaderIdAndEpoch(
                        leader_id=acked.leader.leader_id, leader_epoch=acked.leader.leader_epoch
                    ),
                )
            )
            if len(rows) % STEP == 0:
                yield STEP * ROW_BYTES
        topics.append(ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=tuple(rows)))
        yield ROW_BYTES
    yield from end_of(state, session, request.share_session_epoch)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=state.shares.settings_of(request.group_id).lock_ms,
        responses=tuple(topics),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in leaders.nodes()
        ),
    )
