"""Memory is bounded whatever clients do: slow readers, pipelining without end, large requests, many connections."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from echo_broker import fetched
from edges import Edge, SlowStorage, Wire, eventually

from kohort.broker.turn import Frame
from kohort.server.connection import ALL_TURN_BYTES, FAIR_BYTES

MIB = 1 << 20


def flood(wire: Wire, data: bytes, limit_s: float = 10) -> int:
    """Send until the server does not read any more; returns the bytes that went out."""
    wire.settimeout(0.3)
    sent = 0
    deadline = time.monotonic() + limit_s
    try:
        while time.monotonic() < deadline:
            sent += wire.send(data)
    except TimeoutError:
        return sent
    finally:
        wire.settimeout(10)
    raise AssertionError(f"the server took {sent} bytes and went on reading")


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_a_slow_reader_is_not_read_and_builds_up_no_answers(edge_of: Callable[..., Edge]) -> None:
    """Each tiny fetch asks for a megabyte. Nobody may make the server hold thousands of those answers."""
    edge = edge_of(connection_max_queued_bytes=2 * MIB)
    with edge.wire() as slow, edge.wire() as good:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        slow.push(*[b"\0\x011048576"] * 5_000)
        eventually(lambda: any(c.unread for c in edge.connections._open.values()))
        assert good.ask(b"quick") == [b"quick"]
        [connection] = [c for c in edge.connections._open.values() if c.unread]
        assert connection.unsent < 6 * MIB
        for _ in range(200):
            assert slow.pull() == fetched(MIB)
        assert good.ask(b"quick") == [b"quick"]


def test_unread_answers_are_bounded_over_all_connections(edge_of: Callable[..., Edge]) -> None:
    """Ten clients ask for 12 MiB each and read nothing, where 16 MiB in all are allowed."""
    edge = edge_of(queued_max_response_bytes=16 * MIB)
    with ExitStack() as stack:
        good = stack.enter_context(edge.wire())
        for _ in range(10):
            slow = stack.enter_context(edge.wire())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            slow.push(b"\0\x01%d" % (12 * MIB))
            assert good.ask(b"quick") == [b"quick"]
        eventually(lambda: len(edge.connections) < 11)
        eventually(lambda: sum(c.unsent for c in edge.connections._open.values()) <= 16 * MIB)
        assert good.ask(b"quick") == [b"quick"]


def test_unread_answers_without_a_turn_are_bounded_too(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(queued_max_response_bytes=16 * MIB)
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(edge.wire()).push(b"at once %d" % (10 * MIB))
        eventually(lambda: edge.connections._last_id == 6)
        eventually(lambda: len(edge.connections) < 6)
        eventually(lambda: sum(c.unsent for c in edge.connections._open.values()) <= 16 * MIB)


def test_a_request_that_waits_for_a_later_turn_is_no_stall(edge: Edge) -> None:
    with edge.wire() as wire, edge.wire() as other:
        wire.push(b"park", b"x" * 1_000)
        eventually(lambda: edge.broker.parked and len(edge.connections) == 2)
        eventually(lambda: any(c.waiting_bytes for c in edge.connections._open.values()))
        [connection] = [c for c in edge.connections._open.values() if c.waiting_bytes]
        assert connection.is_awaited
        parked, edge.broker.parked = edge.broker.parked, []
        assert not connection.is_awaited
        edge.broker.parked = parked
        other.ask(b"wake")


def test_what_a_turn_takes_is_bounded_over_all_connections(edge_of: Callable[..., Edge]) -> None:
    """Four clients send 4 MB each while a commit takes long. The next turn takes 2 MB of them, and a share of each."""
    storage = SlowStorage()
    storage.may_commit.set()
    edge = edge_of(storage=storage)
    edge.hold_commits_in_a_thread()
    request = b"x" * 100_000
    with ExitStack() as stack:
        writer = stack.enter_context(edge.wire())
        clients = [stack.enter_context(edge.wire()) for _ in range(4)]
        for client in clients:
            assert client.ask(b"here") == [b"here"]
        storage.may_commit.clear()
        writer.push(b"write")
        eventually(lambda: edge.broker.written)
        first = len(edge.broker.turns)
        senders = [threading.Thread(target=client.push, args=[request] * 40) for client in clients]
        for sender in senders:
            sender.start()
        eventually(lambda: sum(not c.gate_open for c in edge.connections._open.values()) == len(clients))
        storage.may_commit.set()
        assert writer.pull() == b"write"
        for client in clients:
            assert [client.pull() for _ in range(40)] == [request] * 40
        for sender in senders:
            sender.join()
        turns = [[event for event in turn if isinstance(event, Frame)] for turn in edge.broker.turns[first:]]
    size_of = [sum(len(event.data) for event in turn) for turn in turns]
    shares = Counter(event.connection for event in next(filter(None, turns)))
    assert len(shares) == len(clients)
    assert all(share * len(request) > FAIR_BYTES for share in shares.values())
    assert max(size_of) < ALL_TURN_BYTES + len(clients) * (FAIR_BYTES + len(request))
    assert sum(size_of) == len(clients) * 40 * len(request)


def test_pipelining_behind_a_parked_request_is_bounded(edge: Edge) -> None:
    with edge.wire() as wire, edge.wire() as other:
        wire.push(b"park")
        eventually(lambda: edge.broker.parked)
        piece = frame(b"x" * 1_000) * 100
        sent = flood(wire, piece)
        assert sent < 64 * MIB
        assert sum(len(f) for backlog in edge.broker.backlogs.values() for f in backlog) < 10 * MIB
        other.ask(b"wake")
        assert wire.pull() == b"woken"
        for _ in range(sent // 1_004):
            assert wire.pull() == b"x" * 1_000
    eventually(lambda: edge.connections.inflow.total == 0)


def test_begun_requests_are_bounded_over_all_connections_and_finish_one_by_one(edge_of: Callable[..., Edge]) -> None:
    """Eight clients send 3 MiB each where 4 MiB in all are allowed."""
    edge = edge_of(queued_max_request_bytes=4 * MIB)
    request = b"y" * (3 * MIB)
    answers: list[bytes] = []

    def send_one() -> None:
        with edge.wire() as wire:
            answers.extend(wire.ask(request))

    clients = [threading.Thread(target=send_one) for _ in range(8)]
    peak = 0
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        peak = max(peak, edge.connections.inflow.total)
        time.sleep(0.001)
    assert answers == [request] * 8
    # Above the limit come a read of each socket, and requests that complete, one by one, before a turn takes them: how
    # many depends on the machine's load. Without the limit it would be all eight.
    assert peak < 4 * MIB + 4 * len(request)
    eventually(lambda: edge.connections.inflow.total == 0)


def test_clients_that_stall_in_the_middle_of_a_request_cannot_starve_the_others(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(queued_max_request_bytes=MIB)
    with edge.wire() as first, edge.wire() as second, edge.wire() as large, edge.wire() as small:
        for staller in (first, second):
            staller.sendall(struct.pack(">i", 350_000) + bytes(349_000))
        eventually(lambda: edge.connections.inflow.total >= 2 * 349_000)
        large.push(b"y" * 200_000)
        eventually(lambda: edge.connections.inflow._waiting)
        assert small.ask(b"small requests do not wait") == [b"small requests do not wait"]
        assert large.pull() == b"y" * 200_000
        assert first.is_closed
        assert second.is_closed
    eventually(lambda: edge.connections.inflow.total == 0)


def test_requests_that_arrive_during_a_sync_are_one_turn(edge_of: Callable[..., Edge]) -> None:
    """Group commit."""
    storage = SlowStorage()
    edge = edge_of(storage)
    with edge.wire() as first, edge.wire() as second:
        # MemoryStorage commits in place; this one is not to.
        first.push(b"hello")
        assert first.pull() == b"hello"
        edge.hold_commits_in_a_thread()
        first.push(b"write")
        eventually(lambda: edge.broker.written == 1)
        turns = len(edge.broker.turns)
        for _ in range(20):
            second.push(b"write")
        eventually(lambda: edge.connections._taken_bytes == 100)
        assert len(edge.broker.turns) == turns
        first.settimeout(0.05)
        with pytest.raises(TimeoutError):
            first.pull()  # not acknowledged before it is durable
        first.settimeout(10)
        storage.may_commit.set()
        assert first.pull() == b"write"
        assert [second.pull() for _ in range(20)] == [b"write"] * 20
        assert storage.sizes == [1, 20]


def test_idle_connections_are_closed(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(connections_max_idle_ms=200)
    with edge.wire() as idle, edge.wire() as lively:
        assert idle.ask(b"hello") == [b"hello"]
        assert lively.ask(b"hello") == [b"hello"]
        eventually(lambda: lively.ask(b"still here") == [b"still here"] and len(edge.connections) == 1)
        assert idle.is_closed
        assert lively.ask(b"still here") == [b"still here"]
