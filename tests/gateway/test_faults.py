"""Upstream brokers that misbehave, and clients that vanish: nothing is held for long."""

from __future__ import annotations

import asyncio
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from gateway_server import GatewayServer, wait_for

from kohort.client.security.security import Security
from kohort.client.wire.blocking_connection import Connection
from kohort.config import Config
from kohort.gateway import follower as follower_module
from kohort.gateway import gateway as gateway_module
from kohort.gateway import link as link_module
from kohort.gateway.follower import Follower
from kohort.gateway.gateway import Gateway
from kohort.gateway.link import Link
from kohort.gateway.requests import Request, Route
from kohort.gateway.sides import UpstreamSide
from kohort.gateway.view import View
from kohort.server.listeners import AddedListeners, ListenFailed
from kohort.testing import KohortServer
from kohort.wire.codec import encode_request, encode_response
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.metadata import MetadataResponse, MetadataResponseBroker

SECONDS = 10


def buffers() -> Any:
    """Without limits."""
    return SimpleNamespace(
        for_requests=lambda _: 1 << 20,
        for_answers=lambda _: 1 << 20,
        visit=lambda _: None,
        lingers=lambda _: True,
        lingered=lambda _: None,
    )


def a_link() -> Link:
    log = SimpleNamespace(info=lambda *_, **__: None)
    owner: Any = SimpleNamespace(max_bytes=1 << 20, clients_authenticate=False, log=log, beat_s=1.0, buffers=buffers())
    own: Any = SimpleNamespace(listener="PLAINTEXT", peer="client")
    return Link(owner, own, 0)


def a_follower() -> Follower:
    async def tell(event: object) -> None: ...

    state: Any = SimpleNamespace(shards=(), acl_authorizer=None, serves_consumer_groups=True)
    return Follower([("h", 1)], Security(), View(None, ()), state, tell, lambda: None)


