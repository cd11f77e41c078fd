"""Held heartbeats need no timers of their own: the event loop has one for the next deadline of all."""

from __future__ import annotations

import asyncio
import time
from unittest import mock

from edges import Wire

from kohort.testing import KohortServer
from kohort.wire.codec import encode_request
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBERS = 50


def beat(name: str, epoch: int) -> bytes:
    joins = epoch == 0
    request = ConsumerGroupHeartbeatRequest(
        group_id=f"group-of-{name}",
        member_id=name,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000 if joins else -1,
        subscribed_topic_names=("nowhere",) if joins else None,
        topic_partitions=() if joins else None,
    )
    return encode_request(request, 1, 1, "raw")


def test_one_timer_for_all_held_heartbeats() -> None:
    own_loop = mock.patch("kohort.testing.server.loop_factory", return_value=asyncio.SelectorEventLoop)
    with own_loop, KohortServer() as server:
        people = [(f"member-{number}", Wire(server.bootstrap_servers)) for number in range(MEMBERS)]
        for name, wire in people:
            wire.sendall(beat(name, 0))
            wire.pull()
        for name, wire in people:
            wire.sendall(beat(name, 1))

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
        assert timers <= 2, "the next deadline, and the sweep of idle connections"
        for _, wire in people:
            wire.close()
