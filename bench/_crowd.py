"""Many members of groups in one thread: a connection each, as real clients have, and as little work as possible.

Each member is a small state machine over a socket of its own; one epoll serves them all.

Classic members join with two requests (KIP-394), sync, heartbeat every three seconds and rejoin at a rebalance, with
the versions of today's clients. A request's correlation id is its API key, so the answer names its API.

Members of a consumer group (KIP-848) subscribe to one topic. When its partitions change, a member reports them at once,
as clients do; else it heartbeats after the interval of the last answer. It revokes partitions at once, without work.
The server may hold an answer.
"""

from __future__ import annotations

import heapq
import select
import socket
import time
import uuid
from collections import Counter
from contextlib import closing
from typing import Any

from bench._process import Address, answer_to
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.codec import decode, encode_request
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

HEARTBEAT_S = 3.0
SESSION_MS, REBALANCE_MS = 45_000, 300_000
CLIENT_ID = "consumer-bench-1"
SUBSCRIPTION = b"\0\1\0\0\0\1\0\x06orders\xff\xff\xff\xff" + bytes(8)
ASSIGNMENT = b"\0\1\0\0\0\1\0\x06orders\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
PROTOCOLS = (JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),)
JOIN, HEARTBEAT, SYNC, VERSIONS = 11, 12, 14, 18
MEMBER_ID_REQUIRED, REBALANCING, UNKNOWN_MEMBER, ILLEGAL_GENERATION = 79, 27, 25, 22
Partitions = frozenset[tuple[bytes, int]]
DESCRIBE_S = 0.05
"""The interval of ConsumerGroupDescribe, once the members seem to agree."""


class Member:
    __slots__ = ("connection", "group", "inbox", "member_id")

    def __init__(self, group: str, connection: socket.socket) -> None:
        self.group = group
        self.connection = connection
        self.inbox = bytearray()
        self.member_id = ""

    def readable(self) -> None:
        data = self.connection.recv(1_048_576)
        assert data, f"the server closed the connection of {self.member_id}"
        inbox = self.inbox
        inbox += data
        while len(inbox) >= 4 and len(inbox) >= (end := 4 + int.from_bytes(inbox[:4], "big")):
            frame = bytes(inbox[4:end])
            del inbox[:end]
            self.answered(frame)

    def answered(self, frame: bytes) -> None:
        """`frame` has its header: the correlation id and no tagged fields."""
        raise NotImplementedError


class Crowd:
    """All members of a run."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.members: dict[int, Any] = {}
        self._due: list[tuple[float, int]] = []
        self._epoll = select.epoll()

    def connected(self) -> socket.socket:
        connection = socket.create_connection(self.address, 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def add(self, member: Member) -> None:
        member.connection.setblocking(False)
        self.members[member.connection.fileno()] = member
        self._epoll.register(member.connection.fileno(), select.EPOLLIN)

    def join(self, group: str) -> None:
        raise NotImplementedError

    def join_all(self, groups: list[str]) -> None:
        """A member joins each group of the list; the answers that have arrived are served after every fifty."""
        for number, group in enumerate(groups, 1):
            self.join(group)
            if number % 50 == 0:
                self.serve(0)

    def schedule(self, member: Member, due: float) -> None:
        heapq.heappush(self._due, (due, member.connection.fileno()))

    def settled(self) -> bool:
        raise NotImplementedError

    def settle(self, seconds: float) -> None:
        """Serve the members until they have settled, within `seconds` at most."""
        deadline = time.monotonic() + seconds
        while not self.settled():
            assert time.monotonic() < deadline, f"not settled after {seconds} s: {self}"
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
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            due, number = heapq.heappop(self._due)
            self.members[number].heartbeat(due)

    def close(self) -> None:
        for member in self.members.values():
            member.connection.close()
        self.members.clear()
        self._epoll.close()


# -- classic groups


class ClassicMember(Member):
    __slots__ = ("crowd", "generation", "heartbeat_frame", "quiet_until", "stable")

    def __init__(self, crowd: ClassicCrowd, group: str, connection: socket.socket) -> None:
        super().__init__(group, connection)
        self.crowd = crowd
        self.generation = -1
        self.stable = False
        self.quiet_until = 0.0
        self.heartbeat_frame = b""

    def send(self, key: int, request: object, version: int) -> None:
        data = encode_request(request, version, key, CLIENT_ID)
        sent = self.connection.send(data)
        if sent < len(data):  # the leader's assignment of a large group
            self.connection.setblocking(True)
            self.connection.sendall(data[sent:])
            self.connection.setblocking(False)

    def join(self) -> None:
        self.crowd.stable -= self.stable
        self.stable = False
        self.send(JOIN, join_request(self.group, self.member_id, SESSION_MS), 9)

    def heartbeat(self, due: float) -> None:
        """Heartbeat, unless a rebalance is under way or a later heartbeat is scheduled."""
        if self.stable and due == self.quiet_until:
            self.quiet_until = time.monotonic() + HEARTBEAT_S
            self.connection.send(self.heartbeat_frame)

    def answered(self, frame: bytes) -> None:
        key, answer = frame[3], None
        match key:
            case 12:  # heartbeat v4: decoding thousands would take long
                error = frame[10]
            case 11:
                answer = decode(JoinGroupResponse, 9, frame, 5)
                error = answer.error_code
            case _:
                error = decode(SyncGroupResponse, 5, frame, 5).error_code
        if error == MEMBER_ID_REQUIRED and answer:
            self.member_id = answer.member_id
            self.join()
        elif error:
            assert error in (REBALANCING, UNKNOWN_MEMBER, ILLEGAL_GENERATION), f"API {key}: error {error}"
            self.member_id = "" if error == UNKNOWN_MEMBER else self.member_id
            self.join()
        elif answer:
            self.joined(answer)
        elif key == HEARTBEAT:
            self.crowd.schedule(self, self.quiet_until)
        else:
            self.synced()

    def joined(self, answer: JoinGroupResponse) -> None:
        self.generation = answer.generation_id
        self.send(SYNC, sync_request(self.group, answer), 5)

    def synced(self) -> None:
        self.stable = True
        self.crowd.stable += 1
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        self.heartbeat_frame = encode_request(request, 4, HEARTBEAT, CLIENT_ID)
        self.quiet_until = time.monotonic() + HEARTBEAT_S
        self.crowd.schedule(self, self.quiet_until)


def join_request(group: str, member_id: str, session_ms: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=PROTOCOLS,
    )


def sync_request(group: str, joined: JoinGroupResponse) -> SyncGroupRequest:
    members = joined.members if joined.leader == joined.member_id else ()
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=tuple(SyncGroupRequestAssignment(member_id=m.member_id, assignment=ASSIGNMENT) for m in members),
    )


class ClassicCrowd(Crowd):
    """`software` is the members' name in ApiVersions; without a name they send no such request."""

    def __init__(self, address: Address, *, software: str = "") -> None:
        super().__init__(address)
        self.software = software
        self.stable = 0

    def join(self, group: str) -> None:
        connection = self.connected()
        if self.software:
            request = ApiVersionsRequest(client_software_name=self.software, client_software_version="1")
            answer_to(connection, encode_request(request, 3, VERSIONS, CLIENT_ID))
        member = ClassicMember(self, group, connection)
        self.add(member)
        member.join()

    def settled(self) -> bool:
        """Every member has its assignment, and all members of a group of the same generation."""
        if self.stable != len(self.members):
            return False
        generations = {(member.group, member.generation) for member in self.members.values()}
        return len(generations) == len({group for group, _ in generations})

    def __str__(self) -> str:
        return f"{self.stable} of {len(self.members)} members are stable"


