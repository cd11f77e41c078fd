"""A client with a principal of its own, and the administrator who gives it a right and takes it away again.

The guest is a member of a group: it joins, sends heartbeats and commits. Once the administrator has the answer to a
revocation, everything that the guest sends must be refused, until the administrator sends the request that gives the
right back. Answers from caches, and crashes in between, make no difference.
"""

from __future__ import annotations

from typing import Any

from kohort.broker.authorization import ANONYMOUS, Operation, Principal, Resource
from kohort.simulator.actors.offsets import commit_request
from kohort.simulator.actors.workload import Asking
from kohort.simulator.world.network import Link
from kohort.simulator.world.world import Millis, Violation
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GUEST = Principal("guest")
GROUP = "guests"
DENY, ALLOW = 2, 3
LITERAL = 3
BEATS = 4
"""Heartbeats and commits in one go: the later ones are answered from a cache."""


UNSURE_MS = 5_000
"""A request of a connection that was cut may still arrive; so long afterwards no revocation counts."""


class Guest(Asking):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._unsure_until: Millis = 0
        self._administrator: Link | None = None
        self._revoked = False
        """The administrator knows that the right is gone."""
        self._revocations = 0
        """Counts changes of the right."""
        self._given = 0
        """The last change that gave it. What was sent before may be handled after it."""
        self._member = ("", -1)
        self._offset = 0

    def act(self, link: Link) -> None:
        link = self.at_coordinator(link, GROUP)
        choice = self.random.random()
        if choice < 0.15:
            self._revoke()
        elif choice < 0.3:
            self._give()
        elif not self._member[0]:
            self._join(link)
        else:
            self._work(link)

    # -- the administrator

    def _administrate(self) -> Link:
        if self._administrator is None or not self._administrator.open:
            if self._administrator is not None:
                self._doubt()
            self._administrator = self.connect(self.any_broker(), ANONYMOUS)
        return self._administrator

    def _doubt(self) -> None:
        """The connection is gone: its last requests may count, or not, and later than those of the next one."""
        self._revoked = False
        self._unsure_until = self.world.now + UNSURE_MS

    def _revoke(self) -> None:
        self._revocations += 1
        self.tell("loses its right")
        self._administrate().ask(
            CreateAclsRequest(creations=(_acl(DENY),)), 3, ("revoked", (self._revocations, self.world.now))
        )

    def _give(self) -> None:
        """From here on the guest may succeed, and an answer to an earlier revocation says nothing any more."""
        self._revoked = False
        self._revocations += 1
        self._given = self._revocations
        self.tell("gets its right")
        link = self._administrate()
        link.ask(CreateAclsRequest(creations=(_acl(ALLOW), _acl(ALLOW, Resource.TOPIC, "orders"))), 3, ("given", None))
        denied = DeleteAclsFilter(
            resource_type_filter=Resource.GROUP,
            resource_name_filter=GROUP,
            principal_filter=str(GUEST),
            host_filter=None,
            operation=Operation.READ,
            permission_type=DENY,
        )
        link.ask(DeleteAclsRequest(filters=(denied,)), 3, ("given", None))

    # -- the guest

    def _join(self, link: Link) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            member_id="",
            protocol_type="guest",
            protocols=(JoinGroupRequestProtocol(name="any", metadata=b""),),
        )
        link.ask(request, 3, ("join", self._revoked and self._revocations))

    def _work(self, link: Link) -> None:
        member, generation = self._member
        mine = SyncGroupRequestAssignment(member_id=member, assignment=b"all")
        sync = SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id=member, assignments=(mine,))
        link.ask(sync, 3, ("sync", self._revoked and self._revocations))
        for _ in range(BEATS):
            beat = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member)
            link.ask(beat, 3, ("heartbeat", self._revoked and self._revocations))
            self._offset += 1
            commit = commit_request(GROUP, generation, member, None, {("orders", 0): self._offset})
            link.ask(commit, 7, ("commit", self._revoked and self._revocations))

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        if tag is None:
            return
        what, detail = tag
        if what == "revoked":
            done = all(result.error_code == ErrorCode.NONE for result in response.results)
            number, sent_at = detail
            self._revoked |= done and number == self._revocations and sent_at >= self._unsure_until
            return
        if what == "given":
            return
        error = _error(response)
        if detail and detail > self._given and error == ErrorCode.NONE:
            raise Violation("revoked", f"the {what} of {GUEST} succeeded after its right was gone")
        if what == "join" and error == ErrorCode.NONE:
            self._member = (response.member_id, response.generation_id)
        elif what != "commit" and error not in (ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            self._member = ("", -1)

    def on_cut(self, link: Link) -> None:
        if link is self._administrator:
            self._administrator = None
            self._doubt()
        super().on_cut(link)

    def end(self) -> None:
        if self._administrator is not None:
            self._administrator.close()
            self._administrator = None
        super().end()

    def connect(self, broker_id: int, principal: Principal = GUEST) -> Link:
        return super().connect(broker_id, principal)


def _acl(permission: int, resource: Resource = Resource.GROUP, name: str = GROUP) -> AclCreation:
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal=str(GUEST),
        host="*",
        operation=Operation.READ,
        permission_type=permission,
    )


def _error(response: Any) -> int:
    if not hasattr(response, "topics"):
        return int(response.error_code)
    return max(int(partition.error_code) for topic in response.topics for partition in topic.partitions)
