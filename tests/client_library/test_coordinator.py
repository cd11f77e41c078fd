"""The public coordinator against a real server: order of the calls, hand-over, faults, misuse."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from recording_coordinator import Recording, until

from kohort.client import NO_GENERATION, Closed, Coordinator, KafkaError, Misuse, ServerError
from kohort.client.errors import TimedOut, Unreachable
from kohort.testing import KohortServer
from kohort.wire.errors import ErrorCode


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(brokers=2, group_min_session_timeout_ms=100) as running:
        yield running


@contextlib.asynccontextmanager
async def working(*members: Recording) -> AsyncIterator[None]:
    """The members live in tasks of their own; they are closed at the end."""
    tasks = [asyncio.create_task(member.run()) for member in members]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in members:
            await member.close()


def of(*members: Recording) -> list[bytes | None]:
    return [member.assignment for member in members]


# -- the order of the calls


def test_the_first_round_and_the_end(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique) as alone:
            assert alone.generation == NO_GENERATION
            assert alone.rejoin_needed
            await alone.ensure_active_group()
            assert not alone.rejoin_needed
            generation = alone.generation
            assert (generation.generation_id, generation.member_id, generation.protocol) == (
                1,
                alone.member_id,
                "first",
            )
            assert alone.generation_if_stable == generation
            await alone.ensure_active_group()  # nothing to do
        assert alone.calls == [
            ("prepare", -1, ""),
            ("metadata",),
            ("perform", "first"),
            ("complete", 1, generation.member_id, "first", b"0 of 1"),
            ("leave",),
        ]
        assert alone.generation == NO_GENERATION
        assert alone.generation_if_stable is None

    asyncio.run(story())


def test_members_come_and_go(servers: str, unique: str) -> None:
    async def story() -> None:
        a, b, c = (Recording(servers, unique, name) for name in "abc")
        async with working(a, b, c):
            await until(lambda: of(a, b, c) == [b"0 of 3", b"1 of 3", b"2 of 3"])
            ids = {a.member_id, b.member_id, c.member_id}
            leader = next(member for member in (a, b, c) if len(member.seen) == 3)
            assert {member.member_id for member in leader.seen} == ids
            assert a.generation.generation_id == b.generation.generation_id == c.generation.generation_id
            before = b.generation
            await a.close()
            await until(lambda: of(b, c) == [b"0 of 2", b"1 of 2"])
            assert ("prepare", before.generation_id, before.member_id) in b.calls
            assert b.generation.generation_id > before.generation_id

    asyncio.run(story())


def test_a_rebalance_is_pushed(servers_of_kohort: str, unique: str) -> None:
    """Heartbeats are a minute apart, so no member learns of it from its next heartbeat. Kafka does not push."""

    async def story() -> None:
        slow = {"session_timeout_ms": 200_000, "heartbeat_interval_ms": 60_000}
        a, b = (Recording(servers_of_kohort, unique, name, **slow) for name in "ab")
        async with working(a):
            await until(lambda: a.assignment == b"0 of 1")
            async with working(b):
                await until(lambda: of(a, b) == [b"0 of 2", b"1 of 2"])
            await until(lambda: a.assignment == b"0 of 1")

    asyncio.run(story())


def test_the_group_takes_a_protocol_that_all_have(servers: str, unique: str) -> None:
    async def story() -> None:
        odd, a = Recording(servers, unique, "odd"), Recording(servers, unique, "a")
        async with working(odd, a):
            await until(lambda: sorted(map(str, of(odd, a))) == ["b'0 of 2'", "b'1 of 2'"])
            assert odd.generation.protocol == "first"

    asyncio.run(story())


def test_a_rejoin_on_request_asks_for_metadata_again(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique) as alone:
            await alone.ensure_active_group()
            alone.name = "changed"
            alone.request_rejoin("I have changed")
            assert alone.rejoin_needed
            await alone.wait_for_rejoin()
            assert alone.generation_if_stable is not None  # until on_join_prepare has returned
            await alone.ensure_active_group()
            assert alone.seen[0].metadata == b"changed"
            assert alone.generation.generation_id == 2
            assert alone.names == ["prepare", "metadata", "perform", "complete"] * 2

    asyncio.run(story())


def test_ensuring_may_be_given_up_and_taken_up_again(unique: str) -> None:
    async def story(servers: str) -> None:
        async with Recording(servers, unique) as alone:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await alone.ensure_active_group()
            assert alone.names == ["prepare", "metadata"]
            await alone.ensure_active_group()
            assert alone.names == ["prepare", "metadata", "perform", "complete"]

    with KohortServer(group_initial_rebalance_delay_ms=1_000) as server:
        asyncio.run(story(server.bootstrap_servers))


def test_two_tasks_may_ensure_at_once(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique) as alone:
            await asyncio.gather(alone.ensure_active_group(), alone.ensure_active_group())
            assert alone.names == ["prepare", "metadata", "perform", "complete"]

    asyncio.run(story())


# -- static members


def test_a_static_member_comes_back_to_its_place(servers: str, unique: str) -> None:
    async def story() -> None:
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

    asyncio.run(story())


def test_a_static_member_is_fenced_by_its_successor(servers: str, unique: str) -> None:
    async def story() -> None:
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

    asyncio.run(story())


# -- faults


def test_a_broken_connection_costs_no_rebalance(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique, heartbeat_interval_ms=100) as alone:
            await alone.ensure_active_group()
            member = alone._session._member
            for _ in range(3):
                connection = member._connection
                assert connection is not None
                assert connection._transport is not None
                connection._transport.abort()
                await until(lambda lost=connection: member._connection not in (None, lost))
            assert alone.generation_if_stable is not None
            assert alone.generation.generation_id == 1

    asyncio.run(story())


def test_the_coordinator_moves(server: KohortServer, unique: str) -> None:
    async def story() -> None:
        async with Recording(server.bootstrap_servers, unique, heartbeat_interval_ms=100) as alone:
            await alone.ensure_active_group()
            member = alone._session._member
            for broker in (*server.broker_ids, *server.broker_ids):
                await asyncio.to_thread(server.move_group, unique, broker)
                port = int(server.bootstrap_servers.split(",")[broker - server.broker_ids[0]].rpartition(":")[2])
                await until(lambda port=port: member._address[1] == port and member._connection is not None)
            assert alone.generation_if_stable is not None
            assert alone.names.count("complete") == 1

    asyncio.run(story())


def test_the_server_restarts(own_server: Any, unique: str) -> None:
    async def story() -> None:
        servers = own_server.bootstrap_servers
        times = {"session_timeout_ms": 120_000, "heartbeat_interval_ms": 100}
        a, b = (Recording(servers, unique, name, **times) for name in "ab")
        async with working(a, b):
            await until(lambda: of(a, b) == [b"0 of 2", b"1 of 2"])
            generation = a.generation
            for stop in (own_server.stop, own_server.kill):
                await asyncio.to_thread(stop)
                await until(lambda: a._session._member._connection is None)
                await asyncio.to_thread(own_server.start)
                await until(lambda: a._session._member._connection is not None)
            assert a.generation_if_stable == generation
            c = Recording(servers, unique, "c")
            async with working(c):
                await until(lambda: of(a, b, c) == [b"0 of 3", b"1 of 3", b"2 of 3"])

    asyncio.run(story())


def test_an_assignment_is_lost_when_the_session_is_over(own_server: Any, unique: str) -> None:
    async def story() -> None:
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

    asyncio.run(story())


def test_a_member_that_does_not_come_back_is_removed(servers: str, unique: str) -> None:
    async def story() -> None:
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

    asyncio.run(story())


def test_leaving_does_not_wait_for_the_group_to_form(unique: str) -> None:
    async def story(servers: str) -> None:
        alone = Recording(servers, unique)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await alone.ensure_active_group()
        began = time.monotonic()
        await alone.close()
        assert time.monotonic() - began < 4

    with KohortServer(group_initial_rebalance_delay_ms=60_000) as server:
        asyncio.run(story(server.bootstrap_servers))


def test_a_cluster_that_never_answers(unique: str) -> None:
    async def story() -> None:
        async with Recording("127.0.0.1:1", unique, bootstrap_timeout_ms=200) as alone:
            for _ in range(2):
                with pytest.raises(Unreachable, match="connection refused"):
                    await alone.ensure_active_group()

    asyncio.run(story())


# -- misuse


def test_a_group_of_another_protocol_type(servers: str, unique: str) -> None:
    class Stranger(Recording):
        protocol_type = "strangers"

    async def story() -> None:
        async with Recording(servers, unique) as first, Stranger(servers, unique) as stranger:
            await first.ensure_active_group()
            with pytest.raises(ServerError, match="not of type 'strangers'") as caught:
                await stranger.ensure_active_group()
            assert caught.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            await first.close()
            await stranger.ensure_active_group()  # now that they are gone

    asyncio.run(story())


@pytest.mark.parametrize("which", ["on_join_prepare", "metadata", "perform_assignment", "on_join_complete"])
def test_a_callback_that_raises_is_called_again(servers: str, unique: str, which: str) -> None:
    async def story() -> None:
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

    asyncio.run(story())


def test_a_callback_that_blocks_for_a_session(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique, session_timeout_ms=150, heartbeat_interval_ms=50) as alone:

            async def on_join_complete(*_: Any) -> None:
                await asyncio.sleep(0)
                time.sleep(0.3)

            alone.on_join_complete = on_join_complete  # type: ignore[method-assign]
            with pytest.raises(Misuse, match="on_join_complete blocked the event loop"):
                await alone.ensure_active_group()
            assert alone.generation_if_stable is None  # by the clock, whatever has been heard

    asyncio.run(story())


def test_a_callback_that_awaits_for_ever(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique, rebalance_timeout_ms=200) as alone:

            async def on_join_prepare(*_: Any) -> None:
                await asyncio.Event().wait()

            alone.on_join_prepare = on_join_prepare  # type: ignore[method-assign]
            with pytest.raises(TimedOut, match="on_join_prepare took longer"):
                await alone.ensure_active_group()

    asyncio.run(story())


def test_heartbeats_go_on_while_a_callback_works(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique, session_timeout_ms=3_000, heartbeat_interval_ms=50) as alone:

            async def on_join_complete(*_: Any) -> None:
                await asyncio.sleep(4)  # longer than the session

            alone.on_join_complete = on_join_complete  # type: ignore[method-assign]
            await alone.ensure_active_group()
            assert alone.generation_if_stable is not None
            assert alone.lost == []

    asyncio.run(story())


def test_an_assignment_for_a_stranger(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique) as alone:

            def perform_assignment(*_: Any) -> Mapping[str, bytes]:
                return {"somebody": b"else"}

            alone.perform_assignment = perform_assignment  # type: ignore[method-assign]
            with pytest.raises(Misuse, match="somebody"):
                await alone.ensure_active_group()

    asyncio.run(story())


def test_calls_inside_a_callback(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique) as alone:
            for call in (alone.ensure_active_group, alone.close):

                async def on_join_prepare(*_: Any, call: Any = call) -> None:
                    await call()

                alone.on_join_prepare = on_join_prepare  # type: ignore[method-assign]
                with pytest.raises(Misuse, match="inside a callback"):
                    await alone.ensure_active_group()

    asyncio.run(story())


def test_use_after_close(servers: str, unique: str) -> None:
    async def story() -> None:
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

    asyncio.run(story())


def test_closing_ends_a_call_in_another_task(unique: str) -> None:
    async def story(servers: str) -> None:
        alone = Recording(servers, unique)
        ensuring = asyncio.create_task(alone.ensure_active_group())
        await until(lambda: alone.names == ["prepare", "metadata"])
        await alone.close()
        with pytest.raises(Closed):
            await ensuring

    with KohortServer(group_initial_rebalance_delay_ms=60_000) as server:
        asyncio.run(story(server.bootstrap_servers))


def test_another_loop(servers: str, unique: str) -> None:
    member = Recording(servers, unique)
    with pytest.raises(Misuse, match="no event loop"):
        member.request_rejoin("nobody awaits")

    async def join() -> None:
        await member.ensure_active_group()

    async def elsewhere() -> None:
        with pytest.raises(Misuse, match="another event loop"):
            await member.ensure_active_group()

    async def story() -> None:
        await join()
        await asyncio.to_thread(asyncio.run, elsewhere())
        await member.close()

    asyncio.run(story())


def test_settings_that_cannot_be() -> None:
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


def test_a_session_that_the_broker_does_not_allow(servers: str, unique: str) -> None:
    async def story() -> None:
        async with Recording(servers, unique, session_timeout_ms=50, heartbeat_interval_ms=10) as alone:
            with pytest.raises(KafkaError) as caught:
                await alone.ensure_active_group()
            assert caught.value.code == ErrorCode.INVALID_SESSION_TIMEOUT

    asyncio.run(story())
