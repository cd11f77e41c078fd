"""Held heartbeats need no timers of their own: the event loop has one for the next deadline of all."""

from __future__ import annotations

import asyncio
import time
from unittest import mock

from edges import Wire
from group_driver import consumer_beat, consumer_join

from kohort.testing import KohortServer
from kohort.wire.codec import encode_request

MEMBERS = 50


def test_one_timer_for_all_held_heartbeats() -> None:
    own_loop = mock.patch("kohort.testing.server.loop_factory", return_value=asyncio.SelectorEventLoop)
    with own_loop, KohortServer(group_consumer_heartbeat_interval_ms=5_000) as server:
        people = [(f"member-{number}", Wire(server.bootstrap_servers)) for number in range(MEMBERS)]
        for name, wire in people:
            wire.sendall(encode_request(consumer_join(name, group=f"group-of-{name}"), 1, 1, "raw"))
            wire.pull()
        for name, wire in people:
            wire.sendall(encode_request(consumer_beat(name, 1, group=f"group-of-{name}"), 1, 2, "raw"))

        async def counts() -> tuple[int, int]:
            loop = asyncio.get_running_loop()
            timers = sum(not handle.cancelled() for handle in loop._scheduled)  # type: ignore[attr-defined]
            assert server._server is not None
            shards = server._server._broker.state.shards
            return sum(shard.consumers.holds.count for shard in shards), timers

        held = timers = 0
        deadline = time.monotonic() + 30
        while held < MEMBERS:
            assert time.monotonic() < deadline, f"{held} are held"
            held, timers = asyncio.run_coroutine_threadsafe(counts(), server._loop).result(10)
        assert timers <= 3, "the next deadline, the sweep of idle connections, and the look for pauses"
        for _, wire in people:
            wire.close()
