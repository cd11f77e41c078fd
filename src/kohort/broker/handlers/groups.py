"""The APIs of groups. The shard that owns a group decides; here requests find their shard, and answers are gathered.

Only the broker that leads a shard's partition of `__consumer_offsets` answers for it; the others say NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import UUID

from kohort.broker.authorization import GROUP_OPERATIONS, NOT_ASKED
from kohort.broker.change_log import tell_change
from kohort.broker.journal.explanations import Explaining
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, STEP_BYTES, InShard, InSteps, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import not_too_often
from kohort.coordinator.classic.responses import join_error, undescribed
from kohort.coordinator.events import GroupOffsetsDeleted, GroupRequested, ShareStatesDeleted
from kohort.coordinator.offsets.offsets import DELETED
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kohort.wire.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

LEAVING_MEMBERS = 500
"""Members that leave in one step. Each step may write the whole group."""


def join_group(state: BrokerState, request: JoinGroupRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if state.coordinator_of(shard) != context.broker_id:
        return join_error(ErrorCode.NOT_COORDINATOR, context.api_version, request.member_id)
    nonce = str(UUID(bytes=state.random.randbytes(16), version=4))
    return ask_shard(state, shard, request, context, nonce)


def sync_group(state: BrokerState, request: SyncGroupRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if state.coordinator_of(shard) != context.broker_id:
        return SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, assignment=b"")
    return ask_shard(state, shard, request, context)


def heartbeat(state: BrokerState, request: HeartbeatRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if state.coordinator_of(shard) != context.broker_id:
        return HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    # Nothing may queue behind a held answer: commits travel on the same connection.
    may_hold = context.client.software_name in state.held_clients and not context.more_behind
    hold_ms = state.config.group_heartbeat_hold_max_ms if may_hold else 0
    return ask_shard(state, shard, request, context, hold_ms=hold_ms)


def leave_group(state: BrokerState, request: LeaveGroupRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if state.coordinator_of(shard) != context.broker_id:
        return LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    if len(request.members) > LEAVING_MEMBERS:
        return InSteps(_leave_in_steps(state, shard, request, context))
    return ask_shard(state, shard, request, context)


def _leave_in_steps(
    state: BrokerState, shard: int, request: LeaveGroupRequest, context: RequestContext
) -> Generator[int, None, LeaveGroupResponse]:
    members: list[MemberResponse] = []
    for first in range(0, len(request.members), LEAVING_MEMBERS):
        part = changed(request, members=request.members[first : first + LEAVING_MEMBERS])
        response = ask_shard(state, shard, part, context)
        if response.error_code:
            return LeaveGroupResponse(error_code=response.error_code)
        members.extend(response.members)
        yield LEAVING_MEMBERS * ROW_BYTES
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=tuple(members))


def ask_shard(
    state: BrokerState, shard: int, body: Any, context: RequestContext, nonce: str = "", hold_ms: int = 0
) -> Any:
    """The shard's response, or InShard when it parked the request."""
    event = GroupRequested(context.request_id, context.api_version, context.client, body, nonce, hold_ms)
    response = state.ask(shard, event, awaited=context.request_id)
    return InShard(shard) if response is None else response


@in_steps
def describe_groups(
    state: BrokerState, request: DescribeGroupsRequest, context: RequestContext
) -> Generator[int, None, DescribeGroupsResponse]:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    explains = request.explain_last >= 0 and state.config.deviations.extensions
    explaining = Explaining(state, request.explain_last) if explains else None
    described: list[DescribedGroup] = []
    for group_id in not_too_often(request.groups):
        shard = state.shard_of(group_id)
        if state.coordinator_of(shard) != context.broker_id:
            group = undescribed(ErrorCode.NOT_COORDINATOR, group_id)
        else:
            group = yield from state.shards[shard].describe(group_id, context.api_version)
            if operations != NOT_ASKED and not group.error_code:
                group = changed(group, authorized_operations=operations)
            if explaining is not None:
                group = explaining.explained(shard, group)
        described.append(group)
        yield STEP_BYTES + len(group.explanation) + sum(map(len, group.stories))
    return DescribeGroupsResponse(groups=tuple(described))


@in_steps
def list_groups(
    state: BrokerState, request: ListGroupsRequest, context: RequestContext
) -> Generator[int, None, ListGroupsResponse]:
    groups: list[Any] = []
    for index, shard in enumerate(state.shards):
        if state.coordinator_of(index) == context.broker_id:
            if shard.unavailable is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ListGroupsResponse(error_code=shard.unavailable, groups=())  # half a list would mislead (D8)
            found = shard.list_groups(request.states_filter, request.types_filter)
            groups.extend(found)
            yield ROW_BYTES * len(found)
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(groups))


@in_steps
def delete_groups(
    state: BrokerState, request: DeleteGroupsRequest, context: RequestContext
) -> Generator[int, None, DeleteGroupsResponse]:
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.groups_names):
        if results:
            yield ROW_BYTES
        shard = state.shard_of(group_id)
        if state.coordinator_of(shard) == context.broker_id:
            while state.shards[shard].shares.is_large(group_id):
                state.ask(shard, ShareStatesDeleted(group_id))
                yield 0
            committed = state.shards[shard].hard.offsets.get(group_id, {})
            count, held = len(committed), list(committed.items())[DELETED:]
            response = ask_shard(state, shard, DeleteGroupsRequest(groups_names=(group_id,)), context)
            results.extend(response.results)
            if not response.results[0].error_code:
                tell_change(state, context, "group deleted", group=group_id, offsets=count)
            # The group is deleted. Its other offsets follow in later steps; what is committed meanwhile stays.
            for first in range(0, 0 if response.results[0].error_code else len(held), DELETED):
                yield 0
                part = tuple(held[first : first + DELETED])
                state.ask(shard, GroupOffsetsDeleted(group_id, part, context.client))
        else:
            results.append(DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NOT_COORDINATOR))
    return DeleteGroupsResponse(results=tuple(results))
