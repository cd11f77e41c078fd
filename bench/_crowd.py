"""Many members of classic groups in one thread: a connection each, as real clients have, and as little work as
possible.

Each member is a small state machine over a socket of its own; one epoll serves them all. They join with two requests
(KIP-394), sync, heartbeat every three seconds and rejoin at a rebalance, with the versions of today's clients. A
request's correlation id is its API key, so the answer names its API.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable

from bench._process import Address, receive
from kohort.wire.codec import decode, encode_request
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

HEARTBEAT_S = 3.0
SESSION_MS = 45_000
CLIENT_ID = "consumer-bench-1"
SUBSCRIPTION = b"\0\1\0\0\0\1\0\x06orders\xff\xff\xff\xff" + bytes(8)
ASSIGNMENT = b"\0\1\0\0\0\1\0\x06orders\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
PROTOCOLS = (JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),)
JOIN, HEARTBEAT, SYNC, VERSIONS = 11, 12, 14, 18
MEMBER_ID_REQUIRED, REBALANCING, UNKNOWN_MEMBER, ILLEGAL_GENERATION = 79, 27, 25, 22


class Member:
    __slots__ = (
        "connection",
        "crowd",
        "generation",
        "group",
        "heartbeat_frame",
        "inbox",
        "member_id",
        "quiet_until",
        "stable",
    )

    def __init__(self, crowd: Crowd, group: str, connection: socket.socket) -> None:
        self.crowd = crowd
        self.group = group
        self.connection = connection
        self.inbox = bytearray()
        self.member_id = ""
        self.generation = -1
        self.stable = False
        self.quiet_until = 0.0
        self.heartbeat_frame = b""

    # -- out

    def send(self, key: int, request: object, version: int) -> None:
        data = encode_request(request, version, key, CLIENT_ID)
        sent = self.connection.send(data)
        if sent < len(data):  # the leader's assignment of a large group
            self.connection.setblocking(True)
            self.connection.sendall(data[sent:])
            self.connection.setblocking(False)

    def join(self) -> None:
        if self.stable:
            self.stable = False
            self.crowd.stable -= 1
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=300_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=PROTOCOLS,
        )
        self.send(JOIN, request, 9)

    def heartbeat(self, due: float) -> None:
        """Heartbeat, unless a rebalance is under way or a later heartbeat is scheduled."""
        if self.stable and due == self.quiet_until:
            self.quiet_until = time.monotonic() + HEARTBEAT_S
            self.connection.send(self.heartbeat_frame)

    # -- in

    def readable(self) -> None:
        data = self.connection.recv(1_048_576)
        assert data, f"the server closed the connection of {self.member_id}"
        inbox = self.inbox
        inbox += data
        while len(inbox) >= 4 and len(inbox) >= (end := 4 + int.from_bytes(inbox[:4], "big")):
            frame = bytes(inbox[4:end])
            del inbox[:end]
            self.answered(frame[3], frame)

    def answered(self, key: int, frame: bytes) -> None:
        """`frame` has its header: the correlation id and no tagged fields."""
        match key:
            case 12:  # heartbeat v4
                error = frame[10]
                if error == 0:
                    self.crowd.due.append((self.quiet_until, self))
                elif error in (REBALANCING, UNKNOWN_MEMBER, ILLEGAL_GENERATION):
                    self.rejoin(error)
                else:
                    raise AssertionError(f"heartbeat: error {error}")
            case 11:
                self.joined(decode(JoinGroupResponse, 9, frame, 5))
            case 14:
                answer = decode(SyncGroupResponse, 5, frame, 5)
                if answer.error_code:
                    self.rejoin(answer.error_code)
                else:
                    self.settled()

    def joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
            return
        if answer.error_code:
            self.rejoin(answer.error_code)
            return
        self.generation = answer.generation_id
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if answer.leader == self.member_id:
            assignments = tuple(
                SyncGroupRequestAssignment(member_id=m.member_id, assignment=ASSIGNMENT) for m in answer.members
            )
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        self.send(SYNC, request, 5)

    def rejoin(self, error: int) -> None:
        assert error in (REBALANCING, UNKNOWN_MEMBER, ILLEGAL_GENERATION), f"error {error}"
        if error == UNKNOWN_MEMBER:
            self.member_id = ""
        self.join()

    def settled(self) -> None:
        self.stable = True
        self.crowd.stable += 1
        self.crowd.generation = max(self.crowd.generation, self.generation)
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        self.heartbeat_frame = encode_request(request, 4, HEARTBEAT, CLIENT_ID)
        self.quiet_until = time.monotonic() + HEARTBEAT_S
        self.crowd.due.append((self.quiet_until, self))


class Crowd:
    """All members of a run. `software` is their name in ApiVersions; without a name they send no such request."""

    def __init__(self, address: Address, *, software: str = "") -> None:
        self.address = address
        self.software = software
        self.members: dict[int, Member] = {}
        self.due: deque[tuple[float, Member]] = deque()
        """Scheduled heartbeats, in order: all have the same interval."""
        self.stable = 0
        self.generation = 0
        self._epoll = select.epoll()

    def connect(self, group: str) -> Member:
        connection = socket.create_connection(self.address, 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.software:
            request = ApiVersionsRequest(client_software_name=self.software, client_software_version="1")
            connection.sendall(encode_request(request, 3, VERSIONS, CLIENT_ID))
            receive(connection, int.from_bytes(receive(connection, 4), "big"))
        connection.setblocking(False)
        member = Member(self, group, connection)
        self.members[connection.fileno()] = member
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        return member

    def run(self, done: Callable[[], bool], seconds: float) -> None:
        """Serve the members until `done` is true, within `seconds` at most."""
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"after {seconds} s {self.stable} of {len(self.members)} are stable"
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
        self._heartbeat(time.monotonic())

    def _heartbeat(self, now: float) -> None:
        while self.due and self.due[0][0] <= now:
            due, member = self.due.popleft()
            if member.connection.fileno() >= 0:
                member.heartbeat(due)

    def close(self) -> None:
        for member in self.members.values():
            member.connection.close()
        self.members.clear()
        self._epoll.close()
