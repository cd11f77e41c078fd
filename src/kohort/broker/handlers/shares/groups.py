"""ShareGroupHeartbeat and ShareGroupDescribe. The shard that owns a group decides."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kohort.broker.authorization import GROUP_OPERATIONS, NOT_ASKED
from kohort.broker.handlers.groups import ask_shard
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, STEP_BYTES, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import not_too_often
from kohort.coordinator.share_groups.responses import share_heartbeat_error, undescribed_share_group
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest


def heartbeat(state: BrokerState, request: ShareGroupHeartbeatRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if error := refusal(state, shard, context):
        return share_heartbeat_error(error)
    state.groups.tell_topics()
    return ask_shard(state, shard, request, context)


def refusal(state: BrokerState, shard: int, context: RequestContext) -> ErrorCode:
    """Why this broker does not serve the share groups of a shard; NONE if it does."""
    if not state.shares.is_served:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE if state.coordinator_of(shard) == context.broker_id else ErrorCode.NOT_COORDINATOR


@in_steps
def describe(
    state: BrokerState, request: ShareGroupDescribeRequest, context: RequestContext
) -> Generator[int, None, ShareGroupDescribeResponse]:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    described: list[DescribedGroup] = []
    for group_id in not_too_often(request.group_ids):
        shard = state.shard_of(group_id)
        if error := refusal(state, shard, context):
            group = undescribed_share_group(error, group_id)
        else:
            group = state.shards[shard].describe_share_group(group_id)
        described.append(group if group.error_code else changed(group, authorized_operations=operations))
        yield STEP_BYTES + ROW_BYTES * len(group.members)
    return ShareGroupDescribeResponse(groups=tuple(described))
