"""Many links before clients or upstream brokers that do not read: memory stays limited, and groups go on."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from gateway_server import GatewayServer, wait_for

from kohort.client.wire.blocking_connection import Connection
from kohort.gateway import link as link_module
from kohort.gateway.buffers import BUFFER_BYTES, LEAST_BYTES, Buffers
from kohort.gateway.requests import HEARTBEAT, JOIN_GROUP, Request, Route
from kohort.gateway.sessions import KEPT_S, MOST_BYTES, Sessions, correlation_id_of
from kohort.server.inflow import Inflow
from kohort.server.outflow import Outflow
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponse
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

LIMIT = 4_194_304
CLIENTS = 12
READ_BYTES = 262_144
"""The most that a loop reads from a socket at once."""
SESSION_MS = 1_000


@pytest.fixture
def gateway(upstream: KohortServer) -> Iterator[GatewayServer]:
    settings = {"queued_max_request_bytes": LIMIT, "queued_max_response_bytes": LIMIT}
    with GatewayServer(
        upstream.bootstrap_servers, **settings, group_min_session_timeout_ms=500, group_initial_rebalance_delay_ms=0
    ) as server:
        yield server.wait_for_upstream()


@contextmanager
def stalled() -> Iterator[tuple[str, int]]:
    """A broker that accepts connections and reads nothing."""
    with socket.socket() as listening, ExitStack() as accepted:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)

        def accept() -> None:
            while True:
                try:
                    accepted.enter_context(listening.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def address_of(gateway: GatewayServer) -> tuple[str, int]:
    host, _, port = gateway.bootstrap_servers.rpartition(":")
    return host, int(port)


def test_answers_that_nobody_reads_have_one_limit(gateway: GatewayServer, upstream: KohortServer, unique: str) -> None:
    """The upstream answers fast. No client is closed, and each gets all that it has asked for."""
    upstream.create_topic(unique, 1, configs={"max.message.bytes": "5000000"})
    with upstream._cluster() as direct:
        direct.produce(unique, 0, [NewRecord(None, b"v" * 1_000_000, 1)])
        leader = direct.topics([unique])[unique].partitions[0].leader
    port = gateway.broker_ports()[sorted(gateway.gateway._view.brokers).index(leader)]
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2_000_000)
    topics = (FetchTopic(topic=unique, partitions=(part,)),)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=2_000_000, topics=topics)
    asked = b"".join(encode_request(fetch, 12, number, "slow") for number in range(8))
    queues = gateway._server.queues
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.socket()) for _ in range(CLIENTS)]
        for client in slow:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            client.connect(("127.0.0.1", port))
            client.sendall(asked)
        wait_for(lambda: queues.held_bytes > LIMIT // 4, "answers that nobody reads count")
        stuck = gateway.gateway.links

        def all_stopped() -> bool:
            held = [link.unsent for link in list(stuck)]
            assert sum(held) < LIMIT + CLIENTS * (LEAST_BYTES + READ_BYTES)
            return sum("client" in link._upstream_reading.reasons for link in list(stuck)) >= CLIENTS

        wait_for(all_stopped, "no upstream connection is read")
        wait_for(
            lambda: queues.held_bytes > 0.8 * sum(link.unsent for link in list(stuck)), "what links hold is counted"
        )
        left = dict.fromkeys(slow, 8_000_000)
        with selectors.DefaultSelector() as selector:
            for client in slow:
                selector.register(client, selectors.EVENT_READ)
            deadline = time.monotonic() + 60
            while any(size > 0 for size in left.values()):
                assert time.monotonic() < deadline
                for key, _ in selector.select(1):
                    read = len(key.fileobj.recv(1 << 18))  # type: ignore[union-attr]
                    assert read, "a client was closed"
                    left[key.fileobj] -= read  # type: ignore[index]
    wait_for(lambda: queues.held_bytes == 0, "nothing is held")


def test_requests_that_nobody_reads_have_one_limit(gateway: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients send fast. What they send counts as requests in memory; groups have the rest of the room. When clients
    are killed, nothing is kept for long."""
    monkeypatch.setattr(link_module, "LINGER_S", 0.5)
    inflow = gateway.gateway._connections.inflow
    data = PartitionProduceData(index=0, records=encode_batch([NewRecord(None, b"v" * 900_000, 1)]))
    asked = ProduceRequest(
        transactional_id=None, acks=1, timeout_ms=1, topic_data=(TopicProduceData(name="t", partition_data=(data,)),)
    )
    frame = encode_request(asked, 9, 1, "flood")
    with stalled() as address, ExitStack() as stack:
        monkeypatch.setattr(gateway.gateway, "_targets", lambda _: [address])
        clients = [stack.enter_context(socket.create_connection(address_of(gateway))) for _ in range(CLIENTS)]
        with selectors.DefaultSelector() as selector:
            for client in clients:
                client.setblocking(False)
                selector.register(client, selectors.EVENT_WRITE)
            while selector.select(0.5):  # all that the gateway takes
                for key, _ in selector.select(0):
                    key.fileobj.send(frame)  # type: ignore[union-attr]
                assert inflow.total < LIMIT + CLIENTS * (LEAST_BYTES + READ_BYTES)
        wait_for(lambda: inflow.total > LIMIT // 4, "they count")
        with closing(Connection(*address_of(gateway))) as other:
            assert described(other, "g").group_state == "Dead", "other requests are answered"
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            client.close()
        wait_for(lambda: inflow.total == 0, "the clients have gone")
        lingering = gateway.gateway.buffers._lingering
        assert lingering <= LIMIT // 8
    wait_for(lambda: gateway.gateway.buffers._lingering == 0, "nothing lingers")


def test_a_member_behind_a_stalled_answer_keeps_its_session(
    gateway: GatewayServer, monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    """Its heartbeat is answered after the request before it, as in any connection. Until then it cannot send more."""
    with stalled() as address, ExitStack() as stack:
        member = stack.enter_context(closing(Connection(*address_of(gateway))))
        other = stack.enter_context(closing(Connection(*address_of(gateway))))
        generation, name = joined(member, unique)
        monkeypatch.setattr(gateway.gateway, "_targets", lambda _: [address])
        member.send(MetadataRequest(topics=()))
        member.send(HeartbeatRequest(group_id=unique, generation_id=generation, member_id=name))
        until = time.monotonic() + 3 * SESSION_MS / 1_000
        while time.monotonic() < until:
            found = described(other, unique)
            assert (found.group_state, [row.member_id for row in found.members]) == ("Stable", [name])
            time.sleep(0.05)  # the session's time passes
        member.close()
        wait_for(
            lambda: (
                not other.request(DescribeGroupsRequest(groups=(unique,)), DescribeGroupsResponse).groups[0].members
            ),
            "a member whose connection is closed has its session and no more",
        )


def described(connection: Connection, group: str) -> DescribedGroup:
    return connection.request(DescribeGroupsRequest(groups=(group,)), DescribeGroupsResponse).groups[0]


def joined(member: Connection, group: str) -> tuple[int, str]:
    protocols = (JoinGroupRequestProtocol(name="range", metadata=b""),)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=5_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    answer = member.request(join, JoinGroupResponse, version=3)
    assert answer.error_code == 0
    own = (SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"a"),)
    sync = SyncGroupRequest(
        group_id=group, generation_id=answer.generation_id, member_id=answer.member_id, assignments=own
    )
    assert member.request(sync, SyncGroupResponse, version=2).error_code == 0
    return answer.generation_id, answer.member_id


def test_the_answers_to_repeated_heartbeats_are_dropped(
    gateway: GatewayServer, upstream: KohortServer, unique: str
) -> None:
    """The upstream answers late: a fetch that waits for records."""
    upstream.create_topic(unique, 1)
    with upstream._cluster() as direct:
        leader = direct.topics([unique])[unique].partitions[0].leader
    port = gateway.broker_ports()[sorted(gateway.gateway._view.brokers).index(leader)]
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    topics = (FetchTopic(topic=unique, partitions=(part,)),)
    with closing(Connection("127.0.0.1", port)) as member:
        generation, name = joined(member, unique)
        for _ in range(2):
            member.send(FetchRequest(max_wait_ms=1_500, min_bytes=1, max_bytes=100, topics=topics))
            member.send(HeartbeatRequest(group_id=unique, generation_id=generation, member_id=name))
            assert member.receive(FetchResponse).error_code == 0
            assert member.receive(HeartbeatResponse).error_code == 0
        assert member.request(MetadataRequest(topics=()), MetadataResponse).brokers


def heartbeat(number: int, member: str = "m") -> tuple[Request, bytes]:
    frame = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), 4, number, "c")
    return Request(HEARTBEAT, 4, number, Route.OWN), frame


