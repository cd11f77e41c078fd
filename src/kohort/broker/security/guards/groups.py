"""The guards of the APIs of groups, and of FindCoordinator."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from kohort.broker.authorization import GROUP_OPERATIONS, NOT_ASKED, Operation, Resource
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, ROWS
from kohort.broker.security.guards.ask import (
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    Ask,
    Guard,
    Narrowed,
    Refused,
    Verdict,
    denied_names,
)
from kohort.coordinator.classic.responses import heartbeat_error, join_error, undescribed
from kohort.coordinator.consumer.responses import undescribed_consumer_group
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.leave_group import LeaveGroupResponse
from kohort.wire.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse

_O, _R = Operation, Resource
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
OF_GROUP, OF_TRANSACTION, OF_SHARES = 0, 1, 2
"""FindCoordinator's key types."""
MANY_KEYS = 4
"""The first version of FindCoordinator that names several keys."""


# -- members


def _of_member(answer: Callable[[Ask], Any]) -> Guard:
    """For requests of a member, which are about one group."""

    def guard(ask: Ask, request: Any) -> Verdict:
        return None if ask.may(READ, GROUP, request.group_id) else Refused(answer(ask))

    return guard


join_group = _of_member(lambda ask: join_error(DENIED, ask.version, ""))
sync_group = _of_member(lambda ask: SyncGroupResponse(error_code=DENIED, assignment=b""))
heartbeat = _of_member(lambda ask: HeartbeatResponse(error_code=DENIED))
leave_group = _of_member(lambda ask: LeaveGroupResponse(error_code=DENIED))


def consumer_group_heartbeat(
    ask: Ask, request: ConsumerGroupHeartbeatRequest
) -> Verdict | Generator[int, None, Verdict]:
    if not ask.may(READ, GROUP, request.group_id):
        return Refused(heartbeat_error(DENIED, DENIED.message))
    if request.subscribed_topic_regex and not ask.may_all(DESCRIBE, TOPIC):
        # The pattern is matched for the group, not for the member: it could tell names that the member may not know.
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return Refused(heartbeat_error(error, "A subscription by pattern needs DESCRIBE of all topics"))
    return _subscribed(ask, request.subscribed_topic_names) if request.subscribed_topic_names else None


def _subscribed(ask: Ask, names: tuple[str, ...]) -> Generator[int, None, Verdict]:
    denied = yield from denied_names(ask, names, DESCRIBE, TOPIC)
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return Refused(heartbeat_error(error, error.message)) if denied else None


# -- descriptions


def describe_groups(ask: Ask, request: DescribeGroupsRequest) -> Generator[int, None, Verdict]:
    """A group's explanation and stories name topics: they are for those who may describe the cluster."""
    denied = yield from denied_names(ask, request.groups, DESCRIBE, GROUP)
    tells = request.explain_last < 0 or ask.sees_cluster(DESCRIBE)
    if not denied and tells and not request.include_authorized_operations:
        return None
    narrowed = changed(
        request,
        groups=tuple(name for name in request.groups if name not in denied),
        explain_last=request.explain_last if tells else -1,
    )
    refused = [
        undescribed(DENIED, name, message=DENIED.message) for name in dict.fromkeys(request.groups) if name in denied
    ]
    return Narrowed(narrowed, partial(_described, ask, denied, refused))


def _described(
    ask: Ask, denied: set[str], refused: list[Any], answer: DescribeGroupsResponse
) -> Generator[int, None, DescribeGroupsResponse]:
    tells = ask.sees_cluster(DESCRIBE)
    groups = []
    for group in answer.groups:
        if group.group_id in denied:
            continue
        if not tells:
            group = changed(group, explanation=b"", stories=())
        groups.append(with_operations(ask, group))
        yield ROW_BYTES
    return changed(answer, groups=(*groups, *refused))


def with_operations(ask: Ask, group: Any) -> Any:
    if group.authorized_operations == NOT_ASKED:
        return group
    return changed(group, authorized_operations=ask.operations(GROUP, group.group_id, GROUP_OPERATIONS))


def consumer_group_describe(ask: Ask, request: ConsumerGroupDescribeRequest) -> Generator[int, None, Verdict]:
    denied = yield from denied_names(ask, request.group_ids, DESCRIBE, GROUP)
    kept = tuple(name for name in request.group_ids if name not in denied)
    refused = [undescribed_consumer_group(DENIED, name) for name in dict.fromkeys(request.group_ids) if name in denied]
    return Narrowed(changed(request, group_ids=kept), partial(_described_consumers, ask, denied, refused))


