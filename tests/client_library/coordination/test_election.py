"""Leader election on the public coordinator: one leader, tokens that grow, terms that end in time."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from recording_coordinator import Recording
from running_tasks import running, until

from kohort.client import (
    Closed,
    Election,
    GroupToken,
    LastingToken,
    Misuse,
    ServerError,
    Shard,
    Term,
    Unreachable,
    blocking_lead,
    blocking_shards,
    lead,
    shards,
)
from kohort.client.admin.explanations import NoJournal
from kohort.client.admin.groups import Committer
from kohort.client.cluster import Cluster
from kohort.client.coordination.election import PAUSE_S, RESIGNED, elect
from kohort.testing import KohortServer, ManualClock


async def elected(election: Any) -> Term:
    async for term in election:
        return term
    raise AssertionError


async def test_others_come_and_go_without_disturbing_the_leader(servers: str, unique: str) -> None:
    async with lead(servers, unique) as first:
        term = await elected(first)
        async with lead(servers, unique) as second:
            await until(lambda: second.leader_id == first.member_id != "")
            assert second.term is None
            await until(lambda: first.generation.generation_id > term.token)  # there was a rebalance
            assert first.term is term
        async with lead(servers, unique) as third:
            await until(lambda: third.leader_id == first.member_id)
            await until(lambda: first.generation.generation_id == third.generation.generation_id)
            assert first.term is term
            assert term.valid
            await first.close()
            assert not term.valid
            later = await elected(third)
            assert later.token > term.token


async def test_the_first_term_does_not_wait_for_more_candidates() -> None:
    """The server has the initial delay of consumer groups, and its clock stands still."""
    with KohortServer(group_initial_rebalance_delay_ms=3_000, clock=ManualClock()) as server:
        async with lead(server.bootstrap_servers, "g") as election:
            assert (await elected(election)).valid

        async def work(shard: Shard) -> None:
            await asyncio.sleep(60)

        async with shards(server.bootstrap_servers, "h", ["a", "b"]) as worker, running(worker.run(work)):
            await until(lambda: len(worker.shards) == 2, seconds=10)


async def token_of_a_term(servers: str, group: str, **settings: Any) -> int:
    async with lead(servers, group, **settings) as election:
        return (await elected(election)).token


async def tokens(servers: str, group: str, **settings: Any) -> list[int]:
    """The tokens of two terms, and of one after the group was deleted."""
    first, second = [await token_of_a_term(servers, group, **settings) for _ in range(2)]
    with Cluster(servers) as cluster:
        cluster.delete_group(group)
    return [first, second, await token_of_a_term(servers, group, **settings)]


async def test_tokens_grow_over_deletion(servers_of_kohort: str, unique: str) -> None:
    first, second, third = await tokens(servers_of_kohort, unique)
    assert isinstance(first, LastingToken)
    assert first < second < third


@pytest.mark.peers
@pytest.mark.timeout(300)
async def test_kafka_counts_anew_after_deletion_unless_there_is_a_token_topic(
    servers_of_kafka: str, unique: str
) -> None:
    for settings in ({}, {"token_topic": "tokens"}):
        first, second, third = found = await tokens(servers_of_kafka, unique + "".join(settings), **settings)
        assert {type(token) for token in found} == {LastingToken if settings else GroupToken}
        assert first < second
        assert (second < third) if settings else (third == first)


async def test_a_token_topic_is_not_needed_here(servers_of_kohort: str, unique: str) -> None:
    async with lead(servers_of_kohort, unique, token_topic="tokens") as election:
        term = await elected(election)
        assert isinstance(term.token, LastingToken)
        assert term.token == election.generation.generation_id
    with Cluster(servers_of_kohort) as cluster:
        assert "tokens" not in cluster.topics()


async def test_a_term_ends_with_its_lease(own_server: Any, unique: str) -> None:
    begun = asyncio.Event()
    done: list[str] = []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            done.append("stopped")

    times = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 100}
    async with lead(own_server.bootstrap_servers, unique, **times) as election:
        term = await elected(election)
        result = asyncio.create_task(term.run(work()))
        await begun.wait()
        await asyncio.to_thread(own_server.kill)
        assert await result is False
        assert done == ["stopped"]
        assert not term.valid
        assert election.term is None
        await asyncio.to_thread(own_server.start)
        assert (await elected(election)).token > term.token


async def test_work_that_ends_or_fails_and_the_end_of_the_election(servers: str, unique: str) -> None:
    async def fails() -> None:
        raise LookupError("of my own")

    async with lead(servers, unique) as election:
        term = await elected(election)
        assert await term.run(asyncio.sleep(0), keep_term=True) is True
        with pytest.raises(LookupError):
            await term.run(fails(), keep_term=True)
        assert term.valid
        waiting = asyncio.create_task(elected(election))  # a term is given once
        await asyncio.sleep(0.05)
        assert not waiting.done()
    with pytest.raises(Closed, match=f"group {unique}: the election is over"):
        await waiting
    assert await term.run(fails()) is False, "work begins in a term that is over"


@pytest.mark.parametrize("how", ["returns", "fails", "is cancelled", "resigns"])
async def test_work_that_ends_makes_room_for_another_candidate(servers: str, unique: str, how: str) -> None:
    async def work(term: Term[Any]) -> None:
        match how:
            case "fails":
                raise LookupError
            case "is cancelled":
                await asyncio.Event().wait()
            case "resigns":
                term.resign()
                assert not term.valid
                await asyncio.Event().wait()

    async with lead(servers, unique) as first, lead(servers, unique) as second:
        others = {first: second, second: first}
        async with asyncio.timeout(30):
            waiting = {asyncio.create_task(elected(one)): one for one in others}
            [done], pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
        leader, token = waiting[done], done.result().token
        term = done.result()
        await until(lambda: others[leader].leader_id == leader.member_id)
        for _ in range(3):  # in turn
            running_work = asyncio.create_task(term.run(work))
            if how == "is cancelled":
                await asyncio.sleep(0)
                running_work.cancel()
            await asyncio.wait((running_work,))
            assert not term.valid
            leader = others[leader]
            term = await elected(leader)
            assert term.token > token
            token = term.token


async def test_the_only_candidate_leads_again_after_a_pause(servers: str, unique: str) -> None:
    async with lead(servers, unique) as election:
        term = await elected(election)
        term.resign()
        began = asyncio.get_running_loop().time()
        assert (await elected(election)).token > term.token
        assert asyncio.get_running_loop().time() - began >= PAUSE_S
        term.resign()  # of a term that is over: without effect
        assert election.term is not None


async def test_a_resignation_during_a_rebalance_counts(servers: str, unique: str) -> None:
    """The leader's claim of the round under way was made before it resigned."""
    async with lead(servers, unique) as first:
        term = await elected(first)
        joined = first.metadata

        def metadata() -> Any:
            claim = joined()
            term.resign()
            return claim

        first.metadata = metadata  # type: ignore[method-assign]
        async with lead(servers, unique) as second:
            assert (await asyncio.wait_for(elected(second), 30)).token > term.token


