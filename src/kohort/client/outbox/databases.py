"""The database connections of a program, behind one interface: begin, execute, commit, roll back.

The drivers are the program's own and are not imported here before the program has passed a connection of theirs. All
connections must be idle at `begin`, because the outbox commits what the block has done and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from kohort.client.errors import Misuse
from kohort.client.outbox.table import Statements, statements


class AsyncDatabase(Protocol):
    """A connection of an asynchronous driver. All methods raise the driver's errors."""

    statements: Statements

    async def begin(self) -> None:
        """Raises Misuse if a transaction is open."""

    async def execute(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        """The rows that a statement returns; each can be indexed. Raises Misuse if the program has ended the
        transaction itself: the statement would be committed alone."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None:
        """Does nothing if no transaction is open."""


class BlockingDatabase(Protocol):
    """A connection of a blocking driver; as `AsyncDatabase`."""

    statements: Statements

    def begin(self) -> None: ...
    def execute(self, statement: str, parameters: Sequence[Any]) -> list[Any]: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class Asyncpg:
    """asyncpg.Connection, also from a pool."""

    def __init__(self, connection: Any, table: str) -> None:
        self.statements = statements("postgresql", "${}".format, table)
        self._connection = connection
        self._transaction: Any = None

    async def begin(self) -> None:
        if self._connection.is_in_transaction():
            raise _busy()
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    async def execute(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        if not self._connection.is_in_transaction():
            raise _ended()
        if not parameters:
            await self._connection.execute(statement)
            return []
        found: list[Any] = await self._connection.fetch(statement, *parameters)
        return found

    async def commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        await transaction.commit()

    async def rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.rollback()


class AsyncPsycopg:
    """psycopg.AsyncConnection, with autocommit or without."""

    def __init__(self, connection: Any, table: str) -> None:
        self.statements = statements("postgresql", _percent, table)
        self._connection = connection
        self._block: AbstractAsyncContextManager[Any] | None = None

    async def begin(self) -> None:
        if not _is_idle(self._connection):
            raise _busy()
        self._block = self._connection.transaction()
        await self._block.__aenter__()

    async def execute(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        from psycopg.rows import tuple_row

        if _is_idle(self._connection):
            raise _ended()
        async with self._connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement, parameters or None)
            return await cursor.fetchall() if parameters else []

    async def commit(self) -> None:
        block, self._block = self._block, None
        assert block is not None
        _check_alive(self._connection)
        await block.__aexit__(None, None, None)

    async def rollback(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            await block.__aexit__(_RolledBack, _RolledBack(), None)


class Psycopg:
    """psycopg.Connection, with autocommit or without."""

    def __init__(self, connection: Any, table: str) -> None:
        self.statements = statements("postgresql", _percent, table)
        self._connection = connection
        self._block: AbstractContextManager[Any] | None = None

    def begin(self) -> None:
        if not _is_idle(self._connection):
            raise _busy()
        self._block = self._connection.transaction()
        self._block.__enter__()

    def execute(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        from psycopg.rows import tuple_row

        if _is_idle(self._connection):
            raise _ended()
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(statement, parameters or None)
            found: list[Any] = cursor.fetchall() if parameters else []
            return found

    def commit(self) -> None:
        block, self._block = self._block, None
        assert block is not None
        _check_alive(self._connection)
        block.__exit__(None, None, None)

    def rollback(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(_RolledBack, _RolledBack(), None)


class Sqlite:
    """sqlite3.Connection, in any transaction mode but `autocommit=False`, whose transactions cannot be told from
    others."""

    def __init__(self, connection: Any, table: str) -> None:
        self.statements = statements("sqlite", lambda _: "?", table)
        self._connection = connection
        if getattr(connection, "autocommit", None) is False:
            raise Misuse(
                "the sqlite3 connection has autocommit=False, so a transaction is always open; connect with "
                "autocommit=True or isolation_level=None"
            )

    def begin(self) -> None:
        if self._connection.in_transaction:
            raise _busy()
        self._connection.execute("BEGIN IMMEDIATE")

    def execute(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        if not self._connection.in_transaction:
            raise _ended()
        cursor = self._connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(statement, parameters)
            found: list[Any] = cursor.fetchall()
            return found
        finally:
            cursor.close()

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


class _RolledBack(Exception):
    """Makes psycopg's transaction block roll back."""


def asynchronous(connection: Any, table: str) -> AsyncDatabase:
    """Raises Misuse for anything but a connection of asyncpg or an asynchronous one of psycopg."""
    driver, kind = _driver(connection)
    if driver == "asyncpg":
        return Asyncpg(connection, table)
    if driver == "psycopg" and kind == "AsyncConnection":
        return AsyncPsycopg(connection, table)
    hint = "; BlockingOutbox takes it" if driver in ("psycopg", "sqlite3") else ""
    raise _unknown(connection, "asyncpg.Connection or psycopg.AsyncConnection", hint)


def blocking(connection: Any, table: str) -> BlockingDatabase:
    """Raises Misuse for anything but a connection of sqlite3 or a blocking one of psycopg."""
    driver, kind = _driver(connection)
    if driver == "sqlite3":
        return Sqlite(connection, table)
    if driver == "psycopg" and kind == "Connection":
        return Psycopg(connection, table)
    hint = "; Outbox takes it, with `async with`" if driver in ("psycopg", "asyncpg") else ""
    raise _unknown(connection, "psycopg.Connection or sqlite3.Connection", hint)


_DRIVERS: dict[tuple[str, str], tuple[str, str]] = {
    ("asyncpg", "Connection"): ("asyncpg", "Connection"),
    ("asyncpg", "PoolConnectionProxy"): ("asyncpg", "Connection"),
    ("psycopg", "AsyncConnection"): ("psycopg", "AsyncConnection"),
    ("psycopg", "Connection"): ("psycopg", "Connection"),
    ("sqlite3", "Connection"): ("sqlite3", "Connection"),
}


def _driver(connection: Any) -> tuple[str, str]:
    """The driver and the kind of its connection, also of a subclass; ("", "") for other objects."""
    for cls in type(connection).__mro__:
        if found := _DRIVERS.get((cls.__module__.partition(".")[0], cls.__name__)):
            return found
    return "", ""


def _unknown(connection: Any, expected: str, hint: str) -> Misuse:
    cls = type(connection)
    name = f"{cls.__module__}.{cls.__name__}"
    if name.startswith("sqlalchemy"):
        hint = "; pass the driver's own, SQLAlchemy's .driver_connection"
    return Misuse(f"expected {expected}, got {name}{hint}")


def _is_idle(connection: Any) -> bool:
    """Of psycopg; a lost connection is not idle."""
    return bool(connection.info.transaction_status.name == "IDLE")


def _check_alive(connection: Any) -> None:
    """On a lost connection, the end of psycopg's transaction block does nothing and raises nothing."""
    if connection.closed:
        from psycopg import OperationalError

        raise OperationalError("the connection is lost")


def _busy() -> Misuse:
    return Misuse("the connection has an open transaction; commit it first: the outbox begins its own")


def _ended() -> Misuse:
    return Misuse(
        "the block has committed or rolled back the database transaction itself, so the records are not sent; "
        "the outbox commits both at the end of the block"
    )


def _percent(_: int) -> str:
    return "%s"


__all__ = ["AsyncDatabase", "BlockingDatabase", "asynchronous", "blocking"]
