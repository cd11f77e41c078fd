"""A member of a classic group, driven by the test: it joins alone, leads, and takes the named partitions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kohort.client.assignors import RANGE, subscription_bytes
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.embedded import assignment_bytes
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse


def coordinator_connection(bootstrap: str, group_id: str, client_id: str) -> Connection:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    with closing(Connection(host, int(port), client_id=client_id)) as with_any:
        found = with_any.request(FindCoordinatorRequest(coordinator_keys=(group_id,)), FindCoordinatorResponse)
    return Connection(found.coordinators[0].host, found.coordinators[0].port, client_id=client_id)


class GroupMember:
    """The only member of a group, until `leave`."""

    def __init__(
        self, bootstrap: str, group_id: str, assigned: Mapping[str, tuple[int, ...]], client_id: str = "by-hand"
    ) -> None:
        self.group_id = group_id
        self._assigned = assigned
        self.connection = coordinator_connection(bootstrap, group_id, client_id)
        self.member_id = ""
        self.rejoin()

    def rejoin(self, subscription: bytes | None = None) -> None:
        """Join, and sync when all others have joined too. As a leader it assigns all partitions to itself."""
        subscription = subscription_bytes(RANGE, self._assigned) if subscription is None else subscription
        joined = self._join(self.member_id, subscription)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self._join(joined.member_id, subscription)
        assert joined.error_code == 0, joined
        self.member_id = joined.member_id
        mine = SyncGroupRequestAssignment(
            member_id=self.member_id, assignment=assignment_bytes(self._assigned.items(), subscription)
        )
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(mine,),
        )
        answer = self.connection.request(request, SyncGroupResponse)
        assert answer.error_code == 0, answer

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

    def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id)
        answer = self.connection.request(
            LeaveGroupRequest(group_id=self.group_id, members=(identity,)), LeaveGroupResponse
        )
        self.connection.close()
        assert answer.error_code == 0, answer
