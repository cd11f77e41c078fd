"""`blocking_shards` against a real server: the promises of `shards`, without asyncio."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from running_tasks import wait_until

from kohort.client import BlockingSharding, Closed, Misuse, Shard, blocking_shards

ITEMS = [f"item{n}" for n in range(6)]


class Fleet:
    """Workers of one group in this process, and their items."""

    def __init__(self, servers: str, group: str, items: Any = ITEMS, **settings: Any) -> None:
        settings = {"heartbeat_interval_ms": 100, **settings}
        self.make = lambda: blocking_shards(servers, group, items, **settings)
        self.working: dict[str, list[Shard]] = {}
        self.tokens: dict[str, int] = {}
        self.may_end = threading.Event()
        self.may_end.set()
        self.problems: list[str] = []

    def work(self, shard: Shard) -> None:
        owners = self.working.setdefault(shard.item, [])
        if owners or shard.token <= self.tokens.get(shard.item, 0):
            self.problems.append(f"{shard}: {owners}, {self.tokens}")
        self.tokens[shard.item] = shard.token
        owners.append(shard)
        shard.wait_ended()
        self.may_end.wait(60)
        owners.remove(shard)

    @contextlib.contextmanager
    def worker(self) -> Iterator[BlockingSharding]:
        def run() -> None:
            with contextlib.suppress(Closed):
                sharding.run(self.work)

        with self.make() as sharding:
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            yield sharding
        thread.join(20)
        assert not thread.is_alive()
        assert self.problems == []

    @property
    def busy(self) -> int:
        return sum(map(len, self.working.values()))


def test_workers_come_and_go(servers: str, unique: str) -> None:
    fleet = Fleet(servers, unique)
    with fleet.worker() as a:
        wait_until(lambda: fleet.busy == 6)
        with fleet.worker() as b:
            wait_until(lambda: (len(a.shards), len(b.shards)) == (3, 3) and fleet.busy == 6)
        wait_until(lambda: len(a.shards) == 6 and fleet.busy == 6)
    assert fleet.busy == 0


def test_an_item_waits_for_the_end_of_the_work_on_it(servers: str, unique: str) -> None:
    fleet = Fleet(servers, unique, ["only", "other"])
    with fleet.worker() as a:
        wait_until(lambda: fleet.busy == 2)
        fleet.may_end.clear()
        with fleet.worker() as b:
            wait_until(lambda: len(a.shards) == 1)
            wait_until(lambda: b.generation.generation_id == a.generation.generation_id >= 0)
            assert len(b.shards) == 0
            assert fleet.busy == 2
            fleet.may_end.set()
            wait_until(lambda: len(b.shards) == 1 and fleet.busy == 2)


def test_the_lease_ends_before_others_get_the_items(own_server: Any, unique: str) -> None:
    fleet = Fleet(own_server.bootstrap_servers, unique, session_timeout_ms=1_500)
    with fleet.worker() as a:
        wait_until(lambda: fleet.busy == 6)
        own_server.kill()
        wait_until(lambda: fleet.busy == 0)
        assert not a.shards
        own_server.start()
        wait_until(lambda: fleet.busy == 6)


def test_a_function_lists_the_items_in_a_thread(servers: str, unique: str) -> None:
    threads: set[str] = set()

    def items() -> list[str]:
        threads.add(threading.current_thread().name)
        return listed

    listed = ["a", "b"]
    fleet = Fleet(servers, unique, items, refresh_ms=20)
    with fleet.worker() as worker:
        wait_until(lambda: set(worker.shards) == {"a", "b"})
        listed = ["b", "c"]
        wait_until(lambda: set(worker.shards) == {"b", "c"} and fleet.busy == 2)
        worker.update(["d"])
        wait_until(lambda: set(worker.shards) == {"d"} and fleet.busy == 1)
    assert threads == {f"kohort-items-{unique}"}


def test_work_that_ends_or_fails(servers: str, unique: str) -> None:
    ended: list[str] = []

    def work(shard: Shard) -> None:
        if shard.item == "bad":
            raise LookupError("of my own")
        shard.wait_ended()
        ended.append(shard.item)

    with blocking_shards(servers, unique, ["good", "bad"]) as sharding:
        for _ in range(2):
            with pytest.raises(LookupError, match="of my own") as failure:
                sharding.run(work)
            assert "item 'bad'" in failure.value.__notes__[0]
            assert not sharding.shards
        assert ended in (["good"], ["good", "good"], [])  # the work on it may not have begun


def test_misuse(servers: str, unique: str) -> None:
    async def coroutine(_: Any) -> None:
        pass

    with pytest.raises(Misuse, match="call `start` first"):
        blocking_shards(servers, unique, ["a"]).run(lambda _: None)
    with pytest.raises(TypeError, match="unknown setting capacty; did you mean capacity"):
        blocking_shards(servers, unique, ["a"], capacty=2)
    with blocking_shards(servers, unique, ["a"]) as sharding:
        for work, match in (
            (lambda _: sharding.close(), "close was called in the work"),
            (lambda _: sharding.run(lambda _: None), "runs already"),
            (coroutine, "coroutine function"),
        ):
            with pytest.raises(Misuse, match=match):
                sharding.run(work)
        assert "sharding of" in repr(sharding)
    with pytest.raises(Closed):
        sharding.run(lambda _: None)


def test_an_interrupt_ends_the_work(servers: str, unique: str) -> None:
    """An exception of a signal handler in the thread that waits in `run` ends the work, and the worker leaves."""

    class Interrupted(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Interrupted

    fleet = Fleet(servers, unique)
    former = signal.signal(signal.SIGUSR1, handler)
    main = threading.main_thread().ident
    assert main is not None
    sharding = fleet.make()

    def interrupt() -> None:
        wait_until(lambda: fleet.busy == 6)
        signal.pthread_kill(main, signal.SIGUSR1)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with sharding, pytest.raises(Interrupted):
            sharding.run(fleet.work)
        assert fleet.busy == 0
        assert not sharding.shards
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_a_signal_handler_may_close(servers: str, unique: str) -> None:
    fleet = Fleet(servers, unique)
    sharding = fleet.make()
    former = signal.signal(signal.SIGUSR1, lambda *_: sharding.close())
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        wait_until(lambda: fleet.busy == 6)
        signal.pthread_kill(main, signal.SIGUSR1)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with sharding, pytest.raises(Closed):
            sharding.run(fleet.work)
        assert fleet.busy == 0
    finally:
        signal.signal(signal.SIGUSR1, former)
