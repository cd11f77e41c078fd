"""PostgreSQL alone: commits whose outcome is unknown, databases that are refused, rows that are purged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer
from storage_batches import LOG, OTHER, make_batch, opened_postgres

from kohort.storage.postgres import engine
from kohort.storage.postgres.writer import WentBack
from kohort.storage.protocol import Append, CreateLog, DamagedFile, DeleteLog, Fenced, Operation, StorageError, Trim

NODE = 1
WRITER = f"kohort node {NODE} writer"


class Node:
    """An engine whose commits run in a thread."""

    def __init__(self, url: str) -> None:
        self.storage = opened_postgres(url)
        self._lease = self.storage.acquire()
        self._thread = ThreadPoolExecutor(1)

    def begin(self, *operations: Operation) -> Future[None]:
        return self._thread.submit(self.storage.commit, operations, self._lease)

    def commit(self, *operations: Operation) -> None:
        self.begin(*operations).result(20)

    @property
    def bases(self) -> list[int]:
        return [batch.base_offset for batch in self.storage.read(LOG, 0, 1 << 30)]

    @property
    def unknown(self) -> int:
        return self.storage._writer.unknown

    def close(self) -> None:
        self.storage.abandon()
        self._thread.shutdown()
        self.storage.close()


@pytest.fixture
def node(postgres_url: str) -> Iterator[Node]:
    with closing(Node(postgres_url)) as node:
        node.commit(CreateLog(LOG), Append(LOG, (make_batch(0),)))
        yield node


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)
    return found


def value(admin: psycopg.Connection[Any], query: Any, *arguments: Any) -> Any:
    row = admin.execute(query, arguments).fetchone()
    return row[0] if row is not None else None


def waiting_writer(admin: psycopg.Connection[Any], event: str) -> int:
    """The process of the writer's commit, as soon as it waits for this."""
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event = %s"

    def found() -> int | None:
        admin.execute("SELECT pg_stat_clear_snapshot()")  # it stays the same during a transaction
        pid: int | None = value(admin, query, WRITER, event)
        return pid

    return int(wait_for(found))


@pytest.fixture
def no_standby(postgres_server: PostgresServer) -> Iterator[Callable[[str], None]]:
    """Sets who must confirm commits. The value "nobody" makes them wait."""
    yield postgres_server.confirmed_by
    postgres_server.confirmed_by("")


def test_a_commit_that_waits_behind_a_takeover_writes_nothing(node: Node, admin: psycopg.Connection[Any]) -> None:
    with admin.transaction():
        admin.execute("UPDATE kohort.node SET incarnation = incarnation + 1")
        commit = node.begin(Append(LOG, (make_batch(1),)))
        waiting_writer(admin, "transactionid")
    with pytest.raises(Fenced):
        commit.result(20)
    assert value(admin, "SELECT count(*) FROM kohort.batch") == 1


def test_rows_that_another_node_has_replaced_are_no_damage(node: Node, admin: psycopg.Connection[Any]) -> None:
    """A process that was paused does not know yet that another one has taken over and compacted the log."""
    node.commit(Append(LOG, (make_batch(1),)))
    admin.execute("DELETE FROM kohort.batch WHERE base_offset = 0")
    with pytest.raises(DamagedFile, match="lacks rows"):
        node.storage.read(LOG, 0, 1 << 30)
    node.storage._leases.clock.renewed(-1_000)
    with pytest.raises(StorageError, match="the lease is not held") as failed:
        node.storage.read(LOG, 0, 1 << 30)
    assert type(failed.value) is StorageError, "the read can be tried again"


def test_a_commit_that_was_lost_before_it_happened_is_sent_again(node: Node, admin: psycopg.Connection[Any]) -> None:
    with admin.transaction():
        admin.execute("SELECT * FROM kohort.node FOR UPDATE")
        commit = node.begin(Append(LOG, (make_batch(1),)))
        first = waiting_writer(admin, "transactionid")
        admin.execute("SELECT pg_terminate_backend(%s)", (first,))
        wait_for(lambda: waiting_writer(admin, "transactionid") != first)
        assert not commit.done()
    commit.result(20)
    node.commit(Append(LOG, (make_batch(2),)))
    assert (node.bases, node.unknown) == ([0, 1, 2], 1)


def test_a_log_is_created_after_the_connection_was_lost(node: Node, admin: psycopg.Connection[Any]) -> None:
    node.storage._numbers.clear()  # as at the start: the first new log needs a number
    ended = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = %s"
    assert value(admin, ended, WRITER) == 1
    node.commit(CreateLog(OTHER), Append(OTHER, (make_batch(0),)))
    assert node.storage.log_info(OTHER) is not None
    with admin.transaction():
        admin.execute("UPDATE kohort.node SET incarnation = incarnation + 1")
    node.storage._numbers.clear()
    assert value(admin, ended, WRITER) == 1
    with pytest.raises(Fenced):
        node.commit(DeleteLog(OTHER), CreateLog(OTHER))


