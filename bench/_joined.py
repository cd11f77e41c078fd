"""Members that have joined, a group each, and their later requests as whole frames."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from bench._crowd import ConsumerCrowd, join_request, sync_request
from bench._peers import APACHE, Server
from kohort.client.cluster import Cluster
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.codec import encode_request
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.sync_group import SyncGroupResponse

SESSION_MS = 600_000
WAIT_S = 180.0
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
    """Create a topic if there is none. librdkafka's mock creates it on a Metadata request, with four partitions."""
    if server.name == "mock":
        with closing(Connection(*server.address)) as connection:
            asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True)
            connection.request(asked, MetadataResponse)
        return
    with Cluster(server.bootstrap) as cluster:
        if name not in cluster.topics():
            cluster.create_topic(name, partitions, 1)


def coordinators_ready(servers: Iterable[Server]) -> None:
    """Wait until every coordinator answers. Apache Kafka creates its offsets topic at the first FindCoordinator and
    then loads the fifty partitions one by one, so this asks for enough groups to cover each partition."""
    for server in servers:
        if server.name in APACHE:
            with Cluster(server.bootstrap) as cluster:
                for n in range(SPREAD):
                    cluster.committed(f"ready-{n}")


def classic_members(server: Server, prefix: str, count: int) -> list[Member]:
    """Join up to fifty members at once, since librdkafka's mock delays a new group by three seconds."""
    parts = [range(first, count, AT_ONCE) for first in range(min(AT_ONCE, count))]

    def join(part: range) -> list[Member]:
        with closing(Connection(*server.address)) as connection:
            return [_classic(connection, f"{prefix}-{n}") for n in part]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [member for some in pool.map(join, parts) for member in some]


def _classic(connection: Connection, group: str) -> Member:
    """The first JoinGroup has an answer, because version 3 demands no member id."""
    joined = connection.request(join_request(group, "", SESSION_MS), JoinGroupResponse, version=3)
    assert joined.error_code == 0, joined
    synced = connection.request(sync_request(group, joined), SyncGroupResponse, version=3)
    assert synced.error_code == 0, synced
    return Member(group, joined.member_id, joined.generation_id)


def consumer_members(server: Server, prefix: str, count: int, topic: str, partitions: int) -> list[Member]:
    with closing(ConsumerCrowd(server.address, topic, partitions)) as crowd:
        crowd.join_all([f"{prefix}-{n}" for n in range(count)])
        crowd.settle(WAIT_S)
        return [Member(member.group, member.member_id, member.epoch) for member in crowd.members.values()]


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
    """The same offset for all partitions of the topic."""
    rows = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata="")
        for p in range(partitions)
    )
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=rows),),
    )
    return encode_request(request, 8, 1, CLIENT)
