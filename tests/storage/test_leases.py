"""Nodes on one PostgreSQL: who owns the data, who waits, who takes over, and what the former owner may still do."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer
from storage_batches import LOG, make_batch

from kohort.storage.postgres import leases
from kohort.storage.postgres.engine import PostgresStorage
from kohort.storage.postgres.leases import NodeAddress, Timing
from kohort.storage.protocol import Append, CreateLog, Fenced, StorageError

SHORT_S, LONG_S = 1.5, 60.0


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LOOK_S", 0.05)
    monkeypatch.setattr(leases, "AGAIN_S", 0.1)


class Node:
    """A node that opens the data in a thread."""

    def __init__(self, url: str, number: int, lease_s: float) -> None:
        self.failures: list[Exception] = []
        self.others: list[int] = []
        address = NodeAddress(number, "host", 9000 + number)
        self.storage = PostgresStorage(url, address, None, self.failures.append, Timing(lease_s, 0.2))
        self.refused: Exception | None = None
        self.owns = False
        self._thread = threading.Thread(target=self._open)
        self._thread.start()

    def _open(self) -> None:
        try:
            self.storage.open()
        except StorageError as error:
            self.refused = error
            return
        self._lease = self.storage.acquire()
        self.storage.watch_others(lambda others: self.others.__setitem__(slice(None), [node.id for node in others]))
        self.owns = True

    def write(self, offset: int) -> None:
        create = [] if self.storage.logs() else [CreateLog(LOG)]
        self.storage.commit([*create, Append(LOG, (make_batch(offset),))], self._lease)

    @property
    def bases(self) -> list[int]:
        return [batch.base_offset for batch in self.storage.batches(LOG)]

    def pause(self) -> None:
        """From now on it renews nothing, as a process that is stopped or cut off."""
        loop = self.storage._io._loop
        loop.call_soon_threadsafe(self.storage._leases._renewing.cancel)

    def close(self) -> None:
        self.storage.close()
        self._thread.join()


Start = Callable[..., Node]


@pytest.fixture
def start(postgres_url: str) -> Iterator[Start]:
    with ExitStack() as nodes:
        yield lambda number, lease_s=SHORT_S: nodes.enter_context(closing(Node(postgres_url, number, lease_s)))


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)


def slots(admin: psycopg.Connection[Any]) -> list[tuple[int, int, int]]:
    """How many slots each node owns, at which epoch."""
    return admin.execute("SELECT owner, epoch, count(*) FROM kohort.slot GROUP BY owner, epoch").fetchall()


def test_a_stand_by_takes_over_from_a_node_that_renews_no_more(start: Start, admin: psycopg.Connection[Any]) -> None:
    first = start(1)
    wait_for(lambda: first.owns)
    first.write(0)
    second = start(2)
    wait_for(lambda: first.others == [2])
    assert slots(admin) == [(1, 0, 128)]
    first.pause()
    assert first.storage.is_ours()
    first.write(1)
    began = time.monotonic()
    wait_for(lambda: not first.storage.is_ours() or second.owns)
    assert not second.owns, "the former owner answers nothing more before another one begins"
    wait_for(lambda: second.owns)
    assert time.monotonic() - began < 10
    with pytest.raises(Fenced):
        first.write(2)
    assert slots(admin) == [(2, 1, 128)]
    assert second.bases == [0, 1]
    second.write(2)
    assert [batch.base_offset for batch in second.storage.read(LOG, 0, 1 << 20)] == [0, 1, 2]


def test_an_owner_that_stops_is_followed_at_once(start: Start, admin: psycopg.Connection[Any]) -> None:
    first = start(1, LONG_S)
    wait_for(lambda: first.owns)
    first.write(0)
    second = start(2, LONG_S)
    wait_for(lambda: first.others == [2])
    first.close()
    wait_for(lambda: second.owns)
    assert second.bases == [0]
    wait_for(lambda: second.others == [])


def test_a_node_that_is_deposed_learns_of_it(start: Start, admin: psycopg.Connection[Any]) -> None:
    first = start(1)
    wait_for(lambda: first.owns)
    admin.execute("UPDATE kohort.node_lease SET incarnation = incarnation + 1")
    wait_for(lambda: first.failures)
    assert isinstance(first.failures[0], Fenced)


def test_a_second_process_of_a_node_waits_for_the_first(start: Start, admin: psycopg.Connection[Any]) -> None:
    first = start(1, LONG_S)
    wait_for(lambda: first.owns)
    first.write(0)
    second = start(1, LONG_S)
    wait_for(lambda: second.storage._writer is None and second.storage._opening is not None)
    time.sleep(0.2)
    assert not second.owns
    first.write(1)
    first.close()
    wait_for(lambda: second.owns)
    assert second.bases == [0, 1]
    assert slots(admin) == [(1, 0, 128)]


def test_the_successor_of_a_killed_process_does_not_wait(start: Start, admin: psycopg.Connection[Any]) -> None:
    with subprocess.Popen(["sleep", "60"]) as killed:
        instance = leases._instance(killed.pid)
        first = start(1, LONG_S)
        wait_for(lambda: first.owns)
        first.write(0)
        admin.execute("UPDATE kohort.node_lease SET instance = %s", (instance,))
        second = start(1, LONG_S)
        time.sleep(0.2)
        assert not second.owns, "the process lives"
        killed.kill()
    wait_for(lambda: second.owns)
    with pytest.raises(Fenced):
        first.write(1)
    assert second.bases == [0]


def test_nobody_is_deposed_after_an_outage_of_the_database(start: Start, postgres_server: PostgresServer) -> None:
    first = start(1)
    wait_for(lambda: first.owns)
    first.write(0)
    second = start(2)
    wait_for(lambda: first.others == [2])
    postgres_server.stop()
    try:
        wait_for(lambda: not first.storage.is_ours())
        time.sleep(SHORT_S / 3)
    finally:
        postgres_server.start()
    wait_for(lambda: first.storage.is_ours())
    first.write(1)
    time.sleep(SHORT_S)
    assert not second.owns
    assert first.bases == [0, 1]
    first.close()
    wait_for(lambda: second.owns)
    assert second.bases == [0, 1]


def test_a_stand_by_can_be_stopped(start: Start) -> None:
    first = start(1)
    wait_for(lambda: first.owns)
    second = start(2)
    wait_for(lambda: first.others == [2])
    second.close()
    assert isinstance(second.refused, StorageError)
    wait_for(lambda: first.others == [])


def test_nobody_is_deposed_while_commits_wait_for_a_standby_server(
    start: Start, admin: psycopg.Connection[Any], postgres_server: PostgresServer
) -> None:
    """Renewals do not wait for it."""
    first = start(1)
    wait_for(lambda: first.owns)
    first.write(0)
    second = start(2)
    wait_for(lambda: first.others == [2])
    try:
        postgres_server.confirmed_by("nobody")
        waits = (
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'kohort node 1 writer' AND wait_event = 'SyncRep'"
        )
        writing = threading.Thread(target=first.write, args=(1,))
        writing.start()
        wait_for(lambda: admin.execute(waits).fetchone())
        time.sleep(SHORT_S * 1.5)
        assert first.storage.is_ours()
        assert writing.is_alive()
        assert not second.owns
    finally:
        postgres_server.confirmed_by("")
    writing.join(20)
    assert first.bases == [0, 1]
