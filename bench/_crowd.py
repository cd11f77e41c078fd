"""Many members of groups in one thread: a connection each, as real clients have; one epoll serves them all.

Each member is a membership of kohort's client library, which needs no socket, with Kafka's defaults and the versions of
today's clients. It gives partitions up at once, without work. The server may hold the answers of heartbeats.
"""

from __future__ import annotations

import heapq
import math
import select
import socket
import time
import uuid
from collections import Counter
from contextlib import closing
from typing import Any

from bench._process import Address, answer_to
from kohort.client.membership import classic
from kohort.client.membership.consumer import Added, ConsumerMembership, ConsumerSettings, Revoke, Subscription
from kohort.client.membership.consumer import Lost as LostPartitions
from kohort.client.membership.consumer import Phase as ConsumerPhase
from kohort.client.membership.coordinator_requests import Ask, Ended, FindCoordinator
from kohort.client.membership.driver import ANSWERS, clock_ms
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.codec import decode, encode_request, supported_versions
from kohort.wire.framing import FrameSplitter
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
)

CLIENT_ID = "consumer-bench-1"
SUBSCRIPTION = b"\0\1\0\0\0\1\0\x06orders\xff\xff\xff\xff" + bytes(8)
ASSIGNMENT = b"\0\1\0\0\0\1\0\x06orders\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
ANSWER_MS = 600_000
"""A large group takes long, and requests are not sent again."""
LARGEST_ANSWER = 1 << 26
SETTLED = (classic.Phase.STABLE, ConsumerPhase.MEMBER)
DESCRIBE_S = 0.05
"""The interval of describing consumer groups, once the members seem to agree."""


class Member:
    def __init__(self, crowd: Crowd, membership: Any, connection: socket.socket) -> None:
        self.membership = membership
        self.connection = connection
        self.planned: float = math.inf
        """When it will be woken."""
        self._crowd = crowd
        self._frames = FrameSplitter(LARGEST_ANSWER)
        self._asked: type

    def readable(self) -> None:
        data = self.connection.recv(1_048_576)
        assert data, f"the server closed the connection of {self.membership.settings}"
        for frame in self._frames.feed(data):
            answer: Any = decode(ANSWERS[self._asked], supported_versions(self._asked).last, frame, 5)
            self.membership.received(int.from_bytes(frame[:4], "big"), answer, clock_ms())
        self.act()

    def act(self) -> None:
        """Carry out the membership's actions."""
        crowd, membership, now = self._crowd, self.membership, clock_ms()
        while actions := membership.take():
            for action in actions:
                match action:
                    case Ask(number, request):
                        self._asked = type(request)
                        version = supported_versions(self._asked).last
                        self.connection.sendall(encode_request(request, version, number, CLIENT_ID))
                    case FindCoordinator():  # the only server, at the end of the same connection
                        membership.coordinator_found(now)
                    case classic.Assign(generation_id, _, members):
                        assignments = dict.fromkeys((member.member_id for member in members), ASSIGNMENT)
                        membership.assign(generation_id, assignments, now)
                    case classic.LetGo():
                        membership.let_go(now)
                    case Added(_, partitions):
                        crowd.owned += len(partitions)
                    case Revoke(_, partitions):
                        crowd.owned -= len(partitions)
                        membership.revoked(now)
                    case LostPartitions() | Ended():
                        raise AssertionError(f"a member is removed: {action}")
        (crowd.unsettled.discard if membership.phase in SETTLED else crowd.unsettled.add)(self)
        crowd.plan(self)


