"""How a program uses the outbox, and the errors that it gets for mistakes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_stores import Store, agree, hook_steps, opened, write

from kohort.client.cluster import Cluster
from kohort.client.errors import Closed, KafkaError, Misuse
from kohort.client.outbox import BlockingOutbox, Outbox, Records, create_table_sql
from kohort.testing import KohortServer


@pytest.fixture
def servers(servers_of_kohort: str) -> str:
    """These tests are about the client alone."""
    return servers_of_kohort


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers) as client:
        yield client


def test_recover_comes_first(store: Store, servers: str, name: str, topic: str) -> None:
    async def program() -> None:
        connection = await store.connect()
        outbox = store.outbox(name, servers)
        await outbox.create_table(connection)
        with pytest.raises(Misuse, match="call recover once before the first transaction"):
            await write(outbox, store, connection, topic, "lost")
        outbox.close()

    asyncio.run(program())
    assert store.values() == []


def test_the_table_is_missing(store: Store, servers: str, name: str) -> None:
    async def program() -> None:
        outbox = store.outbox(name, servers)
        with pytest.raises(Exception, match=f"{store.outbox_table}"):
            await outbox.recover(await store.connect())
        outbox.close()

    asyncio.run(program())


def test_a_connection_with_an_open_transaction(store: Store, servers: str, name: str, topic: str) -> None:
    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            if store.driver != "psycopg":  # its transactions begin with the first statement
                await store.execute(connection, "BEGIN")
            await store.insert(connection, "before")
            for call in (outbox.recover(connection), write(outbox, store, connection, topic, "lost")):
                with pytest.raises(Misuse, match="has an open transaction"):
                    await call
            await store.execute(connection, "ROLLBACK")
            await write(outbox, store, connection, topic, "kept")

    asyncio.run(program())
    assert store.values() == ["kept"]


def test_the_block_ends_the_transaction_itself(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str
) -> None:
    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):

            async def block() -> None:
                async with outbox.transaction(connection) as kafka:
                    kafka.send(topic, "lost")
                    await store.execute(connection, "ROLLBACK")

            with pytest.raises(Misuse, match="rolled back the database transaction itself"):
                await block()
            await write(outbox, store, connection, topic, "kept")

    asyncio.run(program())
    agree(store, cluster, topic, "kept")


def test_records_after_the_block(store: Store, servers: str, name: str, topic: str) -> None:
    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            async with outbox.transaction(connection) as kafka:
                pass
            with pytest.raises(Misuse, match="too late"):
                kafka.send(topic, "late")

    asyncio.run(program())


def test_nested_transactions(store: Store, servers: str, name: str) -> None:
    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):

            async def nested() -> None:
                async with outbox.transaction(connection), outbox.transaction(connection):
                    pass

            with pytest.raises(Misuse, match="cannot be nested"):
                await nested()

    asyncio.run(program())


def test_tasks_take_turns(postgres_address: str, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    store = Store("asyncpg", postgres_address, name)
    store.create()

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, _):

            async def task(number: int) -> None:
                connection = await store.connect()
                for part in range(3):
                    await write(outbox, store, connection, topic, f"{number}{part}")

            await asyncio.gather(*map(task, range(4)))

    asyncio.run(program())
    agree(store, cluster, topic, *store.values())
    assert sorted(store.values()) == [f"{number}{part}" for number in range(4) for part in range(3)]


def test_threads_take_turns(postgres_address: str, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    store = Store("psycopg", postgres_address, name)
    store.create()
    with BlockingOutbox(name, servers, table=store.outbox_table) as outbox:
        with psycopg.connect(postgres_address) as connection:
            outbox.create_table(connection)
            outbox.recover(connection)

        def thread(number: int) -> None:
            with psycopg.connect(postgres_address, autocommit=True) as connection:
                for part in range(3):
                    with outbox.transaction(connection) as kafka:
                        connection.execute(f"INSERT INTO {store.table} VALUES (%s)", [f"{number}{part}"])
                        kafka.send(topic, f"{number}{part}")

        threads = [threading.Thread(target=thread, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    agree(store, cluster, topic, *store.values())
    assert len(store.values()) == 12


@pytest.mark.parametrize("step", ["prepare", "note", "commit", "end", "settle"])
def test_a_cancelled_task(
    postgres_address: str, cluster: Cluster, servers: str, name: str, topic: str, step: str
) -> None:
    """Both are committed, or neither; the next transaction works."""
    store = Store("asyncpg", postgres_address, name)
    store.create()

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            writing = asyncio.create_task(write(outbox, store, connection, topic, "cancelled"))

            def cancel(at: str) -> None:
                if at == step:
                    writing.cancel()  # takes effect where the step waits

            hook_steps(outbox, before=cancel)
            with pytest.raises(asyncio.CancelledError):
                await writing
            outbox.__dict__.pop("_carry_out")
            await write(outbox, store, await store.connect(), topic, "next")
            assert not outbox.unfinished

    asyncio.run(program())
    agree(store, cluster, topic, *store.values())
    assert store.values() in (["next"], ["cancelled", "next"])


def test_other_connections(servers: str, postgres_address: str) -> None:
    async def asynchronous(connection: Any) -> None:
        async with Outbox("x", servers) as outbox:
            await outbox.recover(connection)

    def blocking(connection: Any) -> None:
        with BlockingOutbox("x", servers) as outbox:
            outbox.recover(connection)

    with sqlite3.connect(":memory:") as lite, psycopg.connect(postgres_address) as plain:
        for connection, hint in ((lite, "; BlockingOutbox takes it"), (plain, "; BlockingOutbox takes it"), (7, "")):
            with pytest.raises(
                Misuse, match=f"expected asyncpg.Connection or .* got {type(connection).__module__}.*{hint}"
            ):
                asyncio.run(asynchronous(connection))

    async def both() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_address) as connection:
            with pytest.raises(Misuse, match="; Outbox takes it, with `async with`"):
                blocking(connection)

    asyncio.run(both())
    with pytest.raises(Misuse, match=r"expected psycopg\.Connection or sqlite3\.Connection, got builtins\.NoneType"):
        blocking(None)


class OwnConnection(sqlite3.Connection):
    """A program's own subclass."""


