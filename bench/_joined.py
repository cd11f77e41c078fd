"""Members that have joined, a group each, and their later requests as whole frames."""

from __future__ import annotations

import base64
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench._peers import Server
from bench._process import Address, call
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
TRIES = 50
AT_ONCE = 50
SPREAD = 600
CLIENT = "bench"


@dataclass(frozen=True, slots=True)
class Member:
    group: str
    member_id: str
    generation: int
    """In a consumer group: the member's epoch."""


def create_topic(server: Server, name: str, partitions: int) -> None:
    """Create a topic. librdkafka's mock creates topics on Metadata requests, with four partitions."""
    if server.name == "mock":
        with socket.create_connection(server.address, 30) as connection:
            asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True)
            call(connection, asked, 4, MetadataResponse)
        return
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=())
    with socket.create_connection(server.address, 30) as connection:
        answer = call(connection, CreateTopicsRequest(topics=(topic,), timeout_ms=30_000), 5, CreateTopicsResponse)
    assert answer.topics[0].error_code in (0, 36), answer


def classic_members(address: Address, prefix: str, count: int) -> list[Member]:
    """Join up to fifty members at once, since librdkafka's mock delays a new group by three seconds."""
    with socket.create_connection(address, 30) as connection:
        find_coordinator(connection, prefix)
    parts = [range(first, count, AT_ONCE) for first in range(min(AT_ONCE, count))]

    def join(part: range) -> list[Member]:
        with socket.create_connection(address, 60) as connection:
            return [_classic(connection, f"{prefix}-{n}") for n in part]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [member for some in pool.map(join, parts) for member in some]


def _classic(connection: socket.socket, group: str) -> Member:
    for _ in range(TRIES):
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        joined = call(connection, join, 3, JoinGroupResponse)
        if not _not_yet(joined.error_code, joined):
            break
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
    with socket.create_connection(server.address, 30) as connection:
        find_coordinator(connection, "ready")
        for n in range(SPREAD if server.name == "kafka" else 0):
            for _ in range(TRIES):
                request = OffsetFetchRequest(group_id=f"ready-{n}", topics=None)
                answer = call(connection, request, 7, OffsetFetchResponse)
                if not _not_yet(answer.error_code, answer):
                    break


def find_coordinator(connection: socket.socket, group: str) -> None:
    for _ in range(TRIES):
        answer = call(connection, FindCoordinatorRequest(key=group), 2, FindCoordinatorResponse)
        if not _not_yet(answer.error_code, answer):
            return
    raise AssertionError(f"no coordinator of {group}: {answer}")


def _not_yet(error: int, answer: object) -> bool:
    """True if the coordinator is loading, or its topic is being created."""
    assert error in (0, 14, 15, 16), answer
    if error:
        time.sleep(0.2)
    return bool(error)


def consumer_members(address: Address, prefix: str, count: int, topic: str) -> list[Member]:
    with socket.create_connection(address, 30) as connection:
        find_coordinator(connection, prefix)
        return [_consumer(connection, f"{prefix}-{n}", topic) for n in range(count)]


def _consumer(connection: socket.socket, group: str, topic: str) -> Member:
    """Join, take the assignment and acknowledge it: until two answers in a row have no news."""
    member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    epoch, quiet, owned = 0, 0, ()
    for _ in range(TRIES):
        answer = call(
            connection,
            ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=SESSION_MS,
                subscribed_topic_names=(topic,),
                topic_partitions=owned,
            ),
            1,
            ConsumerGroupHeartbeatResponse,
        )
        if _not_yet(answer.error_code, answer):
            continue
        epoch = answer.member_epoch
        quiet += 1
        if answer.assignment is not None and answer.assignment.topic_partitions != owned:
            quiet = 0
            owned = tuple(
                HeartbeatTopicPartitions(topic_id=t.topic_id, partitions=t.partitions)
                for t in answer.assignment.topic_partitions
            )
        if quiet >= 2 and owned:
            return Member(group, member_id, epoch)
        if not owned:  # the coordinator does not know the topic yet
            time.sleep(0.1)
    raise AssertionError(f"{group} has no partitions")


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
    asked = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata="")
        for p in range(partitions)
    )
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=asked),),
    )
    return encode_request(request, 8, 1, CLIENT)