async def test_a_function_gets_the_term(servers: str, unique: str) -> None:
    got: list[Any] = []

    async def work(term: Term[Any]) -> None:
        got.append(term)

    def plain(_: Any) -> None:
        pass

    async with lead(servers, unique) as election:
        term = await elected(election)
        assert await term.run(work, keep_term=True) is True
        assert await term.run(lambda term: work(term), keep_term=True) is True
        assert await term.run(lambda term: asyncio.ensure_future(work(term)), keep_term=True) is True
        assert got == [term] * 3
        with pytest.raises(TypeError, match="the work plain is no coroutine function"):
            await term.run(plain, keep_term=True)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="await ended"):
            term.wait_ended()
        waiting = asyncio.create_task(asyncio.to_thread(term.wait_ended, 20_000))
        assert await asyncio.to_thread(term.wait_ended, 10) is False
        term.resign()
        assert await waiting is True


async def test_reprs(servers: str, unique: str) -> None:
    first, second = lead(servers, unique), lead(servers, unique)
    assert repr(first) == f"<election of {unique!r}, not begun>"
    async with first:
        term = await elected(first)
        assert repr(term) == f"<term of {unique!r}, token {term.token}>"
        assert repr(first) == f"<election of {unique!r}, leads with token {term.token}>"
        async with second:
            await until(lambda: second.leader_id != "")
            assert repr(second) == f"<election of {unique!r}, led by {first.member_id!r}>"
    assert repr(first) == f"<election of {unique!r}, closed>"
    assert repr(term) == f"<term of {unique!r}, token {term.token}, over>"


async def test_a_short_session_is_enough_of_a_setting(servers: str, unique: str) -> None:
    """The interval of the heartbeats follows from the session."""
    for session, interval in ((3_000, 1_000), (10_000, 3_000), (45_000, 3_000)):
        assert lead(servers, unique, session_timeout_ms=session)._settings.heartbeat_interval_ms == interval
    async with lead(servers, unique, session_timeout_ms=3_000) as election:
        assert (await elected(election)).valid


def test_the_same_default_session_everywhere() -> None:
    calls = (lead, shards, blocking_lead, blocking_shards)
    assert {inspect.signature(call).parameters["session_timeout_ms"].default for call in calls} == {10_000}