def test_heartbeats_are_repeated_while_a_link_is_stuck_and_not_for_ever() -> None:
    sessions = Sessions(2.0)
    assert sessions.due(0, is_stuck=True) == []
    for number in (7, 8):
        sessions.saw(*heartbeat(number))
    sessions.saw(*heartbeat(9, "n"))
    sessions.saw(heartbeat(10)[0], heartbeat(10)[1][:-1])
    assert sessions.due(1_000, is_stuck=False) == []
    assert sessions.due(1_000, is_stuck=True) == []
    found = {at: sessions.due(1_000 + at, is_stuck=True) for at in range(1, 100)}
    assert [correlation_id_of(frame) for frame in found[2]] == [8, 9], "the last one of each member"
    assert [at for at, due in found.items() if due] == list(range(2, int(KEPT_S) + 1, 2))
    assert sessions.due(1_100, is_stuck=False) == []
    assert sessions.due(1_101, is_stuck=True) == []
    assert len(sessions.due(1_103, is_stuck=True)) == 2
    sessions.saw(Request(JOIN_GROUP, 5, 11, Route.OWN), b"")
    assert sessions.due(1_106, is_stuck=True) == [], "the next generation"


def test_the_heartbeats_of_a_link_take_little() -> None:
    """The last ones are kept, whatever a client sends."""
    sessions = Sessions(2.0)
    for number in range(1_000):
        sessions.saw(*heartbeat(number, f"{number}-{'m' * (number * 37 % 4_100)}"))
        kept = [len(beginning) + len(member) for member, beginning in sessions._heartbeats.items()]
        assert sum(kept) == sessions._bytes <= MOST_BYTES
    for number in range(1_000, 1_003):
        sessions.saw(*heartbeat(number, f"{number}"))
    for number in (1_000, 1_001, 1_001):
        sessions.saw(*heartbeat(number + 1_000, f"{number}"))
    sessions.due(0, is_stuck=True)
    assert [correlation_id_of(frame) for frame in sessions.due(2, is_stuck=True)][-3:] == [1_002, 2_000, 2_001]


