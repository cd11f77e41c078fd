"""Bytes of clients that are slow, broken or malicious: frames are cut right, or that connection ends."""

from __future__ import annotations

import logging
import random
import socket
import struct
from collections.abc import Callable

import pytest
from echo_broker import fetched
from edges import Edge, eventually

from kohort.broker.turn import Closed, Frame


def frames_of(edge: Edge) -> list[bytes]:
    return [event.data for turn in edge.broker.turns for event in turn if isinstance(event, Frame)]


def test_frames_come_byte_by_byte_or_many_at_once(edge: Edge) -> None:
    wanted = [b"%d" % n for n in range(5_000)]
    with edge.wire() as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in struct.pack(">i", 5) + b"hello" + struct.pack(">i", 3) + b"you":
            wire.sendall(bytes((byte,)))
        assert [wire.pull(), wire.pull()] == [b"hello", b"you"]
        assert wire.ask(*wanted) == wanted


def test_answers_keep_their_order_after_a_parked_request(edge: Edge) -> None:
    with edge.wire() as wire, edge.wire() as other:
        wire.push(b"one", b"park", b"two", b"\0\x01100", b"three")
        assert wire.pull() == b"one"
        eventually(lambda: edge.broker.parked)
        assert other.ask(b"wake") == [b"wake"]
        assert [wire.pull() for _ in range(4)] == [b"woken", b"two", fetched(100), b"three"]


@pytest.mark.parametrize("length", [0, -1, -(2**31), 1_000_001, 2**31 - 1])
def test_absurd_lengths_end_the_connection_at_once(
    edge_of: Callable[..., Edge], length: int, caplog: pytest.LogCaptureFixture
) -> None:
    edge = edge_of(socket_request_max_bytes=1_000_000)
    with caplog.at_level(logging.INFO, "kohort"), edge.wire() as bad, edge.wire() as good:
        bad.sendall(struct.pack(">i", length) + b"x")
        assert bad.is_closed
        assert good.ask(b"still here") == [b"still here"]
    [line] = [line for line in caplog.messages if "connection closed" in line]
    assert str(length) in line
    assert "127.0.0.1:" in line


def test_garbage_hurts_nobody_else(edge: Edge) -> None:
    chance = random.Random(7)
    with edge.wire() as good:
        for _ in range(50):
            with edge.wire() as bad:
                bad.sendall(chance.randbytes(chance.randrange(1, 400)))
        assert good.ask(b"still here") == [b"still here"]
    eventually(lambda: len(edge.connections) == 0)
    assert edge.connections.inflow.total == 0


def test_requests_before_the_end_of_the_stream_are_handled(edge: Edge) -> None:
    """A producer with acks=0 may send and leave."""
    with edge.wire() as wire:
        wire.push(*(b"%d" % n for n in range(1_000)))
    eventually(lambda: len(frames_of(edge)) == 1_000)
    eventually(lambda: not edge.broker.backlogs)


def test_half_closed_is_closed(edge: Edge) -> None:
    with edge.wire() as wire:
        wire.push(b"park")
        eventually(lambda: edge.broker.parked)
        wire.shutdown(socket.SHUT_WR)
        assert wire.is_closed
    eventually(lambda: not edge.broker.parked)
    assert isinstance(edge.broker.turns[-1][-1], Closed)


def test_a_client_vanishes_while_its_request_is_parked(edge: Edge) -> None:
    with edge.wire() as wire:
        wire.push(b"park", b"waiting behind it")
        eventually(lambda: edge.broker.backlogs and any(edge.broker.backlogs.values()))
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close sends a reset
    eventually(lambda: not edge.broker.parked)
    with edge.wire() as other:
        assert other.ask(b"wake") == [b"wake"]
    eventually(lambda: edge.connections.inflow.total == 0)


def test_the_broker_closes_a_connection_after_what_it_sent(edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kohort"), edge.wire() as wire:
        wire.push(b"\0\x01300000", b"bad", b"never handled")
        assert wire.pull() == fetched(300_000)
        assert wire.is_closed
    assert any('reason="it said bad"' in line for line in caplog.messages)


def test_lines_that_clients_cause_are_limited(edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kohort"):
        for _ in range(60):
            with edge.wire() as wire:
                wire.push(b"bad")
                assert wire.is_closed
    assert len([line for line in caplog.messages if "connection closed" in line]) == 10