# -- consumer groups


class ConsumerMember(Member):
    __slots__ = ("crowd", "epoch", "owned")

    def __init__(self, crowd: ConsumerCrowd, group: str, connection: socket.socket) -> None:
        super().__init__(group, connection)
        self.crowd = crowd
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: Partitions = frozenset()

    def heartbeat(self, _: float) -> None:
        self.send(full=False)

    def send(self, *, full: bool) -> None:
        topics = {topic for topic, _ in self.owned}
        owned = tuple(
            HeartbeatTopicPartitions(topic_id=topic, partitions=tuple(sorted(p for t, p in self.owned if t == topic)))
            for topic in topics
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if self.epoch == 0 else -1,
            subscribed_topic_names=(self.crowd.topic,) if self.epoch == 0 else None,
            topic_partitions=owned if full else None,
        )
        self.connection.send(encode_request(request, 1, 1, "bench"))

    def answered(self, frame: bytes) -> None:
        answer = decode(ConsumerGroupHeartbeatResponse, 1, frame, 5)
        assert answer.error_code == 0, answer
        self.crowd.joining -= self.epoch == 0
        self.epoch = answer.member_epoch
        if answer.assignment is not None and (told := _partitions(answer.assignment)) != self.owned:
            self.crowd.owned += len(told) - len(self.owned)
            self.owned = told
            self.send(full=True)
        else:
            self.crowd.schedule(self, time.monotonic() + answer.heartbeat_interval_ms / 1e3)


class ConsumerCrowd(Crowd):
    """Groups that read one topic."""

    def __init__(self, address: Address, topic: str, partitions: int) -> None:
        super().__init__(address)
        self.topic = topic
        self.partitions = partitions
        self.sizes: Counter[str] = Counter()
        self.joining = self.owned = 0
        """Members without an answer; the number of owned partitions of all members."""
        self._described = 0.0

    def join(self, group: str) -> None:
        member = ConsumerMember(self, group, self.connected())
        member.send(full=True)
        self.joining += 1
        self.sizes[group] += 1
        self.add(member)

    def settled(self) -> bool:
        """All partitions of every group are owned, evenly, and every member has reached its target."""
        wanted = self.partitions * len(self.sizes)
        if self.joining or self.owned != wanted or time.monotonic() < self._described + DESCRIBE_S:
            return False
        if any(len(m.owned) > -(-self.partitions // self.sizes[m.group]) for m in self.members.values()):
            return False
        with closing(Connection(*self.address)) as connection:
            asked = ConsumerGroupDescribeRequest(group_ids=tuple(self.sizes))
            groups = connection.request(asked, ConsumerGroupDescribeResponse).groups
        self._described = time.monotonic()
        return all(
            len(group.members) == self.sizes[group.group_id]
            and group.group_epoch == group.assignment_epoch
            and all(_partitions(m.assignment) == _partitions(m.target_assignment) for m in group.members)
            for group in groups
        )

    def __str__(self) -> str:
        return f"{self.owned} partitions are owned, {self.joining} members have not joined"


def _partitions(assigned: Any) -> Partitions:
    return frozenset((topic.topic_id, p) for topic in assigned.topic_partitions for p in topic.partitions)
