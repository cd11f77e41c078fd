"""The databases and drivers that an outbox works with, for tests: each with a table of values, and all with `await`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
from committed_records import committed

from kohort.client.cluster import Cluster
from kohort.client.outbox import BlockingOutbox, Outbox, Records

DRIVERS = ("asyncpg", "psycopg-async", "psycopg", "sqlite3")

INSERT = {
    "asyncpg": "INSERT INTO {} VALUES ($1)",
    "psycopg-async": "INSERT INTO {} VALUES (%s)",
    "psycopg": "INSERT INTO {} VALUES (%s)",
    "sqlite3": "INSERT INTO {} VALUES (?)",
}


async def connect(driver: str, address: str) -> Any:
    """`address` is a connection string, or the path of a file."""
    match driver:
        case "asyncpg":
            return await asyncpg.connect(address)
        case "psycopg-async":
            return await psycopg.AsyncConnection.connect(address)
        case "psycopg":
            return psycopg.connect(address)
        case _:
            return sqlite3.connect(address, timeout=0.2)


class Store:
    """A database with a table of values."""

    def __init__(self, driver: str, address: str, table: str) -> None:
        self.driver, self.address, self.table = driver, address, table
        self.outbox_table = f"{table}_outbox"

    async def connect(self) -> Any:
        return await connect(self.driver, self.address)

    async def execute(self, connection: Any, statement: str, *parameters: Any) -> None:
        """In the connection's transaction, or in one of its own for asyncpg."""
        if self.driver == "asyncpg":
            await connection.execute(statement, *parameters)
        elif self.driver == "psycopg-async":
            await connection.execute(statement, parameters)
        else:
            connection.execute(statement, parameters)

    async def insert(self, connection: Any, value: str) -> None:
        await self.execute(connection, INSERT[self.driver].format(self.table), value)

    def create(self) -> None:
        self._plain(f"CREATE TABLE {self.table} (value text)")

    def values(self) -> list[str]:
        return [value for (value,) in self._plain(f"SELECT value FROM {self.table}")]

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the outbox's table: name, session, transactional id."""
        return self._plain(f"SELECT name, session, transactional_id FROM {self.outbox_table}")

    def _plain(self, statement: str) -> list[tuple[Any, ...]]:
        if self.driver == "sqlite3":
            opened = sqlite3.connect(self.address, timeout=10)
            try:
                with opened:
                    return opened.execute(statement).fetchall()
            finally:
                opened.close()
        with psycopg.connect(self.address) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def outbox(self, name: str, servers: str, **options: Any) -> Any:
        """An Outbox, or an `Awaited` BlockingOutbox."""
        options = {"table": self.outbox_table, **options}
        if self.driver in ("asyncpg", "psycopg-async"):
            return Outbox(name, servers, **options)
        return Awaited(BlockingOutbox(name, servers, **options))


class Awaited:
    """A BlockingOutbox whose calls can be awaited."""

    def __init__(self, inner: BlockingOutbox) -> None:
        self.inner = inner

    @property
    def unfinished(self) -> bool:
        return self.inner.unfinished

    @property
    def _kafka(self) -> Any:
        return self.inner._kafka

    def close(self) -> None:
        self.inner.close()

    async def create_table(self, connection: Any) -> None:
        self.inner.create_table(connection)

    async def recover(self, connection: Any, **options: Any) -> None:
        self.inner.recover(connection, **options)

    @asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[Records]:
        with self.inner.transaction(connection) as records:
            yield records


def drop(connection: Any) -> None:
    """Lose the connection, as if the network had failed."""
    if isinstance(connection, asyncpg.Connection):
        connection.terminate()
    elif isinstance(connection, sqlite3.Connection):
        connection.close()
    else:
        connection.pgconn.finish()


Hook = Callable[[str], None]


def hook_steps(outbox: Any, before: Hook | None = None, after: Hook | None = None) -> None:
    """Call a function before or after each step of an outbox, with the step's name."""
    inner = outbox.inner if isinstance(outbox, Awaited) else outbox
    carry_out = inner._carry_out

    def hooked(step: Any, database: Any) -> Any:
        name = getattr(step, "value", None) or getattr(step, "statement", None) or step.method
        if before is not None:
            before(name)
        result = carry_out(step, database)
        if hasattr(result, "__await__"):
            return awaited(name, result)
        if after is not None:
            after(name)
        return result

    async def awaited(name: str, result: Any) -> Any:
        found = await result
        if after is not None:
            after(name)
        return found

    inner._carry_out = hooked


def once(wanted: str, act: Callable[[], None]) -> Hook:
    """A hook for the next step of this name."""
    done: list[str] = []

    def hook(step: str) -> None:
        if step == wanted and not done:
            done.append(step)
            act()

    return hook


def once_before(outbox: Any, wanted: str, act: Callable[[], None]) -> None:
    hook_steps(outbox, before=once(wanted, act))


def once_after(outbox: Any, wanted: str, act: Callable[[], None]) -> None:
    hook_steps(outbox, after=once(wanted, act))


def elsewhere(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in a thread with a loop of its own, and wait for it; also from within another loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work()).result()


@asynccontextmanager
async def opened(store: Store, name: str, servers: str, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """An outbox that has recovered, and an idle connection."""
    connection = await store.connect()
    outbox = store.outbox(name, servers, **options)
    try:
        await outbox.create_table(connection)
        await outbox.recover(connection)
        yield outbox, connection
    finally:
        outbox.close()


async def write(outbox: Any, store: Store, connection: Any, topic: str, *values: str) -> None:
    async with outbox.transaction(connection) as kafka:
        for value in values:
            await store.insert(connection, value)
            kafka.send(topic, value)


def agree(store: Store, cluster: Cluster, topic: str, *values: str) -> None:
    assert store.values() == list(values)
    assert committed(cluster, topic) == list(values)
