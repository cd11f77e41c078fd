"""The APIs of consumer groups (KIP-848). The shard that owns a group decides."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import UUID

from kohort.broker.authorization import GROUP_OPERATIONS, NOT_ASKED
from kohort.broker.handlers.groups import ask_shard
from kohort.broker.messages import changed
from kohort.broker.request import STEP_BYTES, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import not_too_often
from kohort.coordinator.classic.responses import heartbeat_error
from kohort.coordinator.consumer.responses import undescribed_consumer_group
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def heartbeat(state: BrokerState, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if error := _refusal(state, shard, context):
        return heartbeat_error(error)
    state.groups.tell_topics()
    nonce = "" if request.member_id else str(UUID(bytes=state.random.randbytes(16), version=4))
    return ask_shard(state, shard, request, context, nonce, hold_ms(state, more_behind=context.more_behind))


def _refusal(state: BrokerState, shard: int, context: RequestContext) -> ErrorCode:
    """Why this broker does not serve the consumer groups of a shard; NONE if it does."""
    if not state.serves_consumer_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE if state.coordinator_of(shard) == context.broker_id else ErrorCode.NOT_COORDINATOR


def hold_ms(state: BrokerState, *, more_behind: bool) -> int:
    """How long the answer to a heartbeat may be held; 0 when another request waits behind it already."""
    config = state.config
    may_hold = config.group_heartbeat_hold_enable and not more_behind
    return config.group_consumer_heartbeat_hold_max_ms if may_hold else 0


@in_steps
def describe(
    state: BrokerState, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Generator[int, None, ConsumerGroupDescribeResponse]:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    described: list[DescribedConsumerGroup] = []
    for group_id in not_too_often(request.group_ids):
        shard = state.shard_of(group_id)
        if error := _refusal(state, shard, context):
            group = undescribed_consumer_group(error, group_id)
        else:
            group = yield from state.shards[shard].describe_consumer_group(group_id)
        described.append(group if group.error_code else changed(group, authorized_operations=operations))
        yield STEP_BYTES
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=tuple(described))
