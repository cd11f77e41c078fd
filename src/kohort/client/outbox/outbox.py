"""The outbox for programs with asyncio: connections of asyncpg, or asynchronous ones of psycopg.

`recipe.py` has the order of the steps; this module awaits those of the database, and has those of Kafka done in a
thread of the outbox. A cancelled block is committed as a whole or not at all; if it has not come to the commit, not at
all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from kohort.client.concurrency.worker_thread import WorkerThread
from kohort.client.errors import Misuse
from kohort.client.outbox.databases import AsyncDatabase, asynchronous
from kohort.client.outbox.kafka_side import KafkaSide
from kohort.client.outbox.payload import DEFAULT_MAX_BYTES, Records
from kohort.client.outbox.recipe import Database, Execute, Forgotten, Recipe, Step, Steps
from kohort.client.outbox.table import DEFAULT_TABLE
from kohort.client.security.security import Security
from kohort.client.transactions.writer import DEFAULT_TIMEOUT_MS
from kohort.client.wire.routing import Router, Timing


class Outbox:
    """Database transactions of asyncpg or psycopg, each with Kafka records. Belongs to one event loop.

    `name` is the outbox's own in the database and in the cluster: its transactional ids begin with `NAME-`. Each
    running process has a name of its own. `bootstrap_servers` and `security` are those of `Cluster`;
    `transaction_timeout_ms` is the time that the database's commit may take (at most the server's
    `transaction.max.timeout.ms`); `api_timeout_ms` limits one call to the cluster with its retries; `max_bytes` limits
    the records of one transaction, which are in memory and in the table's row; `table` is NAME or SCHEMA.NAME.
    """

    def __init__(
        self,
        name: str,
        bootstrap_servers: str | Sequence[str],
        *,
        table: str = DEFAULT_TABLE,
        security: Security | Mapping[str, str] | None = None,
        client_id: str = "kohort",
        transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS,
        api_timeout_ms: int = 60_000,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self._recipe = Recipe(name)
        router = Router(bootstrap_servers, client_id, Timing(api=api_timeout_ms), Security.of(security))
        self._kafka = KafkaSide(router, transaction_timeout_ms)
        self._thread = WorkerThread(f"kohort-outbox-{name}", self._kafka.close)
        self._table = table
        self._max_bytes = max_bytes
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None

    @property
    def unfinished(self) -> bool:
        """True if the database has committed a transaction whose records readers cannot see yet, as far as is known.
        The next transaction finishes it first, or `recover`."""
        return self._recipe.unfinished

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the cluster. What is unfinished is left to the next `recover`."""
        self._thread.close()

    async def create_table(self, connection: Any) -> None:
        """Create the outbox's table unless it exists. `create_table_sql` is the statement, for your own migrations."""
        async with self._exclusive():
            await self._do(self._recipe.create_table(), asynchronous(connection, self._table))

    async def recover(self, connection: Any, *, forgotten: Forgotten = "raise") -> None:
        """Make this process the one that has the outbox, and finish what an earlier one has left unfinished.

        Call it once before the first transaction, and after OutboxTakenOver to take the outbox back. A process that had
        it can commit nothing from then on. Raises KafkaError, and errors of the driver; nothing is lost then, and the
        next call continues. OutcomeForgotten says what `forgotten` is.
        """
        async with self._exclusive():
            await self._do(self._recipe.recover(forgotten), asynchronous(connection, self._table))

    @asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[Records]:
        """A database transaction on an idle connection, and records that are committed with it.

        If the block ends normally, records and statements are committed; if it raises, nothing is. The end of the
        block returns once the database has committed; readers of committed records see the records then, or later if
        the cluster cannot be reached meanwhile (`unfinished`). If it raises, nothing is committed: KafkaError, the
        driver's errors, OutboxTakenOver. The exception is CommitUnknown: the next transaction finds out.

        An outbox has one transaction at a time; others wait for it. Raises Misuse before the first `recover`.
        """
        database = asynchronous(connection, self._table)
        async with self._exclusive():
            await self._do(self._recipe.begin(), database)
            records = Records(self._max_bytes)
            try:
                yield records
            except BaseException:
                await self._do(self._recipe.roll_back(), database)
                raise
            finally:
                records.closed = True
            await self._do(self._recipe.commit(records.outgoing), database)

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        task = asyncio.current_task()
        if self._holder is task:
            raise Misuse(f"outbox {self._recipe.name}: its transactions cannot be nested")
        async with self._lock:
            self._holder = task
            try:
                yield
            finally:
                self._holder = None

    async def _do(self, steps: Steps, database: AsyncDatabase) -> None:
        """Carry out the steps, one after the other."""
        try:
            step = next(steps)
            while True:
                try:
                    result = await self._carry_out(step, database)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration:
            return

    async def _carry_out(self, step: Step, database: AsyncDatabase) -> Any:
        match step:
            case Database():
                return await getattr(database, step.value)()
            case Execute(name, parameters):
                return await database.execute(getattr(database.statements, name), parameters)
            case _:
                return await self._thread.run(getattr(self._kafka, step.method), *step.arguments)
