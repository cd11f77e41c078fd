"""A database that no node serves, read as a whole: the source of a migration, or its target before it is finished.

A node registers and takes over behind an advisory lock. A session holds this lock while the database is open, so no
node begins to serve it; a start waits. A database with a living node is refused.

A process that was stopped (SIGSTOP) for longer than its lease may still go on. So `fences` raises the incarnation of
all nodes, as takeovers do, and waits for the row of a commit under way: nothing is committed behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import asyncpg

from kohort.storage.postgres.connections import NO_ANSWER, connect, shown
from kohort.storage.postgres.io_thread import IoThread
from kohort.storage.postgres.loading import load
from kohort.storage.postgres.reader import Logs, PostgresReader
from kohort.storage.postgres.reads import PostgresReads
from kohort.storage.postgres.schema import FORMAT_VERSION, LOCK, SHARED_VERSION
from kohort.storage.postgres.tables import check_unfinished, format_of, judge, living_node, mark_migrated, migrated_to
from kohort.storage.protocol import Lease, Operation, StorageError, Unavailable
from kohort.storage.slots import NO_NODE, SLOTS, Numbers

LOCK_S = 5.0
"""How long an open waits for another process that holds the lock."""
AGAIN_S = 0.1

_STOPPED_NODE = f"""
INSERT INTO kohort.node_lease (id, incarnation, until, instance, host, port, listeners)
VALUES ({NO_NODE}, 0, clock_timestamp(), '', '', 0, '{{}}')
"""
_SLOTS = f"""
INSERT INTO kohort.slot (id, owner, epoch)
SELECT u.id, {NO_NODE}, u.epoch FROM unnest($1::int[], $2::int[]) u(id, epoch)
"""

T = TypeVar("T")


class UnservedDatabase(PostgresReads):
    """A `Storage` without writes. Raises StorageError.

    `fences`: from now on no process that was a node commits anything, and what was committed is in the logs.
    `unfinished`: the database is the target of a migration, which node `unfinished[0]` has filled with the incarnation
    `unfinished[1]`."""

    is_ours: Callable[[], bool] | None = None

    def __init__(self, url: str, *, fences: bool = False, unfinished: tuple[int, int] | None = None) -> None:
        self.shown = shown(url)
        self.migrated_to: str | None = None
        """Where the data has gone, if it was migrated."""
        self.numbers: Numbers | None = None
        """Of nodes that serve at once; None if one node owns all."""
        self._url = url
        self._fences = fences
        self._unfinished = unfinished
        self._connection: asyncpg.Connection[Any] | None = None
        self._closed = False
        self._io = IoThread("kohort-migration")
        self._logs = Logs({})
        self._reader = self.reader()
        try:
            self._wait(self._open())
        except BaseException:
            self.close()
            raise

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._io.wait(work)
        except (*NO_ANSWER, asyncpg.PostgresError) as error:
            raise Unavailable(f"cannot use the database {self.shown}: {str(error) or type(error).__name__}") from error

    async def _open(self) -> None:
        self._connection, server = await connect(self._url, "migration")
        connection = self._connection
        found = await format_of(connection)
        if found is None:
            raise StorageError(f"{self.shown} has no data of kohort: it has no tables in the schema kohort")
        await connection.execute("SET idle_session_timeout = 0")
        await self._lock(connection)
        if self._unfinished is None:
            self.migrated_to = await migrated_to(connection)
            if self.migrated_to is None:
                known = SHARED_VERSION if found == SHARED_VERSION else FORMAT_VERSION
                await judge(connection, server, self.shown, known)
        else:
            await judge(connection, server, self.shown, -abs(found))
            node, incarnation = self._unfinished
            held = await connection.fetchval("SELECT incarnation FROM kohort.node WHERE id = $1", node)
            if held != incarnation:
                raise StorageError(f"another migration to {self.shown} has begun meanwhile; this one ends")
        living = await living_node(connection)
        if living is not None:
            raise StorageError(f"{self.shown} is in use: {living[1]}; stop it, or wait for the lease's end")
        if self._fences:
            for table in ("node", "node_lease"):
                await connection.execute(f"UPDATE kohort.{table} SET incarnation = incarnation + 1")
        self._logs.by_key = await load(connection)
        if found == SHARED_VERSION:
            epochs = [row[0] for row in await connection.fetch("SELECT epoch FROM kohort.slot ORDER BY id")]
            next_id = await connection.fetchval("SELECT next_id FROM kohort.producer_ids")
            self.numbers = Numbers(tuple(epochs or [0] * SLOTS), next_id)

    async def _lock(self, connection: asyncpg.Connection[Any]) -> None:
        end = time.monotonic() + LOCK_S
        while not await connection.fetchval(f"SELECT pg_try_advisory_lock({LOCK})"):
            if time.monotonic() > end:
                raise StorageError(f"{self.shown} is in use: another process migrates it, or a node registers there")
            await asyncio.sleep(AGAIN_S)

    def reader(self) -> PostgresReader:
        return PostgresReader(self._io, self._logs, partial(connect, self._url, "migration", "reader"))

    # -- changes of the database as a whole

    def mark_migrated(self, place: str) -> None:
        """No node serves the database from now on. Raises StorageError, also if the lock was lost meanwhile."""
        assert self._connection is not None
        self._wait(mark_migrated(self._connection, place))

    def finish(self, numbers: Numbers) -> None:
        """The migration is done, and nodes may serve the database; if these serve at once, with larger numbers than
        `numbers`. Raises StorageError, also if the lock was lost."""
        self._wait(self._finish(numbers))

    async def _finish(self, numbers: Numbers) -> None:
        connection = self._connection
        assert connection is not None
        async with connection.transaction():
            await connection.execute("TRUNCATE kohort.node, kohort.node_lease, kohort.slot")
            format_ = await connection.fetchval("UPDATE kohort.cluster SET format = -format RETURNING format")
            if format_ == SHARED_VERSION:
                # The slots belong to a node that has stopped, so the first node takes them over, with the next epochs.
                await connection.execute(_STOPPED_NODE)
                await connection.execute(_SLOTS, list(range(len(numbers.epochs))), list(numbers.epochs))
                await connection.execute("UPDATE kohort.producer_ids SET next_id = $1", numbers.next_producer_id)

    # -- what a Storage has besides

    def acquire(self) -> Lease:
        return Lease(0)

    def commit(self, operations: Sequence[Operation], lease: Lease) -> None:
        raise StorageError(f"{self.shown} is opened for reading only")

    def abandon(self) -> None:
        """Nothing is committed."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.close()
            if self._connection is not None:
                self._io.call(self._connection.terminate)
            self._io.stop()


def check_fillable(url: str, format_: int) -> bool:
    """Whether a database may be the target of a migration to this format. Returns whether it has the rest of one that
    was interrupted. Raises StorageError. Starts an event loop."""
    return asyncio.run(_check_fillable(url, format_))


async def _check_fillable(url: str, format_: int) -> bool:
    try:
        connection, _ = await connect(url, "migration", "reader")
        try:
            found = await format_of(connection)
            if found is None:
                return False
            check_unfinished(found, -format_, shown(url))
            return True
        finally:
            connection.terminate()
    except (*NO_ANSWER, asyncpg.PostgresError) as error:
        raise Unavailable(f"cannot use the database {shown(url)}: {str(error) or type(error).__name__}") from error
