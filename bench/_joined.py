"""Members that have joined, a group each, and their later requests as whole frames."""

from __future__ import annotations

import base64
import socket
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench._peers import Server
from bench._process import call
from kohort.wire.codec import encode_request
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SESSION_MS = 600_000
WAIT_S = 180.0
AT_ONCE = 50
SPREAD = 600
CLIENT = "bench"
NOT_READY = {3, 14, 15, 16}
"""A coordinator or a topic is being created or loaded."""


@dataclass(frozen=True, slots=True)
class Member:
    group: str
    member_id: str
    generation: int
    """In a consumer group: the member's epoch."""


def connected(server: Server) -> socket.socket:
    return socket.create_connection(server.address, 60)


def call_when_ready(
    connection: socket.socket,
    request: object,
    version: int,
    response: type,
    *,
    error: Callable[[Any], int] = lambda answer: answer.error_code,  # type: ignore[no-any-return]
    pause_s: float = 0.1,
) -> Any:
    """Repeat the request while the coordinator or the topic is not ready."""
    deadline = time.monotonic() + WAIT_S
    while error(answer := call(connection, request, version, response)) in NOT_READY:
        assert time.monotonic() < deadline, answer
        time.sleep(pause_s)
    assert error(answer) == 0, answer
    return answer


def create_topic(server: Server, name: str, partitions: int) -> None:
    """Create a topic. librdkafka's mock creates topics on Metadata requests, with four partitions."""
    with connected(server) as connection:
        if server.name == "mock":
            asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True)
            call(connection, asked, 4, MetadataResponse)
            return
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = call(connection, CreateTopicsRequest(topics=(topic,), timeout_ms=30_000), 5, CreateTopicsResponse)
        assert answer.topics[0].error_code in (0, 36), answer


def classic_members(server: Server, prefix: str, count: int) -> list[Member]:
    """Join up to fifty members at once, since librdkafka's mock delays a new group by three seconds."""
    with connected(server) as connection:
        find_coordinator(connection, prefix)
    parts = [range(first, count, AT_ONCE) for first in range(min(AT_ONCE, count))]

    def join(part: range) -> list[Member]:
        with connected(server) as connection:
            return [_classic(connection, f"{prefix}-{n}") for n in part]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [member for some in pool.map(join, parts) for member in some]


def _classic(connection: socket.socket, group: str) -> Member:
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    joined = call_when_ready(connection, join, 3, JoinGroupResponse)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b""),),
    )
    synced = call(connection, sync, 3, SyncGroupResponse)
    assert synced.error_code == 0, synced
    return Member(group, joined.member_id, joined.generation_id)


def coordinators_ready(server: Server) -> None:
    """Wait until every coordinator answers. Apache Kafka creates its offsets topic at the first FindCoordinator and
    then loads the fifty partitions one by one, so this asks for enough groups to cover each partition."""
    with connected(server) as connection:
        find_coordinator(connection, "ready")
        for n in range(SPREAD if server.name == "kafka" else 0):
            request = OffsetFetchRequest(group_id=f"ready-{n}", topics=None)
            call_when_ready(connection, request, 7, OffsetFetchResponse)


def find_coordinator(connection: socket.socket, group: str) -> None:
    call_when_ready(connection, FindCoordinatorRequest(key=group), 2, FindCoordinatorResponse)


def consumer_members(server: Server, prefix: str, count: int, topic: str) -> list[Member]:
    with connected(server) as connection:
        find_coordinator(connection, prefix)
        return [_consumer(connection, f"{prefix}-{n}", topic) for n in range(count)]


def new_member_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def owned_partitions(answer: ConsumerGroupHeartbeatResponse) -> tuple[HeartbeatTopicPartitions, ...] | None:
    """The assignment in an answer, as a member reports it back; None if the answer has none."""
    if answer.assignment is None:
        return None
    return tuple(
        HeartbeatTopicPartitions(topic_id=topic.topic_id, partitions=tuple(sorted(topic.partitions)))
        for topic in answer.assignment.topic_partitions
    )


def _consumer(connection: socket.socket, group: str, topic: str) -> Member:
    """Join, take the assignment and acknowledge it: until two answers in a row have no news."""
    member_id = new_member_id()
    epoch, quiet, owned = 0, 0, ()
    deadline = time.monotonic() + WAIT_S
    while quiet < 2 or not owned:
        assert time.monotonic() < deadline, f"{group} has no partitions"
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=SESSION_MS,
            subscribed_topic_names=(topic,),
            topic_partitions=owned,
        )
        answer = call_when_ready(connection, request, 1, ConsumerGroupHeartbeatResponse)
        epoch, told = answer.member_epoch, owned_partitions(answer)
        quiet = quiet + 1 if told is None or told == owned else 0
        owned = owned if told is None else told
        if not owned:  # the coordinator does not know the topic yet
            time.sleep(0.1)
    return Member(group, member_id, epoch)


def heartbeat(member: Member, version: int = 4) -> bytes:
    request = HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)
    return encode_request(request, version, 1, CLIENT)


def consumer_heartbeat(member: Member) -> bytes:
    """A heartbeat without changes: only the member's identity."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=member.group, member_id=member.member_id, member_epoch=member.generation
    )
    return encode_request(request, 1, 1, CLIENT)


def commit(member: Member, topic: str, partitions: int, offset: int) -> bytes:
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=(committed(topic, partitions, offset),),
    )
    return encode_request(request, 8, 1, CLIENT)


def committed(topic: str, partitions: int, offset: int) -> OffsetCommitRequestTopic:
    """The same offset for all partitions of a topic."""
    asked = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata="")
        for p in range(partitions)
    )
    return OffsetCommitRequestTopic(name=topic, partitions=asked)
