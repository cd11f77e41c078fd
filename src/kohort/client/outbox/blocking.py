"""The outbox for programs with threads: connections of sqlite3, or blocking ones of psycopg. See `outbox.py`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from kohort.client.errors import Misuse
from kohort.client.outbox.databases import BlockingDatabase, blocking
from kohort.client.outbox.kafka_side import KafkaSide
from kohort.client.outbox.payload import DEFAULT_MAX_BYTES, Records
from kohort.client.outbox.recipe import Database, Execute, Forgotten, Recipe, Step, Steps
from kohort.client.outbox.table import DEFAULT_TABLE
from kohort.client.security.security import Security
from kohort.client.transactions.writer import DEFAULT_TIMEOUT_MS
from kohort.client.wire.routing import Router, Timing


class BlockingOutbox:
    """Database transactions of sqlite3 or psycopg, each with Kafka records. Settings, properties and calls are those of
    `Outbox`; threads take turns."""

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
        self._table = table
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._holder: int | None = None

    @property
    def unfinished(self) -> bool:
        """As `Outbox.unfinished`."""
        return self._recipe.unfinished

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """As `Outbox.close`; waits for a transaction of another thread."""
        with self._exclusive():
            self._kafka.close()

    def create_table(self, connection: Any) -> None:
        """As `Outbox.create_table`."""
        with self._exclusive():
            self._do(self._recipe.create_table(), blocking(connection, self._table))

    def recover(self, connection: Any, *, forgotten: Forgotten = "raise") -> None:
        """As `Outbox.recover`."""
        with self._exclusive():
            self._do(self._recipe.recover(forgotten), blocking(connection, self._table))

    @contextmanager
    def transaction(self, connection: Any) -> Iterator[Records]:
        """As `Outbox.transaction`, with a plain `with`."""
        database = blocking(connection, self._table)
        with self._exclusive():
            self._do(self._recipe.begin(), database)
            records = Records(self._max_bytes)
            try:
                yield records
            except BaseException:
                self._do(self._recipe.roll_back(), database)
                raise
            finally:
                records.closed = True
            self._do(self._recipe.commit(records.outgoing), database)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        thread = threading.get_ident()
        if self._holder == thread:
            raise Misuse(f"outbox {self._recipe.name}: its transactions cannot be nested")
        with self._lock:
            self._holder = thread
            try:
                yield
            finally:
                self._holder = None

    def _do(self, steps: Steps, database: BlockingDatabase) -> None:
        """Carry out the steps, one after the other."""
        try:
            step = next(steps)
            while True:
                try:
                    result = self._carry_out(step, database)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration:
            return

    def _carry_out(self, step: Step, database: BlockingDatabase) -> Any:
        match step:
            case Database():
                return getattr(database, step.value)()
            case Execute(name, parameters):
                return database.execute(getattr(database.statements, name), parameters)
            case _:
                return getattr(self._kafka, step.method)(*step.arguments)
