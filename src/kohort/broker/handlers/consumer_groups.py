"""The APIs of consumer groups (KIP-848). The shard that owns a group decides."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kohort.broker.authorization import GROUP_OPERATIONS, NOT_ASKED
from kohort.broker.handlers.groups import ask_shard
from kohort.broker.messages import changed
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import not_too_often
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def heartbeat(state: BrokerState, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    error = ErrorCode.NONE
    if not state.serves_consumer_groups:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif state.coordinator_of(shard) != context.broker_id:
        error = ErrorCode.NOT_COORDINATOR
    if error:
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=error, member_epoch=0, heartbeat_interval_ms=0
        )
    state.groups.tell_topics()
    nonce = "" if request.member_id else str(UUID(bytes=state.random.randbytes(16), version=4))
    return ask_shard(state, shard, request, context, nonce, hold_ms(state, more_behind=context.more_behind))


def hold_ms(state: BrokerState, *, more_behind: bool) -> int:
    """How long the answer to a heartbeat may be held; 0 when another request waits behind it already."""
    config = state.config
    may_hold = config.group_heartbeat_hold_enable and not more_behind
    return config.group_consumer_heartbeat_hold_max_ms if may_hold else 0


def describe(
    state: BrokerState, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    described = []
    for group_id in not_too_often(request.group_ids):
        shard = state.shard_of(group_id)
        if not state.serves_consumer_groups:
            described.append(_refused(group_id, ErrorCode.UNSUPPORTED_VERSION))
            continue
        if state.coordinator_of(shard) != context.broker_id:
            described.append(_refused(group_id, ErrorCode.NOT_COORDINATOR))
            continue
        group = state.shards[shard].describe_consumer_group(group_id)
        described.append(group if group.error_code else changed(group, authorized_operations=operations))
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=tuple(described))


def _refused(group_id: str, error: ErrorCode) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=error,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
