"""Requests of members that speak the classic protocol in a consumer group (mixed groups, KIP-848).

    JoinGroup   the member as it is now ──► group epoch ──► target ──► reconciliation ──► its generation, at once
    SyncGroup   the partitions that it may use
    Heartbeat   27 if it must join again to get further (H13), else 0; may be held until then

There is no join phase and no leader, and no member waits for another: each member moves to the target separately, like
the members of the consumer protocol (consumer/heartbeat.py). Its generation is its member epoch. A JoinGroup says which
partitions the member still uses, and so acknowledges the ones it gave up: an eager member uses none at that time; a
cooperative member gives up the partitions that its SyncGroup response lacks, and joins again.

A member has its rebalance timeout to join after a 27, to sync after a join, and to give partitions up. A member that
takes longer is removed, because others may wait for its partitions. (In Kafka a member may join again and again without
giving anything up.) Its session timeout is the one in its JoinGroup.

A static member takes over its former place, whichever protocol it spoke before. If it was the group's last member of
the consumer protocol, the group becomes a classic one (conversion.py).

Source: GroupMetadataManager.classicGroupJoinToConsumerGroup and its neighbours; rows J35, H13, N18, O13.
"""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.classic.checks import LONGEST_NAME, check_join, is_operators, operators_reason
from kohort.coordinator.classic.protocols import Protocols
from kohort.coordinator.classic.responses import join_error, sync_error
from kohort.coordinator.consumer.classic_fields import classic_value, is_classic, protocols_of
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.leave import Departures
from kohort.coordinator.consumer.members import Members
from kohort.coordinator.consumer.reconciliation import Reconciliation
from kohort.coordinator.consumer.soft_state import JOIN, SYNC
from kohort.coordinator.events import GroupRequested, Millis, Reply
from kohort.coordinator.member_bytes import MEMBER_BYTES, PROTOCOL_BYTES, text_bytes
from kohort.coordinator.migration.classic_side import (
    assignment_for,
    joint_bytes,
    joint_protocols,
    must_rejoin,
    owned_in,
)
from kohort.coordinator.migration.conversion import Conversions
from kohort.wire.embedded import CONSUMER_PROTOCOL, subscription_of
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse


