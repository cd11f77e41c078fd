"""CPU of the server per request, and requests per second, over loopback: heartbeats and durable offset commits.

A child process serves; this process is the load: one thread, plain sockets, frames encoded once and sent again. The
server's CPU is read from /proc, so the figure holds even where the load generator is the slower side. Bounded: a few
seconds a row.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass

from bench._process import call, cpu_seconds, receive, serving
from kohort.wire.codec import encode_request
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

PARTITIONS = 10


@dataclass
class Member:
    connection: socket.socket
    group: str
    member_id: str
    generation: int


def join(address: tuple[str, int], group: str) -> Member:
    connection = socket.create_connection(address, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    joined = call(connection, request, 3, JoinGroupResponse)
    assert isinstance(joined, JoinGroupResponse)
    assert joined.error_code == 0, joined
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b""),),
    )
    synced = call(connection, sync, 3, SyncGroupResponse)
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == 0, synced
    return Member(connection, group, joined.member_id, joined.generation_id)


def heartbeat(member: Member) -> bytes:
    request = HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)
    return encode_request(request, 4, 7, "bench")


def commit(member: Member) -> bytes:
    partitions = tuple(OffsetCommitRequestPartition(partition_index=p, committed_offset=42) for p in range(PARTITIONS))
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=(OffsetCommitRequestTopic(name="bench", partitions=partitions),),
    )
    return encode_request(request, 8, 7, "bench")


def load(members: list[Member], frames: list[bytes], depth: int, seconds: float) -> tuple[int, float]:
    """Keep `depth` requests under way on every connection: how many were answered, in how many seconds."""
    selector = selectors.DefaultSelector()
    size = 0
    for member, frame in zip(members, frames, strict=True):
        member.connection.sendall(frame)
        size = 4 + int.from_bytes(receive(member.connection, 4), "big")
        receive(member.connection, size - 4)
        member.connection.setblocking(False)
        selector.register(member.connection, selectors.EVENT_READ, [frame * depth, size * depth, 0])
    for member, frame in zip(members, frames, strict=True):
        member.connection.send(frame * depth)
    began = time.perf_counter()
    answered = 0
    while (now := time.perf_counter()) < began + seconds:
        for key, _ in selector.select(0.1):
            burst, wanted, received = key.data
            received += len(key.fileobj.recv(65_536))  # type: ignore[union-attr]
            if received == wanted:
                answered += depth
                received = 0
                key.fileobj.send(burst)  # type: ignore[union-attr]
            key.data[2] = received
    selector.close()
    return answered, now - began


def measure(pid: int, address: tuple[str, int], what: str, connections: int, depth: int, seconds: float = 3.0) -> None:
    members = [join(address, f"{what}-{connections}-{depth}-{n}") for n in range(connections)]
    frames = [heartbeat(m) if what == "heartbeat" else commit(m) for m in members]
    before = cpu_seconds(pid)
    answered, took = load(members, frames, depth, seconds)
    used = cpu_seconds(pid) - before
    print(
        f"{what:12} {connections:6} {depth:6} {answered / took:12,.0f} {used / max(answered, 1) * 1e6:16.1f}",
        flush=True,
    )
    for member in members:
        member.connection.close()


def main() -> None:
    print(f"{'request':12} {'conns':>6} {'depth':>6} {'requests/s':>12} {'server µs each':>16}")
    with serving() as (pid, address, _):
        admin = socket.create_connection(address, 10)
        topic = CreatableTopic(
            name="bench", num_partitions=PARTITIONS, replication_factor=1, assignments=(), configs=()
        )
        call(admin, CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), 2, CreateTopicsResponse)
        admin.close()
        for connections, depth in ((50, 1), (50, 16), (500, 1)):
            measure(pid, address, "heartbeat", connections, depth)
        for connections, depth in ((1, 1), (50, 1), (50, 16)):
            measure(pid, address, "commit", connections, depth)


if __name__ == "__main__":
    main()