def _described_consumers(
    ask: Ask, denied: set[str], refused: list[Any], answer: ConsumerGroupDescribeResponse
) -> Generator[int, None, ConsumerGroupDescribeResponse]:
    groups = []
    for group in answer.groups:
        if group.group_id not in denied:
            seen = yield from _sees_topics(ask, group)
            groups.append(with_operations(ask, group) if seen else _hidden(group))
    return changed(answer, groups=(*groups, *refused))


def _sees_topics(ask: Ask, group: DescribedConsumerGroup) -> Generator[int, None, bool]:
    """Whether it may describe each topic that is assigned, or will be, to a member."""
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                if not ask.may(DESCRIBE, TOPIC, topic.topic_name):
                    return False
        yield ROW_BYTES
    return True


def _hidden(group: DescribedConsumerGroup) -> DescribedConsumerGroup:
    message = "The group has described topic(s) that the client is not authorized to describe."
    return undescribed_consumer_group(ErrorCode.TOPIC_AUTHORIZATION_FAILED, group.group_id, message)


def list_groups(ask: Ask, request: ListGroupsRequest) -> Verdict:
    if ask.sees_cluster(DESCRIBE):
        return None
    return Narrowed(request, partial(_listed, ask))


def _listed(ask: Ask, answer: ListGroupsResponse) -> Generator[int, None, ListGroupsResponse]:
    groups = []
    for at, group in enumerate(answer.groups, 1):
        if ask.sees(DESCRIBE, GROUP, group.group_id):
            groups.append(group)
        if at % ROWS == 0:
            yield 0
    return changed(answer, groups=tuple(groups))


# -- deletions


def delete_groups(ask: Ask, request: DeleteGroupsRequest) -> Generator[int, None, Verdict]:
    denied = yield from denied_names(ask, request.groups_names, _O.DELETE, GROUP)
    if not denied:
        return None
    refused = [
        DeletableGroupResult(group_id=name, error_code=DENIED)
        for name in dict.fromkeys(request.groups_names)
        if name in denied
    ]
    kept = tuple(name for name in request.groups_names if name not in denied)
    return Narrowed(changed(request, groups_names=kept), partial(_deleted, denied, refused))


def _deleted(denied: set[str], refused: list[Any], answer: DeleteGroupsResponse) -> DeleteGroupsResponse:
    kept = [result for result in answer.results if result.group_id not in denied]
    return changed(answer, results=(*kept, *refused))


# -- coordinators


def find_coordinator(ask: Ask, request: FindCoordinatorRequest) -> Verdict | Generator[int, None, Verdict]:
    of_type = {
        OF_GROUP: (GROUP, DENIED),
        OF_TRANSACTION: (_R.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    }
    if request.key_type == OF_SHARES and ask.state.shares.is_served:
        if ask.may_cluster(_O.CLUSTER_ACTION):
            return None
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        keys = request.coordinator_keys if ask.version >= MANY_KEYS else ()
        none = [
            Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=error.message) for key in keys
        ]
        return Refused(FindCoordinatorResponse(error_code=error, node_id=-1, port=-1, coordinators=tuple(none)))
    if request.key_type not in of_type:
        return None  # there are no such coordinators
    resource, error = of_type[request.key_type]
    if ask.version >= MANY_KEYS:
        return _coordinators(ask, request, resource, error)
    if ask.may(DESCRIBE, resource, request.key):
        return None
    return Refused(FindCoordinatorResponse(error_code=error, error_message=error.message, node_id=-1, port=-1))


def _coordinators(
    ask: Ask, request: FindCoordinatorRequest, resource: Resource, error: ErrorCode
) -> Generator[int, None, Verdict]:
    denied = yield from denied_names(ask, request.coordinator_keys, DESCRIBE, resource)
    if not denied:
        return None
    refused = [
        Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=error.message)
        for key in dict.fromkeys(request.coordinator_keys)
        if key in denied
    ]
    kept = tuple(key for key in request.coordinator_keys if key not in denied)
    return Narrowed(changed(request, coordinator_keys=kept), partial(_found, denied, refused))


def _found(denied: set[str], refused: list[Any], answer: FindCoordinatorResponse) -> FindCoordinatorResponse:
    kept = [one for one in answer.coordinators if one.key not in denied]
    return changed(answer, coordinators=(*kept, *refused))