@pytest.mark.parametrize("end", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_commit_that_is_only_visible_is_not_acknowledged(
    node: Node, admin: psycopg.Connection[Any], no_standby: Callable[[str], None], end: str
) -> None:
    """It waits for its standby. Whoever ends the wait makes it visible, and it is on no other machine."""
    admin.execute("SET synchronous_commit = local")
    no_standby("nobody")
    commit = node.begin(Append(LOG, (make_batch(1),)))
    pid = waiting_writer(admin, "SyncRep")
    turn = value(admin, "SELECT turn FROM kohort.node")
    admin.execute(f"SELECT {end}(%s)", (pid,))
    wait_for(lambda: value(admin, "SELECT turn FROM kohort.node") == turn + 1)
    waiting_writer(admin, "SyncRep")  # the empty turn behind it
    assert not commit.done()
    no_standby("")
    commit.result(20)
    assert value(admin, "SELECT turn FROM kohort.node") == turn + 2
    node.commit(Append(LOG, (make_batch(2),)))
    assert node.bases == [0, 1, 2]


def test_a_crash_of_the_server_interrupts_and_loses_nothing(
    node: Node, postgres_server: PostgresServer, postgres_url: str
) -> None:
    postgres_server.stop()
    commit = node.begin(Append(LOG, (make_batch(1),)))
    with pytest.raises(StorageError):
        _ = node.bases
    postgres_server.start()
    commit.result(20)
    node.commit(Append(LOG, (make_batch(2),)), CreateLog(OTHER))
    assert node.bases == [0, 1, 2]
    node.close()
    with closing(Node(postgres_url)) as again:
        assert again.bases == [0, 1, 2]


def test_a_stop_does_not_wait_for_a_server_that_is_gone(node: Node, postgres_server: PostgresServer) -> None:
    postgres_server.stop()
    try:
        commit = node.begin(Append(LOG, (make_batch(1),)))
        node.storage.abandon()
        with pytest.raises(StorageError, match="nothing of the last turn was acknowledged"):
            commit.result(20)
        with pytest.raises(StorageError, match="cannot use the database"):
            opened_postgres(postgres_server.url())
    finally:
        postgres_server.start()


def test_a_stop_does_not_wait_for_a_standby_that_is_gone(
    node: Node, admin: psycopg.Connection[Any], no_standby: Callable[[str], None]
) -> None:
    no_standby("nobody")
    commit = node.begin(Append(LOG, (make_batch(1),)))
    waiting_writer(admin, "SyncRep")
    node.storage.abandon()
    with pytest.raises(StorageError, match="stopped"):
        commit.result(5)


def test_a_takeover_that_a_failover_has_lost_is_noticed(node: Node, admin: psycopg.Connection[Any]) -> None:
    admin.execute("UPDATE kohort.slot SET owner = 2 WHERE id = 7")
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (WRITER,))
    with pytest.raises(Fenced):
        node.commit(Append(LOG, (make_batch(1),)))
    assert value(admin, "SELECT count(*) FROM kohort.batch") == 1


def test_an_engine_opens_when_what_it_finds_is_safe(
    node: Node, admin: psycopg.Connection[Any], no_standby: Callable[[str], None], postgres_url: str
) -> None:
    """What it reads may be a commit that only the lost primary has."""
    node.close()
    no_standby("nobody")
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(opened_postgres, postgres_url)
        waiting_writer(admin, "SyncRep")
        admin.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        waiting_writer(admin, "SyncRep")  # the empty turn
        assert not opening.done()
        no_standby("")
        opening.result(20).close()


@pytest.mark.parametrize("loss", ["UPDATE kohort.node SET turn = turn - 2", "DELETE FROM kohort.node"])
def test_a_database_that_has_lost_turns_is_not_used(node: Node, admin: psycopg.Connection[Any], loss: str) -> None:
    for n in range(1, 4):
        node.commit(Append(LOG, (make_batch(n),)))
    admin.execute(loss)
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (WRITER,))
    with pytest.raises(WentBack):
        node.commit(Append(LOG, (make_batch(4),)))


def test_databases_that_are_refused(
    node: Node, admin: psycopg.Connection[Any], postgres_server: PostgresServer, postgres_url: str
) -> None:
    node.close()
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StorageError, match="takes writes"):
        opened_postgres(postgres_url)
    admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    admin.execute("UPDATE kohort.cluster SET system_identifier = 1")
    with pytest.raises(StorageError, match="is a copy"):
        opened_postgres(postgres_url)
    admin.execute("UPDATE kohort.cluster SET format = 99")
    with pytest.raises(StorageError, match="format 99"):
        opened_postgres(postgres_url)
    for setting in ("fsync=off", "full_page_writes=off"):
        postgres_server.stop()
        postgres_server.start(setting)
        try:
            with pytest.raises(StorageError, match=setting.partition("=")[0]):
                opened_postgres(postgres_url)
        finally:
            postgres_server.stop()
            postgres_server.start()


def test_commits_wait_for_the_disk_whatever_the_default_is(node: Node, admin: psycopg.Connection[Any]) -> None:
    admin.execute(f"ALTER ROLE {admin.info.user} SET synchronous_commit = off")
    try:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (WRITER,))
        node.commit(Append(LOG, (make_batch(1),)))
        work = node.storage._writer.connection.fetchval("SHOW synchronous_commit")
        assert node.storage._io.wait(work) == "on"
    finally:
        admin.execute(f"ALTER ROLE {admin.info.user} RESET synchronous_commit")


def test_rows_of_trimmed_and_deleted_logs_are_purged(
    postgres_url: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PURGE_EVERY_S", 0.01)
    with closing(Node(postgres_url)) as node:
        many = tuple(make_batch(n) for n in range(700))
        node.commit(CreateLog(LOG), CreateLog(OTHER), Append(LOG, many), Append(OTHER, many))
        node.commit(Trim(LOG, 690), DeleteLog(OTHER))
        wait_for(lambda: value(admin, "SELECT count(*) FROM kohort.batch") == 10)
        wait_for(lambda: value(admin, "SELECT count(*) FROM kohort.log") == 1)
        assert node.bases == list(range(690, 700))
        node.commit(CreateLog(OTHER), Append(OTHER, many[:1]))
        assert [batch.base_offset for batch in node.storage.read(OTHER, 0, 100)] == [0]
