"""Requests that nodes pass on to the controller, and their answers: rows of a table, and a notification each way.

The connection is apart from that of the slots, where a takeover may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import asyncpg

from kohort.storage.postgres.connections import NO_ANSWER, NotThePrimary
from kohort.storage.postgres.leases import Dial
from kohort.storage.postgres.schema import CHANNEL
from kohort.storage.protocol import Log

KEPT_S = 60
"""An answer that nobody has taken by then is dropped, and so is a request."""
MOST = 100
"""Requests that a controller takes at a time."""

Asked = tuple[int, bytes, str, str, str, str]
"""Id, request, the client's address, type and name of its principal, its listener."""

_ASK = """
INSERT INTO kohort.ask (request, host, principal_type, principal, listener) VALUES ($1, $2, $3, $4, $5) RETURNING id
"""
_ASKED = """
SELECT id, request, host, principal_type, principal, listener FROM kohort.ask
WHERE answer IS NULL AND id <> ALL ($1::bigint[]) ORDER BY id LIMIT $2
"""
_ANSWER = "UPDATE kohort.ask SET answer = $2 WHERE id = $1 RETURNING id"
_ANSWERS = "DELETE FROM kohort.ask WHERE id = ANY ($1::bigint[]) AND answer IS NOT NULL RETURNING id, answer"
_OLD = f"DELETE FROM kohort.ask WHERE asked < clock_timestamp() - interval '{KEPT_S} s'"


class AskTable:
    """All methods run on the engine's event loop. They return None if the database does not answer."""

    def __init__(self, dial: Dial, log: Log) -> None:
        self._dial = dial
        self._log = log
        self._lock = asyncio.Lock()
        self._connection: asyncpg.Connection[Any] | None = None

    async def ask(self, *row: Any) -> int | None:
        """The row's columns are those of `Asked` without its id. Returns the id."""
        found = await self._fetch(_ASK, *row, tells=True)
        return None if found is None else int(found[0][0])

    async def asked(self, known: Collection[int]) -> list[Asked] | None:
        """The requests that wait for an answer, but for those that are known."""
        await self._fetch(_OLD)
        return await self._fetch(_ASKED, list(known), MOST)

    async def answer(self, number: int, answer: bytes) -> None:
        await self._fetch(_ANSWER, number, answer, tells=True)

    async def answers(self, numbers: Collection[int]) -> list[tuple[int, bytes]] | None:
        """Takes what is there of the answers to these requests."""
        return await self._fetch(_ANSWERS, list(numbers))

    async def tell(self) -> None:
        """Let the other nodes look at once. A failure is no trouble: they look anyway."""
        await self._fetch(f"NOTIFY {CHANNEL}")

    async def _fetch(self, text: str, *arguments: Any, tells: bool = False) -> list[Any] | None:
        async with self._lock:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection, _ = await self._dial("reader")
                found = [tuple(row) for row in await self._connection.fetch(text, *arguments)]
                if tells:
                    await self._connection.execute(f"NOTIFY {CHANNEL}")
            except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
                self._log.info("requests between nodes wait", error=str(error) or type(error).__name__)
                self.close()
                return None
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
