"""Work sharding on the public coordinator: every item one worker, hand-over after giving up, leases, changing items."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from recording_coordinator import Recording
from running_tasks import running, until

from kohort.client import Misuse, Shard, Sharding, shards
from kohort.client.cluster import Cluster
from kohort.client.errors import BadAnswer
from kohort.testing import KohortServer

ITEMS = [f"item{n}" for n in range(12)]


class Fleet:
    """Workers of one group in this loop, and their items."""

    def __init__(self, servers: str, group: str, items: Any = ITEMS, **settings: Any) -> None:
        self.make = lambda **more: shards(servers, group, items, heartbeat_interval_ms=100, **settings, **more)
        self.working: dict[str, list[Shard]] = {}
        self.tokens: dict[str, list[int]] = {}
        self.ends_slowly = asyncio.Event()
        self.ends_slowly.set()

    async def work(self, shard: Shard) -> None:
        owners = self.working.setdefault(shard.item, [])
        assert not owners, f"{shard.item} has two owners"
        assert shard.valid
        tokens = self.tokens.setdefault(shard.item, [0])
        assert shard.token > tokens[-1], "tokens grow"
        tokens.append(shard.token)
        owners.append(shard)
        try:
            await asyncio.Event().wait()
        finally:
            await self.ends_slowly.wait()
            owners.remove(shard)

    @contextlib.asynccontextmanager
    async def worker(self, **settings: Any) -> Any:
        async with self.make(**settings) as sharding:
            task = asyncio.create_task(sharding.run(self.work))
            try:
                yield sharding
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    @property
    def busy(self) -> int:
        return sum(map(len, self.working.values()))


def counts(*workers: Sharding) -> list[int]:
    return sorted(len(worker.shards) for worker in workers)


async def test_workers_come_and_go(servers: str, unique: str) -> None:
    fleet = Fleet(servers, unique)
    async with fleet.worker() as a:
        await until(lambda: fleet.busy == 12)
        kept = dict(a.shards)
        async with fleet.worker() as b:
            await until(lambda: counts(a, b) == [6, 6] and fleet.busy == 12)
            assert all(a.shards[item] is kept[item] for item in a.shards), "what stays goes on undisturbed"
            async with fleet.worker() as c:
                await until(lambda: counts(a, b, c) == [4, 4, 4] and fleet.busy == 12)
            await until(lambda: counts(a, b) == [6, 6] and fleet.busy == 12)
        await until(lambda: counts(a) == [12] and fleet.busy == 12)
    assert fleet.busy == 0
    assert not any(shard.valid for shard in kept.values())


async def test_an_item_waits_for_the_end_of_the_work_on_it(servers: str, unique: str) -> None:
    fleet = Fleet(servers, unique, ["only", "other"])
    async with fleet.worker() as a:
        await until(lambda: fleet.busy == 2)
        fleet.ends_slowly.clear()
        async with fleet.worker() as b:
            await until(lambda: len(a.shards) == 1 and b.generation.generation_id > 0)
            generation = b.generation.generation_id
            a.request_rejoin("another round meanwhile")
            await until(lambda: b.generation.generation_id > generation >= 0)
            assert counts(b) == [0]
            fleet.ends_slowly.set()
            await until(lambda: counts(a, b) == [1, 1] and fleet.busy == 2)


async def test_the_lease_ends_before_others_get_the_items(own_server: Any, unique: str) -> None:
    fleet = Fleet(own_server.bootstrap_servers, unique, session_timeout_ms=1_500)
    async with fleet.worker() as a:
        await until(lambda: fleet.busy == 12)
        before = list(a.shards.values())
        await asyncio.to_thread(own_server.kill)
        await until(lambda: fleet.busy == 0)
        assert not a.shards
        await asyncio.wait_for(before[0].ended(), 1)
        await asyncio.to_thread(own_server.start)
        await until(lambda: fleet.busy == 12)  # with larger tokens: `work` looks


async def test_items_change_at_run_time(servers: str, unique: str) -> None:
    listed = {"a": 1.0, "b": 1.0}
    fails = False

    async def items() -> dict[str, float]:
        if fails:
            raise ConnectionError("the database is away")
        return dict(listed)

    fleet = Fleet(servers, unique, items, refresh_ms=20)
    async with fleet.worker() as first, fleet.worker() as second:
        await until(lambda: counts(first, second) == [1, 1])
        listed["c"] = 2.0
        del listed["a"]
        await until(lambda: {*first.shards, *second.shards} == {"b", "c"} and fleet.busy == 2)
        fails = True  # the list that is known stands
        async with fleet.worker() as third:
            await until(lambda: third.generation.generation_id > 0)
        await until(lambda: fleet.busy == 2 and not first.rejoin_needed)
        assert {*first.shards, *second.shards} == {"b", "c"}
        for worker in (first, second):
            worker.update(["d"])
        await until(lambda: {*first.shards, *second.shards} == {"d"})


async def test_weights_and_capacity(servers: str, unique: str) -> None:
    fleet = Fleet(servers, unique, {"huge": 10.0, **dict.fromkeys(ITEMS[:10], 1.0)})
    async with fleet.worker() as a, fleet.worker() as b:
        await until(lambda: counts(a, b) == [1, 10])
    fleet = Fleet(servers, unique + "c", ITEMS)
    async with fleet.worker(capacity=2.0) as a, fleet.worker() as b:
        await until(lambda: (len(a.shards), len(b.shards)) == (8, 4))


async def test_work_that_ends_or_fails(servers: str, unique: str) -> None:
    done: list[str] = []

    async def work(shard: Shard) -> None:
        done.append(shard.item)
        if shard.item == "bad":
            raise LookupError("of my own")

    async with shards(servers, unique, ["good"]) as sharding:
        task = asyncio.create_task(sharding.run(work))
        await until(lambda: done == ["good"])
        with pytest.raises(Misuse, match="runs already"):
            await sharding.run(work)
        assert list(sharding.shards) == ["good"]
        assert not task.done()
        sharding.update(["good", "bad"])
        with pytest.raises(LookupError, match="of my own") as failure:
            await task
        assert "item 'bad'" in failure.value.__notes__[0]
        assert done == ["good", "bad"]
        assert not sharding.shards


async def test_a_worker_that_stops_leaves_its_items_and_may_run_again(servers: str, unique: str) -> None:
    fleet = Fleet(servers, unique)
    fails = asyncio.Event()

    async def work(shard: Shard) -> None:
        await fails.wait()
        raise LookupError("of my own")

    async with fleet.worker() as a, fleet.make() as b:
        await until(lambda: counts(a) == [12])
        task = asyncio.create_task(b.run(work))
        await until(lambda: counts(a, b) == [6, 6] and fleet.busy == 6)
        before = max(shard.token for shard in b.shards.values())
        fails.set()
        with pytest.raises(LookupError):
            await task
        assert not b.shards
        await until(lambda: counts(a) == [12] and fleet.busy == 12)
        async with running(b.run(fleet.work)):
            await until(lambda: counts(a, b) == [6, 6] and fleet.busy == 12)
            assert min(shard.token for shard in b.shards.values()) > before


async def test_the_journal_tells_a_failure_of_the_work_from_a_stop(server: KohortServer, unique: str) -> None:
    async def fail(_: Shard) -> None:
        raise LookupError("of my own")

    async with shards(server.bootstrap_servers, unique, ["a"], heartbeat_interval_ms=100) as sharding:
        with pytest.raises(LookupError):
            await sharding.run(fail)
        with Cluster(server.bootstrap_servers) as cluster:

            def told() -> str:
                return json.dumps(cluster.explain_group(unique).stories)

            await until(lambda: "its work has failed" in told())
            assert "it was closed" not in told()


async def test_items_of_a_round_before_run_are_worked_on(servers: str, unique: str) -> None:
    fleet = Fleet(servers, unique)
    async with fleet.make() as sharding:
        await sharding.ensure_active_group()
        assert counts(sharding) == [12]
        async with running(sharding.run(fleet.work)):
            await until(lambda: fleet.busy == 12)
    assert fleet.busy == 0


async def test_plain_work_and_reprs(servers: str, unique: str) -> None:
    def plain(_: Any) -> None:
        pass

    sharding = shards(servers, unique, ["a"])
    assert repr(sharding) == f"<sharding of {unique!r}, not running>"
    async with sharding:
        with pytest.raises(TypeError, match="the work plain is no coroutine function; for plain functions"):
            await sharding.run(plain)  # type: ignore[arg-type]
        async with running(sharding.run(lambda shard: shard.ended())):
            await until(lambda: "a" in sharding.shards)
            assert repr(sharding) == f"<sharding of {unique!r}, 1 items>"
            shard = sharding.shards["a"]
            assert await asyncio.to_thread(shard.wait_ended, 10) is False
        assert await asyncio.to_thread(shard.wait_ended) is True
    assert repr(sharding) == f"<sharding of {unique!r}, closed>"


async def test_ten_thousand_items_fit(servers: str, unique: str) -> None:
    names = [f"https://www.example.org/sites/{n}/index.html" for n in range(10_000)]
    async with (
        shards(servers, unique, names, session_timeout_ms=30_000) as sharding,
        running(sharding.run(lambda shard: shard.ended())),
    ):
        await until(lambda: len(sharding.shards) == 10_000)
        sharding.request_rejoin("with claims")
        token = sharding.generation.generation_id
        await until(lambda: sharding.generation.generation_id > token and not sharding.rejoin_needed)
        assert len(sharding.shards) == 10_000


@pytest.mark.parametrize(
    ("items", "settings", "error", "match"),
    [
        ("tenants", {}, TypeError, "names, or a mapping"),
        ([1], {}, TypeError, "item 1"),
        ({"a": 0}, {}, ValueError, "'a': its weight is 0"),
        ({"a": float("nan")}, {}, ValueError, "its weight is nan"),
        (["a"], {"capacity": 0}, ValueError, "capacity is 0"),
        (["a"], {"refresh_ms": 0}, ValueError, "refresh_ms is 0"),
        (["a"], {"group_instance_id": "i"}, ValueError, "group_instance_id cannot be chosen"),
        (["a"], {"capacty": 2}, TypeError, "shards: unknown setting capacty; did you mean capacity?"),
        (["a"], {"heartbeat_interval_ms": 10_000}, ValueError, "must be above 0 and below the session"),
    ],
)
def test_impossible_settings(items: Any, settings: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        shards("localhost:1", "g", items, **settings)


async def test_lists_that_fail_at_first_and_members_of_another_language(servers: str, unique: str) -> None:
    class Foreign(Recording):
        protocol_type = "kohort-shards"

        def metadata(self) -> dict[str, bytes]:
            return {"shards": b"not packed"}

    async with shards(servers, unique, lambda: ["a", None]) as sharding:
        with pytest.raises(TypeError, match="item None"):
            await sharding.run(lambda shard: asyncio.sleep(0))
    async with shards(servers, unique, ["a"]) as sharding, Foreign(servers, unique) as foreign:
        task = asyncio.create_task(sharding.run(lambda shard: shard.ended()))
        await until(lambda: bool(sharding.shards))
        async with running(foreign.ensure_active_group()):
            with pytest.raises(BadAnswer, match="another language"):
                await task