class MixedGroups:
    """Takes the requests of the classic protocol for consumer groups with members."""

    def __init__(self, config: Config, members: Members, departures: Departures, conversions: Conversions) -> None:
        self._config = config
        self._members = members
        self._departures = departures
        self._conversions = conversions
        self._consumers = members.consumers
        self._holds = members.holds
        self._running = members.consumers.running

    def group(self, request: object) -> ConsumerGroup | None:
        """The consumer group with members that the request is for."""
        group = self._consumers.groups.get(getattr(request, "group_id", ""))
        return group if group is not None and group.members else None

    # -- JoinGroup

    def join(self, group: ConsumerGroup, event: GroupRequested, now: Millis) -> None:
        request: JoinGroupRequest = event.body
        protocols: Protocols = tuple((p.name, p.metadata) for p in request.protocols)
        subscription = subscription_of(protocols[0][1]) if protocols else None
        former_id = _former(group, request)
        wrong = check_join(request, self._config)
        if wrong:
            return self._reply(event, join_error(wrong, event.version, request.member_id))
        error = self._check_join(group, request, protocols, former_id)
        if error:
            return self._reply(event, join_error(error, event.version, ""))
        prefix = request.group_instance_id or event.client.client_id[:LONGEST_NAME]
        member_id = request.member_id or f"{prefix}-{event.nonce}"
        if not request.member_id and request.group_instance_id is None and event.version >= 4:
            # The id is not remembered: a request with an unknown id is from a new member.
            return self._reply(event, join_error(ErrorCode.MEMBER_ID_REQUIRED, event.version, member_id))
        error = _check_static(group, request, former_id)
        if not error and subscription is None:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            if not self._running.deviations.unreadable_join:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
        if error or subscription is None:
            return self._reply(event, join_error(error, event.version, ""))
        if former_id is None and request.member_id and subscription.owned_partitions:
            # The member was removed and does not know. Others own its partitions, so it may not commit as a new member.
            return self._reply(event, join_error(ErrorCode.UNKNOWN_MEMBER_ID, event.version, ""))
        former = group.members.get(former_id or "")
        value = _value(event, subscription, protocols, former)
        was_consumer = former is not None and not is_classic(former)
        if was_consumer and self._conversions.downgrade_for(group, former_id or "", member_id, value, event, now):
            return None
        return self._admit(group, former_id, member_id, value, event, subscription, now)

    def _admit(
        self,
        group: ConsumerGroup,
        former_id: str | None,
        member_id: str,
        value: ConsumerGroupMemberMetadataValue,
        event: GroupRequested,
        subscription: ConsumerProtocolSubscription,
        now: Millis,
    ) -> None:
        if former_id == member_id:
            self._holds.release(group, self._consumers.of(group).member(member_id), now)
        if former_id is not None and (former_id != member_id or not is_classic(group.members[former_id])):
            self._members.take_over(group, former_id, member_id)
        self._members.update(group, member_id, value, now)
        self._members.targets.heartbeat(group, now)
        owned = owned_in(subscription, self._consumers.topics)
        state = self._members.reconcile(group, member_id, now, owned, changed=True)
        self._running.deadlines.clear((JOIN, group.group_id, member_id))
        self._running.deadlines.set((SYNC, group.group_id, member_id), now + value.rebalance_timeout_ms)
        self._members.arm_session(group, member_id, now)
        response = JoinGroupResponse(
            error_code=0,
            generation_id=state.member_epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocols_of(value)[0][0],
            leader="",
            member_id=member_id,
            members=(),
        )
        self._reply(event, response)
        self._members.wake(group, now)

    def _check_join(
        self, group: ConsumerGroup, request: JoinGroupRequest, protocols: Protocols, former_id: str | None
    ) -> int:
        former = group.members.get(former_id or "")
        is_member = former is not None and is_classic(former)
        if self._config.group_consumer_migration_policy == "disabled" and not is_member:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if former_id is None and len(group.members) >= self._config.group_consumer_max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if request.protocol_type != CONSUMER_PROTOCOL:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        # The member's former protocols count too: assignors are changed in two steps, as in a classic group (J10).
        if not protocols or not joint_protocols(group, None, protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        size = joint_bytes(group, former, protocols)
        more = size - group.classic_bytes
        if former is None:
            more += MEMBER_BYTES + PROTOCOL_BYTES * len(protocols) + text_bytes(request.group_instance_id)
        if size > self._config.group_max_bytes or not self._running.member_bytes.has_room(more):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.UNKNOWN_MEMBER_ID if len(request.member_id) > LONGEST_NAME else ErrorCode.NONE

    # -- SyncGroup

    def sync(self, group: ConsumerGroup, event: GroupRequested, now: Millis) -> None:
        request: SyncGroupRequest = event.body
        error = _check_sync(group, request, event.version)
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._members.arm_session(group, request.member_id, now)
            self._members.expect_join(group, request.member_id, now)
        if error:
            return self._reply(event, sync_error(error))
        self._running.deadlines.clear((SYNC, group.group_id, request.member_id))
        self._members.arm_session(group, request.member_id, now)
        _, metadata = protocols_of(group.members[request.member_id])[0]
        assigned = group.state_of(request.member_id).assigned
        response = SyncGroupResponse(
            error_code=0,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_for(assigned, self._consumers.topics, metadata),
        )
        return self._reply(event, response)

    # -- Heartbeat

    def heartbeat(self, group: ConsumerGroup, event: GroupRequested, now: Millis) -> None:
        request: HeartbeatRequest = event.body
        member_id = request.member_id
        error = _check_member(group, member_id, request.group_instance_id)
        if not error and request.generation_id != group.state_of(member_id).member_epoch:
            error = ErrorCode.ILLEGAL_GENERATION
        if not error:
            self._members.arm_session(group, member_id, now)
            if must_rejoin(group, member_id):
                self._members.expect_join(group, member_id, now)
                error = ErrorCode.REBALANCE_IN_PROGRESS
            elif (SYNC, group.group_id, member_id) not in self._running.deadlines:
                member = self._consumers.of(group).member(member_id)
                self._holds.release(group, member, now)
                hold_ms = self._holds.time_for_classic(group, member, now, event.hold_ms)
                if hold_ms > 0:
                    return self._holds.hold(group, member, event.request_id, now + hold_ms)
        return self._reply(event, HeartbeatResponse(error_code=error))

    # -- LeaveGroup

    def leave(self, group: ConsumerGroup, event: GroupRequested, now: Millis) -> None:
        """Members of either protocol: an operator's tool removes members of the consumer protocol by it, too."""
        request: LeaveGroupRequest = event.body
        identities = request.members if event.version >= 3 else (MemberIdentity(member_id=request.member_id),)
        leaving: dict[str, MemberIdentity] = {}
        members = tuple(_leaver(group, identity, leaving) for identity in identities)
        for member_id, identity in leaving.items():
            self._holds.refuse(group.group_id, member_id, ErrorCode.UNKNOWN_MEMBER_ID, None)
            by_operator = is_operators(identity)
            why = operators_reason(identity) if by_operator else identity.reason or ""
            self._consumers.note(group, "member removed" if by_operator else "member left", why, member_id)
            self._members.targets.departs(group, member_id, now, is_dead=False)
        if leaving:
            self._departures.remove(group, tuple(leaving), now, f"{len(leaving)} left")
        if event.version >= 3:
            response = LeaveGroupResponse(error_code=0, members=members)
        else:
            response = LeaveGroupResponse(error_code=members[0].error_code)
        self._reply(event, response)
        self._members.wake(group, now)

    def _reply(self, event: GroupRequested, body: object) -> None:
        self._running.out.replies.append(Reply(event.request_id, body))


def _leaver(group: ConsumerGroup, identity: MemberIdentity, leaving: dict[str, MemberIdentity]) -> MemberResponse:
    """The response for one member; a member that does leave is added to `leaving`."""
    instance = identity.group_instance_id
    member_id = identity.member_id
    if not member_id and instance is not None:
        member_id = group.instances.get(instance, "")  # an operator removes a static member (L4)
    error = _check_identity(group, member_id, instance)
    if not error:
        leaving[member_id] = identity
    return MemberResponse(member_id=identity.member_id, group_instance_id=instance, error_code=error)


def _former(group: ConsumerGroup, request: JoinGroupRequest) -> str | None:
    """The member id that the joining member had so far."""
    if request.group_instance_id is not None:
        return group.instances.get(request.group_instance_id)
    return request.member_id if request.member_id in group.members else None


def _check_static(group: ConsumerGroup, request: JoinGroupRequest, former_id: str | None) -> int:
    """A static member without a member id is new, or takes over; with one it must be the present member (J7)."""
    if request.group_instance_id is None or not request.member_id:
        return ErrorCode.NONE
    if former_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if former_id == request.member_id else ErrorCode.FENCED_INSTANCE_ID


def _check_identity(group: ConsumerGroup, member_id: str, instance_id: str | None) -> int:
    """25 for an unknown member, 82 if another member has the instance id."""
    if instance_id is not None:
        holder = group.instances.get(instance_id)
        if holder is not None and holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _check_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> int:
    """The same, and 25 for a member of the consumer protocol."""
    error = _check_identity(group, member_id, instance_id)
    return error or (ErrorCode.NONE if is_classic(group.members[member_id]) else ErrorCode.UNKNOWN_MEMBER_ID)


def _check_sync(group: ConsumerGroup, request: SyncGroupRequest, version: int) -> int:
    if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    error = _check_member(group, request.member_id, request.group_instance_id)
    if error:
        return error
    state = group.state_of(request.member_id)
    if request.generation_id != state.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    name, _ = protocols_of(group.members[request.member_id])[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # A member that has to give up partitions is behind the target, and learns here which.
    behind = state.member_epoch < group.assignment_epoch and state.state is not Reconciliation.UNREVOKED_PARTITIONS
    return ErrorCode.REBALANCE_IN_PROGRESS if behind else ErrorCode.NONE


def _value(
    event: GroupRequested,
    subscription: ConsumerProtocolSubscription,
    protocols: Protocols,
    former: ConsumerGroupMemberMetadataValue | None,
) -> ConsumerGroupMemberMetadataValue:
    request: JoinGroupRequest = event.body
    instance_id = request.group_instance_id
    if instance_id is None and former is not None:
        instance_id = former.instance_id  # JoinGroup has no instance id below version 5
    timeout = request.rebalance_timeout_ms
    if event.version == 0 or timeout < 0:
        timeout = request.session_timeout_ms
    return classic_value(instance_id, event.client, subscription, protocols, request.session_timeout_ms, timeout)