def test_connections_with_settings_of_their_own(
    tmp_path: Path, cluster: Cluster, servers: str, name: str, topic: str
) -> None:
    store = Store("sqlite3", str(tmp_path / "book"), name)
    store.create()
    with BlockingOutbox(name, servers, table=store.outbox_table) as outbox:
        for number, isolation in enumerate((None, "", "EXCLUSIVE")):
            connection = sqlite3.connect(store.address, isolation_level=isolation, factory=OwnConnection)  # type: ignore[arg-type]
            connection.row_factory = lambda *_: {"not": "a tuple"}
            outbox.create_table(connection)
            outbox.recover(connection)
            with outbox.transaction(connection) as kafka:
                connection.execute(f"INSERT INTO {store.table} VALUES (?)", [str(number)])
                kafka.send(topic, str(number))
            connection.close()
    agree(store, cluster, topic, "0", "1", "2")


def test_settings_of_psycopg(postgres_address: str, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    store = Store("psycopg", postgres_address, name)
    store.create()
    from psycopg.rows import dict_row

    with (
        BlockingOutbox(name, servers, table=f"public.{store.outbox_table}") as outbox,
        psycopg.connect(postgres_address, row_factory=dict_row, autocommit=True) as connection,
    ):
        outbox.create_table(connection)
        outbox.recover(connection)
        connection.execute("SET default_transaction_isolation = 'serializable'")
        connection.execute("SET synchronous_commit = off")
        with outbox.transaction(connection) as kafka:
            kafka.send(topic, "kept")
            connection.execute(f"INSERT INTO {store.table} VALUES ('kept')")
        assert connection.execute("SHOW synchronous_commit").fetchone() == {"synchronous_commit": "off"}
    agree(store, cluster, topic, "kept")


def test_commits_are_durable_in_spite_of_a_setting(postgres_address: str, servers: str, name: str, topic: str) -> None:
    store = Store("psycopg", postgres_address, name)
    seen: list[Any] = []
    with (
        BlockingOutbox(name, servers, table=store.outbox_table) as outbox,
        psycopg.connect(postgres_address, options="-c synchronous_commit=off", autocommit=True) as connection,
    ):
        outbox.create_table(connection)

        def before(step: str) -> None:
            if step == "commit":
                seen.append(connection.execute("SHOW synchronous_commit").fetchone())

        hook_steps(outbox, before=before)
        outbox.recover(connection)
        with outbox.transaction(connection) as kafka:
            kafka.send(topic, "kept")
    assert seen == [("on",)] * 3


@pytest.mark.parametrize("table", ["", "a b", "a;b", "1a", "a.b.c", 'a"b'])
def test_names_of_tables(table: str) -> None:
    with pytest.raises(ValueError, match=r"expected NAME or SCHEMA\.NAME"):
        create_table_sql("sqlite", table)


def test_values_that_are_no_bytes() -> None:
    records = Records()
    for bad in (7, {}, bytearray(b"x")):
        with pytest.raises(TypeError, match=f"not {type(bad).__name__}"):
            records.send("t", bad)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            records.send("t", b"", key=bad)  # type: ignore[arg-type]


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "book")
    with BlockingOutbox("x", "127.0.0.1:1", api_timeout_ms=100) as outbox:
        outbox.create_table(connection)
        with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
            outbox.recover(connection)
    connection.close()


def test_a_closed_outbox(postgres_address: str, servers: str, name: str) -> None:
    store = Store("asyncpg", postgres_address, name)

    async def program() -> None:
        connection = await store.connect()
        async with store.outbox(name, servers) as outbox:
            await outbox.create_table(connection)
        with pytest.raises(Closed):
            await outbox.recover(connection)

    asyncio.run(program())


def test_transactional_ids_begin_with_the_name(tmp_path: Path, name: str) -> None:
    """So that an ACL with a prefix can allow them; docs/how-to/outbox.md says so."""
    connection = sqlite3.connect(tmp_path / "book")
    with KohortServer() as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic(name, 1)
        for _ in range(2):
            with BlockingOutbox(name, server.bootstrap_servers) as outbox:
                outbox.create_table(connection)
                outbox.recover(connection)
                with outbox.transaction(connection) as kafka:
                    kafka.send(name, "x")
        [(session, noted)] = connection.execute("SELECT session, transactional_id FROM kohort_outbox").fetchall()
        assert (session, noted) == (2, None)
    connection.close()
