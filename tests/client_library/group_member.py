"""A member of a classic group, driven by hand: joins alone, leads, and takes the partitions that the test says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kohort.client.wire.blocking_connection import Connection
from kohort.wire.codec import encode
from kohort.wire.schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentResponseTopicPartition,
    ConsumerProtocolSubscription,
)
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

MEMBER_ID_REQUIRED = 79


def coordinator_connection(bootstrap: str, group_id: str, client_id: str) -> Connection:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    with closing(Connection(host, int(port), client_id=client_id)) as with_any:
        found = with_any.request(FindCoordinatorRequest(coordinator_keys=(group_id,)), FindCoordinatorResponse)
    return Connection(found.coordinators[0].host, found.coordinators[0].port, client_id=client_id)


class GroupMember:
    """The only member of a group, until `leave`."""

    def __init__(self, bootstrap: str, group_id: str, assigned: Mapping[str, tuple[int, ...]]) -> None:
        self.group_id = group_id
        self._assigned = assigned
        self.connection = coordinator_connection(bootstrap, group_id, "by-hand")
        self.member_id = ""
        self.rejoin()

    def rejoin(self) -> None:
        """Join, and sync when all others have joined too. As a leader it assigns all partitions to itself."""
        assigned = self._assigned
        subscription = b"\x00\x03" + encode(ConsumerProtocolSubscription(topics=tuple(assigned)), 3)
        joined = self._join(self.member_id, subscription)
        if joined.error_code == MEMBER_ID_REQUIRED:
            joined = self._join(joined.member_id, subscription)
        assert joined.error_code == 0, joined
        self.member_id = joined.member_id
        assignment = ConsumerProtocolAssignment(
            assigned_partitions=tuple(
                ConsumerProtocolAssignmentResponseTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in assigned.items()
            )
        )
        self._sync(joined.generation_id, b"\x00\x03" + encode(assignment, 3))

    def _join(self, member_id: str, metadata: bytes) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
        )
        return self.connection.request(request, JoinGroupResponse)

    def _sync(self, generation_id: int, assignment: bytes) -> None:
        answer = self.connection.request(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=generation_id,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=(SyncGroupRequestAssignment(member_id=self.member_id, assignment=assignment),),
            ),
            SyncGroupResponse,
        )
        assert answer.error_code == 0, answer

    def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id)
        answer = self.connection.request(
            LeaveGroupRequest(group_id=self.group_id, members=(identity,)), LeaveGroupResponse
        )
        self.connection.close()
        assert answer.error_code == 0, answer
