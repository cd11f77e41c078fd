"""Many members of one consumer group (KIP-848) in one thread: a connection each, and what a client's heartbeats do.

A member subscribes to one topic. When its partitions change, it reports them at once, as clients do; else it heartbeats
after the interval of the last answer. It revokes partitions at once, without work. The server may hold an answer.
"""

from __future__ import annotations

import base64
import heapq
import select
import socket
import time
import uuid
from collections.abc import Callable

from bench._process import Address, call
from kohort.wire.codec import decode, encode_request
from kohort.wire.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
)
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

REBALANCE_MS = 300_000
DESCRIBE_S = 0.05
"""The interval of ConsumerGroupDescribe, once the members seem to agree."""

Owned = tuple[HeartbeatTopicPartitions, ...]


class Member:
    __slots__ = ("connection", "epoch", "inbox", "member_id", "owned")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.inbox = bytearray()
        self.epoch = 0
        self.owned: Owned = ()


class ConsumerCrowd:
    def __init__(self, address: Address, group: str, topic: str, partitions: int) -> None:
        self.address = address
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.members: dict[int, Member] = {}
        self.heartbeats = 0
        self._joining = self._owned = 0
        """Members without an answer; the number of owned partitions of all members."""
        self._due: list[tuple[float, int]] = []
        self._epoll = select.epoll()
        self._described = 0.0

    # -- out

    def join(self) -> None:
        connection = socket.create_connection(self.address, 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        member = Member(connection)
        self._send(member, full=True)
        connection.setblocking(False)
        self.members[connection.fileno()] = member
        self._joining += 1
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _send(self, member: Member, *, full: bool) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=member.member_id,
            member_epoch=member.epoch,
            rebalance_timeout_ms=REBALANCE_MS if member.epoch == 0 else -1,
            subscribed_topic_names=(self.topic,) if member.epoch == 0 else None,
            topic_partitions=member.owned if full else None,
        )
        member.connection.send(encode_request(request, 1, 1, "bench"))

    # -- in

    def serve(self, wait: float) -> None:
        for number, _ in self._epoll.poll(wait):
            self._readable(self.members[number])
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            _, number = heapq.heappop(self._due)
            self._send(self.members[number], full=False)

    def _readable(self, member: Member) -> None:
        data = member.connection.recv(65_536)
        assert data, "the server closed a member's connection"
        member.inbox += data
        while len(member.inbox) >= 4 and len(member.inbox) >= (end := 4 + int.from_bytes(member.inbox[:4], "big")):
            frame = bytes(member.inbox[4:end])
            del member.inbox[:end]
            self._answered(member, decode(ConsumerGroupHeartbeatResponse, 1, frame, 5))

    def _answered(self, member: Member, answer: ConsumerGroupHeartbeatResponse) -> None:
        assert answer.error_code == 0, answer
        self.heartbeats += 1
        self._joining -= member.epoch == 0
        member.epoch = answer.member_epoch
        told = None if answer.assignment is None else _owned(answer)
        if told is not None and told != member.owned:
            self._owned += _count(told) - _count(member.owned)
            member.owned = told
            self._send(member, full=True)
        else:
            due = time.monotonic() + answer.heartbeat_interval_ms / 1e3
            heapq.heappush(self._due, (due, member.connection.fileno()))

    # -- until all is settled

    def settled(self) -> bool:
        """All partitions are owned, evenly, and every member has reached its target."""
        if self._joining or self._owned != self.partitions or time.monotonic() < self._described + DESCRIBE_S:
            return False
        fair = -(-self.partitions // len(self.members))
        if any(_count(member.owned) > fair for member in self.members.values()):
            return False
        with socket.create_connection(self.address, 30) as connection:
            asked = ConsumerGroupDescribeRequest(group_ids=(self.group,))
            group = call(connection, asked, 0, ConsumerGroupDescribeResponse).groups[0]
        self._described = time.monotonic()
        return (
            len(group.members) == len(self.members)
            and group.group_epoch == group.assignment_epoch
            and all(_partitions(m.assignment) == _partitions(m.target_assignment) for m in group.members)
        )

    def run(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, (
                f"after {seconds} s {self._owned} partitions are owned, {self._joining} members have not joined"
            )
            self.serve(0.005)

    def close(self) -> None:
        for member in self.members.values():
            member.connection.close()
        self._epoll.close()


def _owned(answer: ConsumerGroupHeartbeatResponse) -> Owned:
    assert answer.assignment is not None
    return tuple(
        HeartbeatTopicPartitions(topic_id=t.topic_id, partitions=tuple(sorted(t.partitions)))
        for t in answer.assignment.topic_partitions
    )


def _count(owned: Owned) -> int:
    return sum(len(topic.partitions) for topic in owned)


def _partitions(assigned: DescribedAssignment) -> list[tuple[bytes, tuple[int, ...]]]:
    return sorted(
        (topic.topic_id, tuple(sorted(topic.partitions))) for topic in assigned.topic_partitions if topic.partitions
    )