class Crowd:
    """All members of a run. `software` is their name in ApiVersions; without a name they send no such request."""

    def __init__(self, address: Address, *, software: str = "") -> None:
        self.address = address
        self.software = software
        self.members: dict[int, Member] = {}
        self.unsettled: set[Member] = set()
        """Members of classic groups that are not stable; members of consumer groups that have not joined."""
        self.owned = 0
        """The number of partitions that members of consumer groups own."""
        self._due: list[tuple[float, int]] = []
        self._epoll = select.epoll()

    def membership(self, group: str) -> Any:
        raise NotImplementedError

    def join(self, group: str) -> None:
        connection = socket.create_connection(self.address, 30)
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.software:
            request = ApiVersionsRequest(client_software_name=self.software, client_software_version="1")
            answer_to(connection, encode_request(request, 3, 0, CLIENT_ID))
        member = Member(self, self.membership(group), connection)
        self.members[connection.fileno()] = member
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        member.membership.join(clock_ms())
        member.act()

    def join_all(self, groups: list[str]) -> None:
        """A member joins each group of the list; the answers that have arrived are served after every fifty."""
        for number, group in enumerate(groups, 1):
            self.join(group)
            if number % 50 == 0:
                self.serve(0)

    def plan(self, member: Member) -> None:
        due = member.membership.next_deadline()
        if due is not None and due < member.planned:
            member.planned = due
            heapq.heappush(self._due, (due, member.connection.fileno()))

    def settled(self) -> bool:
        raise NotImplementedError

    def settle(self, seconds: float) -> None:
        """Serve the members until they have settled, within `seconds` at most."""
        deadline = time.monotonic() + seconds
        while not self.settled():
            assert time.monotonic() < deadline, (
                f"not settled after {seconds} s: {len(self.unsettled)} of {len(self.members)} members have not joined, "
                f"{self.owned} partitions are owned"
            )
            self._round(0.005)

    def serve(self, seconds: float) -> None:
        """Serve the members for this long; with 0, only the answers that have arrived."""
        deadline = time.monotonic() + seconds
        while True:
            self._round(0.005 if seconds else 0.0)
            if time.monotonic() >= deadline:
                return

    def _round(self, wait: float) -> None:
        for number, _ in self._epoll.poll(wait):
            self.members[number].readable()
        now = clock_ms()
        while self._due and self._due[0][0] <= now:
            due, number = heapq.heappop(self._due)
            member = self.members[number]
            if due == member.planned:
                member.planned = math.inf
                member.membership.wake(now)
                member.act()

    def close(self) -> None:
        for member in self.members.values():
            member.connection.close()
        self.members.clear()
        self._epoll.close()


class ClassicCrowd(Crowd):
    def membership(self, group: str) -> classic.Membership:
        protocol = classic.Protocol("range", SUBSCRIPTION)
        return classic.Membership(classic.Settings(group, (protocol,), request_timeout_ms=ANSWER_MS))

    def settled(self) -> bool:
        """Every member has its assignment, and all members of a group of the same generation."""
        if self.unsettled:
            return False
        memberships = [member.membership for member in self.members.values()]
        generations = {(member.settings.group_id, member.generation_id) for member in memberships}
        return len(generations) == len({group for group, _ in generations})


class ConsumerCrowd(Crowd):
    """Groups that read one topic."""

    def __init__(self, address: Address, topic: str, partitions: int) -> None:
        super().__init__(address)
        self.topic = topic
        self.partitions = partitions
        self.sizes: Counter[str] = Counter()
        self._described = 0.0

    def membership(self, group: str) -> ConsumerMembership:
        self.sizes[group] += 1
        settings = ConsumerSettings(group, str(uuid.uuid4()), request_timeout_ms=ANSWER_MS)
        return ConsumerMembership(settings, Subscription((self.topic,)))

    def settled(self) -> bool:
        """All partitions of every group are owned, evenly, and every member has reached its target."""
        wanted = self.partitions * len(self.sizes)
        if self.unsettled or self.owned != wanted or time.monotonic() < self._described + DESCRIBE_S:
            return False
        memberships = [member.membership for member in self.members.values()]
        if any(len(m.owned) > -(-self.partitions // self.sizes[m.settings.group_id]) for m in memberships):
            return False
        with closing(Connection(*self.address)) as connection:
            asked = ConsumerGroupDescribeRequest(group_ids=tuple(self.sizes), include_authorized_operations=False)
            groups = connection.request(asked, ConsumerGroupDescribeResponse).groups
        self._described = time.monotonic()
        return all(
            len(group.members) == self.sizes[group.group_id]
            and group.group_epoch == group.assignment_epoch
            and all(_partitions(member.assignment) == _partitions(member.target_assignment) for member in group.members)
            for group in groups
        )


def _partitions(assigned: DescribedAssignment) -> set[tuple[bytes, int]]:
    return {(topic.topic_id, partition) for topic in assigned.topic_partitions for partition in topic.partitions}