async def test_a_candidacy_that_fails(unique: str) -> None:
    async with lead("localhost:1", unique, bootstrap_timeout_ms=50) as election:
        assert election.failure is None
        with pytest.raises(Unreachable):
            await elected(election)
        assert isinstance(election.failure, Unreachable)
        assert repr(election) == f"<election of {unique!r}, failed>"


async def test_a_task_cancelled_while_its_work_ends_stays_cancelled(servers: str, unique: str) -> None:
    ends, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.set()
            await may_end.wait()

    async with lead(servers, unique) as election:
        task = asyncio.create_task((await elected(election)).run(work()))
        await asyncio.sleep(0)
    await ends.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    await asyncio.wait((task,))
    assert task.cancelled()


async def test_a_leader_removed_in_a_rebalance_does_not_lead_any_more(servers: str, unique: str) -> None:
    """Its term is over at once, and does not come back to life with the next round."""

    class Slow(Election[Any]):
        joins = 0
        gate: asyncio.Event | None = None

        async def on_join_prepare(self, generation: int, member_id: str) -> None:
            if self.gate is not None:
                await self.gate.wait()

        def metadata(self) -> dict[str, bytes]:
            self.joins += 1
            return super().metadata()

    settings: dict[str, Any] = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 100}
    a, slow = (Slow(servers, unique, token_topic=None, **settings) for _ in range(2))
    b = lead(servers, unique, **settings)
    async with a:
        term = await elected(a)
        async with slow:
            await until(lambda: slow.leader_id == a.member_id)
            slow.gate = asyncio.Event()
            joins = a.joins
            async with b:
                with Cluster(servers) as cluster:

                    def has_joined() -> bool:
                        """As kohort's coordinator shows it; with Apache Kafka only the request is made."""
                        try:
                            status = cluster.explain_group(unique).status
                        except NoJournal:
                            return a.joins > joins
                        assert status is not None
                        states = {member["member_id"]: member["state"] for member in status["members"]}
                        return states[a.member_id] == "joined"

                    await until(has_joined)
                    assert term.valid
                    gone = Committer(a.member_id, -1)
                    await asyncio.to_thread(cluster.leave_as, unique, gone, classic=True)
                await asyncio.wait_for(term.ended(), 10)
                assert not term.valid
                slow.gate.set()
                await until(lambda: not any(one.rejoin_needed for one in (a, b, slow)))
                assert not term.valid
                later = [one.term for one in (a, b, slow) if one.term is not None]
                assert [one.token > term.token for one in later] == [True]


async def test_one_leader_at_a_time_and_tokens_in_order(servers: str, unique: str) -> None:
    terms: list[Term] = []

    async def candidate() -> None:
        while True:
            async with lead(servers, unique, heartbeat_interval_ms=100) as election:
                term = await elected(election)
                assert not any(other.valid for other in terms)
                assert all(other.token < term.token for other in terms)
                terms.append(term)
                await asyncio.sleep(0.02)
                assert term.valid

    async with running(*(candidate() for _ in range(4))) as tasks:
        await until(lambda: len(terms) >= 20 or any(task.done() for task in tasks))
    assert all(task.cancelled() for task in tasks), tasks


async def test_misuse(servers: str, unique: str) -> None:
    for name, value in (("group_instance_id", "i"), ("rebalance_timeout_ms", 1)):
        with pytest.raises(ValueError, match=name):
            lead(servers, unique, **{name: value})
    with pytest.raises(TypeError, match=r"lead: unknown setting session_timeout; did you mean session_timeout_ms\?"):
        lead(servers, unique, session_timeout=3)
    with pytest.raises(TypeError, match="lead: unknown setting leder; it takes bootstrap_timeout_ms, client_id"):
        lead(servers, unique, leder="me")
    outside = lead(servers, unique)
    assert outside.lasting_generations is False
    with pytest.raises(Misuse, match="async with"):
        await elected(outside)
    async with Recording(servers, unique) as other_kind:
        await other_kind.ensure_active_group()
        async with lead(servers, unique) as election:
            with pytest.raises(ServerError, match="kohort-election"):
                await elected(election)


def test_who_is_elected() -> None:
    def claims(**numbers: int) -> dict[str, bytes]:
        return {name: number.to_bytes(8, "big", signed=True) for name, number in numbers.items()}

    for claimed, elected in (
        (claims(a=-1, b=7, c=-1), b"b"),
        (claims(a=-1, b=-1), b"a"),
        (claims(a=RESIGNED, b=-1), b"b"),
        (claims(a=RESIGNED), b"a"),
        (claims(a=RESIGNED - 8, b=RESIGNED - 7), b"b"),
        (claims(a=RESIGNED - 7, b=RESIGNED), b"b"),
    ):
        assert set(elect(claimed).values()) == {elected}
