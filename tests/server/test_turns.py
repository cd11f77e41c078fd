"""The order of a turn, its clock, and how a failure ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from echo_broker import fetched
from edges import Edge, SlowStorage, eventually

from kohort.broker.ready import COSTLY, OVER, WITHIN
from kohort.broker.turn import Closed, ConnectionId, Frame, Opened, Shutdown
from kohort.server import turns
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import StorageError


def test_a_deadline_makes_a_turn_and_an_earlier_one_moves_the_timer(edge: Edge) -> None:
    with edge.wire() as wire:
        wire.ask(b"in 50")
        asked = edge.broker.times[-1]
        eventually(lambda: edge.broker.times[-1] >= asked + 50)
        assert edge.broker.times[-1] < asked + 5_000
        wire.ask(b"in 600000")
        turns = len(edge.broker.turns)
        wire.ask(b"in 20")
        eventually(lambda: len(edge.broker.turns) > turns + 1)


def test_time_never_goes_back(edge: Edge) -> None:
    with edge.wire() as wire:
        for n in range(200):
            wire.ask(b"%d" % n)
    assert edge.broker.times == sorted(edge.broker.times)


def test_a_stop_answers_parked_requests(edge: Edge) -> None:
    with edge.wire() as wire:
        wire.push(b"park")
        eventually(lambda: edge.broker.parked)
        broker = edge.broker
        edge.stop()
        assert wire.pull() == b"woken"
        assert wire.is_closed
    assert any(isinstance(event, Shutdown) for turn in broker.turns for event in turn)


def test_a_stop_waits_for_a_large_answer_to_be_read(edge: Edge) -> None:
    with edge.wire() as wire:
        wire.push(b"\0\x018000000")
        eventually(lambda: any(c.unsent for c in edge.connections._open.values()))
        stopping = threading.Thread(target=edge.stop)
        stopping.start()
        assert wire.pull() == fetched(8_000_000)
        stopping.join(10)
        assert not stopping.is_alive()


@pytest.mark.conformance("O22", "R4")
def test_a_failed_commit_stops_everything_and_acknowledges_nothing(edge_of: Callable[..., Edge]) -> None:
    storage = SlowStorage()
    edge = edge_of(storage)
    with edge.wire() as writer, edge.wire() as other:
        assert other.ask(b"hello") == [b"hello"]
        edge.hold_commits_in_a_thread()
        writer.push(b"write")
        eventually(lambda: edge.broker.written == 1)
        other.push(b"too late")
        storage.fail = StorageError("the disk of /nowhere is full")
        storage.may_commit.set()
        assert writer.is_closed
        assert other.is_closed
    with pytest.raises(RuntimeError, match="the disk of /nowhere is full"):
        edge.stop()


def test_a_server_that_has_lost_its_lease_acknowledges_nothing_more(edge_of: Callable[..., Edge]) -> None:
    storage = MemoryStorage()
    edge = edge_of(storage)
    with edge.wire() as wire:
        assert wire.ask(b"write") == [b"write"]
        storage.acquire()
        wire.push(b"write")
        assert wire.is_closed
    with pytest.raises(RuntimeError, match="another process has taken over the data"):
        edge.stop()
    assert len(storage.logs()) == 1


@pytest.mark.parametrize("frames", [(b"answered in the same turn?", b"bug"), (b"bug at once",)])
def test_a_bug_stops_everything(edge: Edge, frames: tuple[bytes, ...]) -> None:
    """A bug in a turn, or in an answer that needs none."""
    with edge.wire() as wire, edge.wire() as other:
        assert other.ask(b"hello") == [b"hello"]
        wire.push(*frames)
        assert wire.is_closed
        assert other.is_closed
    with pytest.raises(RuntimeError, match="this is the bug"):
        edge.stop()


def test_listeners_go_down_and_up_on_the_same_port(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(brokers=3)
    addresses = edge.bootstrap_servers
    with edge.wire(1) as one, edge.wire(2) as two:
        assert one.ask(b"1") + two.ask(b"2") == [b"1", b"2"]
        for _ in range(3):
            edge.stop_broker(2)
            with pytest.raises(ConnectionRefusedError):
                edge.wire(2)
            edge.start_broker(2)
        assert two.is_closed
        assert one.ask(b"1") == [b"1"]
        with edge.wire(2) as again:
            assert again.ask(b"2") == [b"2"]
    assert edge.bootstrap_servers == addresses
    edge.restart()
    assert edge.bootstrap_servers == addresses
    with pytest.raises(ValueError, match="no broker 7"):
        edge.stop_broker(7)


def test_a_control_of_a_server_that_is_over_fails(edge: Edge) -> None:
    turns: Any = edge._running._turns
    edge.stop()
    with pytest.raises(ConnectionAbortedError):
        asyncio.run(turns.control(None))


def test_requests_that_need_no_turn_get_none(edge: Edge) -> None:
    with edge.wire() as wire:
        wire.ask(b"hello")
        turns = len(edge.broker.turns)
        assert wire.ask(b"at once") == [b"at once"]
        assert len(edge.broker.turns) == turns
        assert wire.ask(b"a turn") == [b"a turn"]


def test_no_request_waits_for_a_new_connection(edge: Edge) -> None:
    """While a thousand clients connect one by one, a turn is always due. Only a frame makes other requests wait."""
    turns: Any = edge._running._turns
    new, at_once = ConnectionId(77), b"\0\0\0\7at once"

    async def arrive() -> list[int]:
        found = []
        for event in (Opened(new, 1, "127.0.0.1"), Frame(new, b"first")):
            turns.arrive(event)
            found.append(turns.at_once(new, at_once)[1])
        turns.arrive(Closed(new))
        return found

    assert asyncio.run_coroutine_threadsafe(arrive(), edge._loop).result(10) == [len(at_once), 0]


def test_during_a_turn_all_requests_wait_for_the_next(edge_of: Callable[..., Edge]) -> None:
    storage = SlowStorage()
    storage.may_commit.set()
    edge = edge_of(storage)
    with edge.wire() as writer, edge.wire() as other:
        assert other.ask(b"hello") == [b"hello"]
        edge.hold_commits_in_a_thread()
        storage.may_commit.clear()
        writer.push(b"write")
        eventually(lambda: edge.broker.written == 1)
        turns = len(edge.broker.turns)
        other.push(b"at once")
        eventually(lambda: edge._running._turns._schedule.waiting)
        storage.may_commit.set()
        assert other.pull() == b"at once"
        assert len(edge.broker.turns) > turns
        assert writer.pull() == b"write"


def test_who_had_to_wait_for_the_processor_is_not_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, cpu = 100.0, 7.0
    monkeypatch.setattr(turns.time, "perf_counter", lambda: wall)
    monkeypatch.setattr(turns.time, "thread_time", lambda: cpu)
    budget = turns.Budget()

    def verdict(wall_s: float, cpu_s: float) -> int:
        nonlocal wall, cpu
        wall, cpu = wall + wall_s, cpu + cpu_s
        return budget.verdict()

    budget.begin()
    assert verdict(0.004, 0.004) == WITHIN
    assert verdict(0.0015, 0.0015) == OVER
    assert verdict(0.004, 0.004) == COSTLY
    budget.begin()
    assert verdict(0.03, 0.001) == OVER, "the thread did not run"
    assert verdict(0.004, 0.004) == OVER, "it is not known which of the two requests had to wait"
    budget.begin()
    assert verdict(0.03, 0.02) == COSTLY
