"""The harness of hostile clients itself; `make test-hostile` runs the clients."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from itertools import islice

import pytest
from hostile_catalogue import BY_NAME, CATALOGUE
from hostile_client import Client, Done, End, play
from hostile_preparation import PRODUCER_IDS, PRODUCERS
from hostile_run import KINDS, STRICT, Figures, Round

SMALL = ("gzip-bombs", "zstd-bombs")
"""The first connection of these sends what takes a second to make."""


def test_every_client_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(CATALOGUE) > 40
    assert sum(client.short for client in CATALOGUE) >= 10


@pytest.mark.parametrize("client", CATALOGUE, ids=lambda client: client.name)
def test_every_client_has_something_to_send(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(PRODUCERS):  # the preparation gets them from the server
        monkeypatch.setitem(PRODUCER_IDS, number, (number, 0))
    pieces = list(islice(client.send(int(client.name in SMALL)), 2))
    assert all(isinstance(piece, bytes) for piece in pieces)
    assert pieces or client.name in ("connections", "silent")


@pytest.mark.parametrize("ends", End)
def test_a_client_comes_again_until_its_time_is_over(ends: End) -> None:
    client = Client("test", "", lambda n: [b"x"], connections=2, stays_s=0.05, ends=ends)
    done = Done()
    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(play(client, server.getsockname()[:2], time.monotonic() + 0.5, done))
    assert done.connections > 2
    assert done.sent == done.connections


def test_a_client_that_does_not_read_sees_that_its_connection_is_closed() -> None:
    done = Done()
    client = Client("test", "", lambda n: [b"x"], reads=0)

    async def close_one() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            playing = asyncio.create_task(play(client, server.getsockname()[:2], time.monotonic() + 60, done))
            for _ in range(2):
                accepted, _ = await loop.sock_accept(server)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                accepted.close()
            playing.cancel()

    asyncio.run(close_one())
    assert done.closed == 1


def test_the_parts_of_a_servers_work_are_timed() -> None:
    with Round(steps=True) as server:
        found = server.attack(["tiny-batches"], 0.5)
    parts = {line.split("  ")[-1] for line in found.steps}
    assert found.violations == []
    assert {"turn", "commit (writer)"} <= parts, "others may take less than half a millisecond"


def figures(milliseconds: float, **changed: object) -> Figures:
    same = dict.fromkeys(KINDS, milliseconds)
    return Figures("test", same, same, same, [], **{"memory_mb": 100.0, "exit_s": 0.5, **changed})  # type: ignore[arg-type]


def test_what_exceeds_a_limit_is_named() -> None:
    base = figures(3.0)
    assert figures(52.0).exceeds(STRICT, base) == []
    assert figures(54.0).exceeds(STRICT, base) == ["heartbeat p99 is 51 ms beyond the base, 50 are allowed"]
    assert len(figures(900.0).exceeds(STRICT, base)) == len(KINDS)
    assert "600 MB" in figures(3.0, memory_mb=600.0).exceeds(STRICT, base)[0]
    assert "SIGTERM" in figures(3.0, exit_s=3.0).exceeds(STRICT, base)[0]