class Held:
    unsent = 0


async def test_an_allowance_is_a_part_of_the_room() -> None:
    limit = 32 * BUFFER_BYTES
    checked: list[int] = []
    inflow = Inflow(limit, time.monotonic, lambda: (), lambda *_: None)
    outflow = Outflow(limit)
    connections: Any = SimpleNamespace(inflow=inflow, outflow=outflow, check_answers=lambda: checked.append(1))
    buffers = Buffers(connections)
    writer: Any = Held()

    class Busy:
        def visit(self) -> Any:
            return writer

        def tend(self) -> None: ...

    buffers.visit(Busy())
    assert buffers.for_answers(1_000) == buffers.for_requests(1_000) == BUFFER_BYTES
    writer.unsent = limit - BUFFER_BYTES
    buffers._measure()
    assert (buffers.for_answers(0), buffers.for_requests(0)) == (BUFFER_BYTES // 4, BUFFER_BYTES)
    assert buffers.for_answers(BUFFER_BYTES // 2) == BUFFER_BYTES // 8, "what is written counts until it is measured"
    writer.unsent = limit
    for _ in range(17):
        buffers.for_requests(BUFFER_BYTES)
    assert buffers.for_answers(0) == LEAST_BYTES, "many bytes are written: measured again"
    assert not checked
    writer.unsent = limit + 1
    buffers._measure()
    assert checked
    buffers.close()
