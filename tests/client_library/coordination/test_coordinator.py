"""The public coordinator against a real server: order of the calls, hand-over, faults, misuse."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from recording_coordinator import Recording
from running_tasks import running, until

from kohort.client import NO_GENERATION, Closed, Coordinator, Generation, KafkaError, Misuse, ServerError
from kohort.client.errors import TimedOut, Unreachable
from kohort.client.wire.async_connection import AsyncConnection
from kohort.client.wire.discovery import Discovery
from kohort.testing import KohortServer
from kohort.wire.errors import ErrorCode


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[AsyncConnection]:
    """All connections to coordinators, oldest first."""
    opened: list[AsyncConnection] = []
    open_coordinator = Discovery.open_coordinator

    async def recorded(*arguments: Any) -> Any:
        address, connection = await open_coordinator(*arguments)
        opened.append(connection)
        return address, connection

    monkeypatch.setattr(Discovery, "open_coordinator", recorded)
    return opened


@contextlib.asynccontextmanager
async def working(*members: Recording) -> AsyncIterator[None]:
    """The members live in tasks of their own; they are closed at the end."""
    try:
        async with running(*(member.run() for member in members)):
            yield
    finally:
        for member in members:
            await member.close()


def of(*members: Recording) -> list[bytes | None]:
    return [member.assignment for member in members]


# -- the order of the calls


async def test_the_rounds_of_a_member_until_it_leaves(servers: str, unique: str) -> None:
    async with Recording(servers, unique) as alone:
        assert alone.generation == NO_GENERATION
        assert alone.rejoin_needed
        await asyncio.gather(alone.ensure_active_group(), alone.ensure_active_group())  # two tasks, one round
        assert not alone.rejoin_needed
        generation = alone.generation
        assert generation == Generation(1, alone.member_id, "first")
        assert alone.generation_if_stable == generation
        await alone.ensure_active_group()  # nothing to do
        alone.name = "changed"
        alone.request_rejoin("I have changed")
        assert alone.rejoin_needed
        await alone.wait_for_rejoin()
        assert alone.generation_if_stable is not None  # until on_join_prepare has returned
        await alone.ensure_active_group()
        assert alone.seen[0].metadata == b"changed"
    round_of = [("metadata",), ("perform", "first")]
    assert alone.calls == [
        *[("prepare", -1, ""), *round_of, ("complete", 1, generation.member_id, "first", b"0 of 1")],
        *[("prepare", 1, generation.member_id), *round_of, ("complete", 2, generation.member_id, "first", b"0 of 1")],
        ("leave",),
    ]
    assert alone.generation == NO_GENERATION
    assert alone.generation_if_stable is None


async def test_members_come_and_go(servers: str, unique: str) -> None:
    a, b, c = (Recording(servers, unique, name) for name in ("a", "b", "odd"))
    async with working(a, b, c):
        await until(lambda: of(a, b, c) == [b"0 of 3", b"1 of 3", b"2 of 3"])
        ids = {a.member_id, b.member_id, c.member_id}
        leader = next(member for member in (a, b, c) if len(member.seen) == 3)
        assert {member.member_id for member in leader.seen} == ids
        assert c.generation.protocol == "first", "all have it; c would prefer another"
        assert a.generation.generation_id == b.generation.generation_id == c.generation.generation_id
        before = b.generation
        await a.close()
        await until(lambda: of(b, c) == [b"0 of 2", b"1 of 2"])
        assert ("prepare", before.generation_id, before.member_id) in b.calls
        assert b.generation.generation_id > before.generation_id


async def test_a_rebalance_is_pushed(servers_of_kohort: str, unique: str) -> None:
    """Heartbeats are a minute apart, so no member learns of it from its next heartbeat. Kafka does not push."""
    slow = {"session_timeout_ms": 200_000, "heartbeat_interval_ms": 60_000}
    a, b = (Recording(servers_of_kohort, unique, name, **slow) for name in "ab")
    async with working(a):
        await until(lambda: a.assignment == b"0 of 1")
        async with working(b):
            await until(lambda: of(a, b) == [b"0 of 2", b"1 of 2"])
        await until(lambda: a.assignment == b"0 of 1")


async def test_ensure_active_group_may_be_cancelled_and_called_again(unique: str) -> None:
    with KohortServer(compatibility="kafka", group_initial_rebalance_delay_ms=1_000) as server:
        async with Recording(server.bootstrap_servers, unique) as alone:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await alone.ensure_active_group()
            assert alone.names == ["prepare", "metadata"]
            await alone.ensure_active_group()
            assert alone.names == ["prepare", "metadata", "perform", "complete"]


# -- static members


async def test_a_static_member_comes_back_to_its_place(servers: str, unique: str) -> None:
    a, b = Recording(servers, unique, "a", group_instance_id="i-a"), Recording(servers, unique, "b")
    async with working(a, b):
        await until(lambda: of(a, b) == [b"0 of 2", b"1 of 2"])
        generation = b.generation
        await a.close()
        again = Recording(servers, unique, "a", group_instance_id="i-a")
        async with working(again):
            await until(lambda: again.assignment == b"0 of 2")
            assert again.generation.generation_id == generation.generation_id == b.generation.generation_id
            await again.close(leave=True)
            await until(lambda: b.assignment == b"0 of 1")  # that was said aloud


async def test_a_static_member_is_fenced_by_its_successor(servers: str, unique: str) -> None:
    async with (
        Recording(servers, unique, group_instance_id="i", heartbeat_interval_ms=50) as former,
        Recording(servers, unique, group_instance_id="i") as successor,
    ):
        await former.ensure_active_group()
        await successor.ensure_active_group()
        await former.wait_for_rejoin()
        for _ in range(2):  # for good
            with pytest.raises(ServerError, match="'i'") as caught:
                await former.ensure_active_group()
            assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID
        assert former.generation == NO_GENERATION
        assert [generation for generation, _ in former.lost] == [1]
        assert not successor.rejoin_needed


# -- faults


async def test_a_broken_connection_costs_no_rebalance(
    servers: str, unique: str, connections: list[AsyncConnection]
) -> None:
    async with Recording(servers, unique, heartbeat_interval_ms=100) as alone:
        await alone.ensure_active_group()
        for count in (1, 2, 3):
            connections[-1].close()
            await until(lambda count=count: len(connections) > count)  # type: ignore[misc]
        assert alone.generation_if_stable is not None
        assert alone.generation.generation_id == 1


async def test_the_coordinator_moves(server: KohortServer, unique: str, connections: list[AsyncConnection]) -> None:
    async with Recording(server.bootstrap_servers, unique, heartbeat_interval_ms=100) as alone:
        await alone.ensure_active_group()
        addresses = dict(zip(server.broker_ids, server.bootstrap_servers.split(","), strict=True))
        for broker in (*server.broker_ids, *server.broker_ids):
            await asyncio.to_thread(server.move_group, unique, broker)
            await until(lambda broker=broker: connections[-1].address == addresses[broker])  # type: ignore[misc]
        assert alone.generation_if_stable is not None
        assert alone.names.count("complete") == 1


async def test_the_server_restarts(own_server: Any, unique: str, connections: list[AsyncConnection]) -> None:
    servers = own_server.bootstrap_servers
    times = {"session_timeout_ms": 120_000, "heartbeat_interval_ms": 100}
    a, b = (Recording(servers, unique, name, **times) for name in "ab")
    async with working(a, b):
        await until(lambda: of(a, b) == [b"0 of 2", b"1 of 2"])
        generation = a.generation
        for stop in (own_server.stop, own_server.kill):
            await asyncio.to_thread(stop)
            await until(lambda: all(connection.closed for connection in connections))
            await asyncio.to_thread(own_server.start)
            await until(lambda: sum(not connection.closed for connection in connections) >= 2)
        assert a.generation_if_stable == generation
        c = Recording(servers, unique, "c")
        async with working(c):
            await until(lambda: of(a, b, c) == [b"0 of 3", b"1 of 3", b"2 of 3"])


async def test_an_assignment_is_lost_when_the_session_is_over(own_server: Any, unique: str) -> None:
    times = {"session_timeout_ms": 1_500, "heartbeat_interval_ms": 100}
    async with Recording(own_server.bootstrap_servers, unique, **times) as alone:
        await alone.ensure_active_group()
        await asyncio.to_thread(own_server.kill)
        await alone.wait_for_rejoin()
        assert alone.generation_if_stable is None
        assert alone.generation.generation_id == -1
        assert [generation for generation, _ in alone.lost] == [1]
        await asyncio.to_thread(own_server.start)
        await alone.ensure_active_group()
        assert alone.generation.generation_id > 1
        assert [call[1] for call in alone.calls if call[0] == "prepare"] == [-1, -1]


async def test_a_member_that_does_not_come_back_is_removed(servers: str, unique: str) -> None:
    times = {"rebalance_timeout_ms": 300, "heartbeat_interval_ms": 50}
    async with Recording(servers, unique, "a", **times) as sleeper:
        await sleeper.ensure_active_group()
        b = Recording(servers, unique, "b", **times)
        async with working(b):
            await until(lambda: b.assignment == b"0 of 1")
            await until(lambda: sleeper.lost != [])
            assert sleeper.generation_if_stable is None
            assert sleeper.generation == NO_GENERATION
            async with working(sleeper):
                await until(lambda: of(sleeper, b) == [b"0 of 2", b"1 of 2"])


async def test_closing_does_not_wait_for_the_group_to_form(unique: str) -> None:
    with KohortServer(compatibility="kafka", group_initial_rebalance_delay_ms=60_000) as server:
        given_up, ensures = (Recording(server.bootstrap_servers, unique + name) for name in "ab")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await given_up.ensure_active_group()
        ensuring = asyncio.create_task(ensures.ensure_active_group())
        await until(lambda: ensures.names == ["prepare", "metadata"])
        for member in (given_up, ensures):
            began = time.monotonic()
            await member.close()
            assert time.monotonic() - began < 4
        with pytest.raises(Closed):
            await ensuring


async def test_a_cluster_that_never_answers(unique: str) -> None:
    async with Recording("127.0.0.1:1", unique, bootstrap_timeout_ms=200) as alone:
        for _ in range(2):
            with pytest.raises(Unreachable, match="connection refused"):
                await alone.ensure_active_group()


# -- misuse


async def test_a_group_of_another_protocol_type(servers: str, unique: str) -> None:
    class Stranger(Recording):
        protocol_type = "strangers"

    async with Recording(servers, unique) as first, Stranger(servers, unique) as stranger:
        await first.ensure_active_group()
        with pytest.raises(ServerError, match="not of type 'strangers'") as caught:
            await stranger.ensure_active_group()
        assert caught.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await first.close()
        await stranger.ensure_active_group()  # now that they are gone


@pytest.mark.parametrize("which", ["on_join_prepare", "metadata", "perform_assignment", "on_join_complete"])
async def test_a_callback_that_raises_is_called_again(servers: str, unique: str, which: str) -> None:
    async with Recording(servers, unique, heartbeat_interval_ms=50) as alone:
        kept = getattr(alone, which)

        def breaks(*_: Any) -> None:
            raise LookupError("of my own")

        breaks.__name__ = which
        setattr(alone, which, breaks)
        for _ in range(2):
            with pytest.raises(LookupError, match="of my own") as caught:
                await alone.ensure_active_group()
            assert any(which in note and unique in note for note in caught.value.__notes__)
        setattr(alone, which, kept)
        await alone.ensure_active_group()
        assert alone.assignment == b"0 of 1"
        assert alone.names[-1] == "complete"


async def blocks(*_: Any) -> None:
    await asyncio.sleep(0)
    time.sleep(0.3)


async def waits(*_: Any) -> None:
    await asyncio.Event().wait()


def names_a_stranger(*_: Any) -> dict[str, bytes]:
    return {"somebody": b"else"}


@pytest.mark.parametrize(
    ("which", "does", "settings", "error", "match"),
    [
        ("on_join_complete", blocks, {"session_timeout_ms": 150, "heartbeat_interval_ms": 50}, Misuse,
         "on_join_complete blocked the event loop"),
        ("on_join_prepare", waits, {"rebalance_timeout_ms": 200}, TimedOut, "on_join_prepare took longer"),
        ("perform_assignment", names_a_stranger, {}, Misuse, "somebody"),
    ],
)  # fmt: skip
async def test_callbacks_that_break_a_rule(
    servers: str,
    unique: str,
    which: str,
    does: Callable[..., Any],
    settings: dict[str, int],
    error: type[Exception],
    match: str,
) -> None:
    async with Recording(servers, unique, **settings) as alone:
        does.__name__ = which
        setattr(alone, which, does)
        with pytest.raises(error, match=match):
            await alone.ensure_active_group()
        assert alone.generation_if_stable is None  # by the clock, whatever was received


async def test_heartbeats_go_on_while_a_callback_works(servers: str, unique: str) -> None:
    async with Recording(servers, unique, session_timeout_ms=3_000, heartbeat_interval_ms=50) as alone:

        async def on_join_complete(*_: Any) -> None:
            await asyncio.sleep(4)  # longer than the session

        alone.on_join_complete = on_join_complete  # type: ignore[method-assign]
        await alone.ensure_active_group()
        assert alone.generation_if_stable is not None
        assert alone.lost == []


async def test_calls_inside_a_callback(servers: str, unique: str) -> None:
    async with Recording(servers, unique) as alone:
        for call in (alone.ensure_active_group, alone.close):

            async def on_join_prepare(*_: Any, call: Any = call) -> None:
                await call()

            alone.on_join_prepare = on_join_prepare  # type: ignore[method-assign]
            with pytest.raises(Misuse, match="inside a callback"):
                await alone.ensure_active_group()


async def test_use_after_close(servers: str, unique: str) -> None:
    closed = Recording(servers, unique)
    await closed.ensure_active_group()
    waiting = asyncio.create_task(closed.wait_for_rejoin())
    await asyncio.sleep(0)
    await closed.close()
    await closed.close()
    with pytest.raises(Closed):
        await waiting
    for call in (closed.ensure_active_group, closed.wait_for_rejoin):
        with pytest.raises(Closed, match=unique):
            await call()
    with pytest.raises(Closed):
        closed.request_rejoin("why not")


async def test_another_loop(servers: str, unique: str) -> None:
    member = Recording(servers, unique)
    with pytest.raises(Misuse, match="no event loop"):
        await asyncio.to_thread(member.request_rejoin, "nobody awaits")

    async def elsewhere() -> None:
        with pytest.raises(Misuse, match="another event loop"):
            await member.ensure_active_group()

    await member.ensure_active_group()
    await asyncio.to_thread(asyncio.run, elsewhere())
    await member.close()


def test_impossible_settings() -> None:
    class Nameless(Recording):
        protocol_type = ""

    class Idle(Coordinator):
        protocol_type = "idle"

    with pytest.raises(TypeError, match=r"Idle .*metadata.*perform_assignment"):
        Idle("localhost:9092", "group")  # type: ignore[abstract]
    with pytest.raises(ValueError, match="Nameless has no protocol_type"):
        Nameless("localhost:9092", "group")
    with pytest.raises(ValueError, match="group id"):
        Recording("localhost:9092", "")
    with pytest.raises(ValueError, match="heartbeat_interval_ms"):
        Recording("localhost:9092", "group", session_timeout_ms=1_000, heartbeat_interval_ms=1_000)
    with pytest.raises(ValueError, match="HOST:PORT"):
        Recording("", "group")


async def test_a_session_that_the_broker_does_not_allow(servers: str, unique: str) -> None:
    async with Recording(servers, unique, session_timeout_ms=50, heartbeat_interval_ms=10) as alone:
        with pytest.raises(KafkaError, match=r"session_timeout_ms is 50, .*group\.min\.session\.timeout\.ms") as caught:
            await alone.ensure_active_group()
        assert caught.value.code == ErrorCode.INVALID_SESSION_TIMEOUT