async def test_what_a_client_has_sent_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has gone, and the upstream broker does not read."""
    monkeypatch.setattr(link_module, "LINGER_S", 0.02)
    accepted: list[asyncio.StreamWriter] = []

    async def stall(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        accepted.append(writer)

    link = a_link()
    link._unsent = [bytes(30_000_000)]
    lost = asyncio.Event()
    monkeypatch.setattr(link, "upstream_lost", lambda _: lost.set())
    async with await asyncio.start_server(stall, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await asyncio.get_running_loop().create_connection(lambda: UpstreamSide(link), "127.0.0.1", port)
        async with asyncio.timeout(SECONDS):
            await lost.wait()
        for writer in accepted:
            writer.close()


@pytest.mark.parametrize("acks", [0, 1])
async def test_a_client_that_has_gone_is_not_connected(acks: int) -> None:
    """Unless a Produce of it has no answer for which it could wait."""
    link = a_link()
    never = asyncio.get_running_loop().create_future()
    link._owner.connect = lambda *_: never  # type: ignore[method-assign]
    link._owner.closed = lambda _: None  # type: ignore[method-assign]
    link._own.connection_lost = lambda _: None  # type: ignore[union-attr,method-assign]
    link._client = SimpleNamespace(is_closing=lambda: False)  # type: ignore[assignment]
    link._expect(Request(0, 9, 1, Route.UPSTREAM, is_answered=acks != 0))
    link._forward([b"produce"])
    await asyncio.sleep(0)
    opening = link._opening
    assert opening is not None
    link.connection_lost(None)
    await asyncio.sleep(0)
    assert never.cancelled() == (acks != 0)
    never.cancel()
    await asyncio.wait([opening])


async def test_a_flood_leaves_time_for_others() -> None:
    link, written = a_link(), []
    link._owner.coordinator = lambda: 1  # type: ignore[method-assign]
    link._owner.address_of = lambda *_: None  # type: ignore[method-assign]

    def write(answers: list[bytes]) -> None:
        written.extend(answers)

    link._client = SimpleNamespace(  # type: ignore[assignment]
        is_closing=lambda: False,
        write=lambda answer: write([answer]),
        writelines=write,
        pause_reading=lambda: None,
        resume_reading=lambda: None,
        set_write_buffer_limits=lambda **_: None,
    )
    asked = [encode_request(FindCoordinatorRequest(coordinator_keys=("g",)), 4, n, "c") for n in range(1_300)]
    link.data_received(b"".join(asked[:1_200]))
    assert len(written) == link_module.MOST_AT_ONCE
    link.data_received(b"".join(asked[1_200:]))
    for turns in range(1, 4):
        assert len(written) == min(turns * link_module.MOST_AT_ONCE, 1_300)
        await asyncio.sleep(0)
    assert [int.from_bytes(answer[4:8], "big") for answer in written] == list(range(1_300))
    assert not link._reading.reasons


async def test_heartbeats_behind_a_stalled_answer_take_no_more_memory_than_their_bytes() -> None:
    """A heartbeat has 22 bytes, and what is kept of an answer that waits takes ten times as much."""
    link, written, count = a_link(), bytearray(), 10_000
    link._client = SimpleNamespace(  # type: ignore[assignment]
        is_closing=lambda: False,
        write=written.extend,
        writelines=lambda answers: written.extend(b"".join(answers)),
        pause_reading=lambda: None,
        resume_reading=lambda: None,
        set_write_buffer_limits=lambda **_: None,
    )
    link._upstream = SimpleNamespace(  # type: ignore[assignment]
        write=lambda _: None, set_write_buffer_limits=lambda **_: None, get_write_buffer_size=lambda: 0
    )

    def answer(frame: bytes) -> None:
        link.own_answered(b"".join([(6).to_bytes(4, "big"), frame[8:12], b"\0\0"]))

    counted: list[int] = []
    link._own.forwards = counted.append  # type: ignore[union-attr,method-assign]
    link._own.data_received = answer  # type: ignore[union-attr,method-assign]
    link._owner.arrive = lambda _: None  # type: ignore[method-assign]
    fetch = encode_request(FetchRequest(topics=()), 11, 0, "c")
    heartbeat = HeartbeatRequest(group_id="", generation_id=0, member_id="")
    link.data_received(fetch + b"".join(encode_request(heartbeat, 0, n, None) for n in range(1, count)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(link._answers) <= link_module.MOST_OWED + link_module.MOST_AT_ONCE
    assert link._reading.reasons == {"backlog", "unanswered"}
    assert not written
    link.visit()
    assert counted[0] > len(link._backlog) + link_module.OWED_BYTES * 900
    link.upstream_received((4).to_bytes(4, "big") + bytes(4))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not link._reading.reasons
    assert len(link._answers) == 0
    numbers = [int.from_bytes(written[at + 4 : at + 8], "big") for at in range(8, len(written), 10)]
    assert numbers == list(range(1, count))


def test_a_stop_does_not_wait_for_the_upstream(upstream: KohortServer, caplog: pytest.LogCaptureFixture) -> None:
    upstream.create_topic("empty", 1)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    topics = (FetchTopic(topic="empty", partitions=(part,)),)
    with GatewayServer(upstream.bootstrap_servers) as gateway:
        gateway.wait_for_upstream()
        with upstream._cluster() as direct:
            leader = direct.topics(["empty"])["empty"].partitions[0].leader
        port = gateway.broker_ports()[sorted(gateway.gateway._view.brokers).index(leader)]
        with closing(Connection("127.0.0.1", port)) as client:
            client.send(FetchRequest(max_wait_ms=20_000, min_bytes=1, max_bytes=100, topics=topics))
            client.send(ListGroupsRequest())
            wait_for(lambda: any(link.unsent for link in gateway.gateway.links), "the second answer waits")
            with caplog.at_level("INFO", "kohort"):
                gateway.stop()
    assert "the gateway stops" in caplog.text
    assert "not read in time" not in caplog.text


def test_an_upstream_connection_leaves_the_last_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module.open_files, "refusal", lambda number: f"{number} files are open")
    link, done = a_link(), []
    link._client = SimpleNamespace(is_closing=lambda: False, close=lambda: done.append("client"))  # type: ignore[assignment]
    upstream: Any = SimpleNamespace(
        get_extra_info=lambda _: SimpleNamespace(fileno=lambda: 7), abort=lambda: done.append("upstream")
    )
    link.upstream_made(upstream)
    assert done == ["client", "upstream"]


async def test_a_leader_that_stalls_keeps_no_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "ENDS_S", 0.02)
    follower, closed = a_follower(), []
    never = asyncio.get_running_loop().create_future()
    stalled: Any = SimpleNamespace(closed=False, ask=lambda *_: never, close=lambda: closed.append(1))
    follower._connections["h", 1] = stalled
    await follower._ends_of(("h", 1), [("t", 0)])
    assert (closed, follower._connections) == ([1], {})


async def test_brokers_are_asked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some that cannot be reached do not take the time of the round."""
    follower, others = a_follower(), asyncio.Barrier(2)
    brokers = tuple(MetadataResponseBroker(node_id=port, host="h", port=port) for port in (1, 2, 3))

    async def ask_frame(*_: object) -> tuple[int, bytes]:
        metadata = MetadataResponse(brokers=brokers, cluster_id="c", topics=())
        return 12, encode_response(metadata, 12, 1, api_key=3)[4:]

    async def connect(address: tuple[str, int]) -> Any:
        if address != ("h", 1):
            await others.wait()
        follower._versions[address] = {3: (0, 12)}
        follower._connections[address] = SimpleNamespace(ask_frame=ask_frame, address="h:1", closed=False)  # type: ignore[assignment]
        return follower._connections[address]

    monkeypatch.setattr(follower, "_any", lambda: connect(("h", 1)))
    monkeypatch.setattr(follower, "_to", connect)
    async with asyncio.timeout(SECONDS):
        await follower._round()
    assert set(follower._versions) == {("h", 1), ("h", 2), ("h", 3)}
    del follower._connections["h", 3]
    follower._connections["h", 2].closed = True  # type: ignore[misc]
    async with asyncio.timeout(SECONDS):
        await follower._round()
    assert len(follower._connections) == 3, "their versions may be others now"
    brokers = brokers[:2]
    closed: list[int] = []
    follower._connections["h", 3].close = lambda *_: closed.append(3)  # type: ignore[method-assign]
    await follower._round()
    assert (len(follower._connections), len(follower._versions), closed) == (2, 2, [3])


async def test_rounds_that_clients_ask_for_have_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    follower, rounds = a_follower(), []

    async def round_() -> None:
        rounds.append(1)
        follower.hurry()

    monkeypatch.setattr(follower, "_round", round_)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5 * follower_module.LEAST_PAUSE_S):
            await follower.run()
    assert 1 <= len(rounds) <= 3


@pytest.mark.parametrize("port", [65_536, -1])
def test_a_broker_has_no_port_left(port: int) -> None:
    added = AddedListeners(Config(listeners="127.0.0.1:0"), [], lambda *_: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ListenFailed, match="no such port"):
        added.add(1, port)


async def test_a_first_contact_tries_the_next_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer at all does not take the whole time."""
    monkeypatch.setattr(gateway_module, "TARGET_S", 0.02)
    gateway, tried = Gateway([("stalls", 1), ("answers", 2)], Security()), []
    gateway._view = View(None, ())

    async def create_connection(protocol: object, host: str, *_: object, **__: object) -> None:
        tried.append(host)
        if host == "stalls":
            await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
    async with asyncio.timeout(SECONDS):
        await gateway.connect(0, asyncio.Protocol)
    assert tried == ["stalls", "answers"]
