"""Commits turns on one connection, and finds out whether a commit happened whose answer is lost.

The turn's number is the proof. After a lost connection the node's row says which turn was the last one: the one that
was sent, or the one before it, which is then sent again. That waits for the row if the lost commit still holds it, and
writes nothing if that commit ends well.

What is visible is not yet safe: a commit that waited for its standby becomes visible without one when its wait is
cancelled, with a warning, or when the server that was lost had no time to wait. So a turn that is found done, or ends
with a warning, is acknowledged after an empty turn behind it has been: the log of the database is a prefix.

A failover may lose a takeover that nothing acknowledged depends on. So an engine begins with an empty turn, and a
writer that connects again looks whether its node still owns everything.

The writer waits for as long as it takes, and nothing is acknowledged meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import asyncpg

from kohort.storage.postgres.changes import Changes
from kohort.storage.postgres.connections import NO_ANSWER, NotThePrimary, Server
from kohort.storage.postgres.schema import ANOTHER_OWNER, APPEND_TURN, CHANGE_TURN, EMPTY_TURN, SLOT_TURN
from kohort.storage.protocol import Fenced, Log, StorageError

PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Between attempts to connect; the last one again and again."""
TELL_EVERY = 10
"""Attempts to connect between two lines in the log."""
PASSING = frozenset(("25006", "40001", "40P01", "55P03", "57014"))
"""Errors that say nothing against the statement: the server has become a standby, deadlocks, cancellations."""
PASSING_CLASSES = frozenset(("08", "53", "57", "58"))
"""No connection, no resources (a full disk), shut down, an error of the system."""

_LAST_TURN = """
SELECT incarnation, turn,
       EXISTS (SELECT FROM kohort.slot WHERE owner <> $1 AND ($2::int[] IS NULL OR id = ANY ($2))) AS others
FROM kohort.node WHERE id = $1
"""
"""`$2`: the slots that the node serves; all of them if it is null."""


def is_passing(error: asyncpg.PostgresError) -> bool:
    code = error.sqlstate or ""
    return code in PASSING or code[:2] in PASSING_CLASSES


Connected = tuple["asyncpg.Connection[Any]", Server]


class Outcome(Enum):
    DONE = auto()
    REFUSED = auto()
    """The statement found another turn or incarnation."""
    UNKNOWN = auto()


class WentBack(StorageError):
    """The database has lost commits that were acknowledged."""


class Writer:
    """One node's writer, with the incarnation and the last turn that it has found in its row."""

    def __init__(
        self,
        connected: Connected,
        dial: Callable[[], Awaitable[Connected]],
        node: int,
        incarnation: int,
        turn: int,
        log: Log,
        held: set[int] | None = None,
    ) -> None:
        """`held`: the slots that the node serves, which others change; None if it owns everything."""
        self._held = held
        self._unsure: frozenset[int] = frozenset()
        """Slots that the commit under way gives away: it may have happened."""
        self._node = node
        self._incarnation = incarnation
        self._turn = turn
        self._dial = dial
        self._log = log
        self._system_identifier = connected[1].system_identifier
        self._connection: asyncpg.Connection[Any] | None = None
        self._statements: dict[str, Any] = {}
        self._warned = ""
        self._stopping = asyncio.Event()
        self.unknown = 0
        """Commits whose outcome had to be found out."""
        self._use(connected[0])

    @property
    def connection(self) -> asyncpg.Connection[Any]:
        """For other statements between commits."""
        assert self._connection is not None
        return self._connection

    def _use(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection
        self._statements = {}
        connection.add_log_listener(self._told)

    def _told(self, _: Any, message: Any) -> None:
        if getattr(message, "severity_en", None) in ("WARNING", "ERROR", "FATAL", "PANIC"):
            self._warned = str(message)

    def stop(self) -> None:
        """A commit under way fails with StorageError: its outcome stays unknown."""
        self._stopping.set()
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    # -- commits

    async def commit(self, changes: Changes) -> None:
        """Raises Fenced, WentBack, StorageError."""
        text, arguments = EMPTY_TURN, []
        if changes.only_appends:
            if changes.batches:
                text, arguments = APPEND_TURN, changes.batch_columns()
        else:
            text, arguments = CHANGE_TURN, changes.columns()
        if changes.moves_slots:
            text, arguments = SLOT_TURN, [*arguments, *changes.slot_columns()]
        self._unsure = frozenset(changes.given)
        number = self._turn + 1
        is_uncertain = False
        while (outcome := await self._send(text, arguments, number)) is not Outcome.DONE:
            if outcome is Outcome.REFUSED and not is_uncertain:
                raise Fenced
            is_uncertain = True
            self.unknown += 1
            found = await self._last_turn()
            if found == number:
                text, arguments, number = EMPTY_TURN, [], number + 1
            elif found != number - 1:
                raise WentBack(
                    f"the database has gone back to turn {found} of node {self._node}, and turn {number - 1} was "
                    "acknowledged: it has lost commits, perhaps in a failover to an asynchronous standby. Nothing is "
                    "served from it; restore the server that has them"
                )
        self._turn = number

    async def begin(self) -> None:
        """An empty turn: what was committed before, on any connection, is as safe as a turn. Raises as `commit`."""
        await self.commit(Changes())

    async def _send(self, text: str, arguments: list[Any], number: int) -> Outcome:
        connection = self._connection
        if connection is None:
            return Outcome.UNKNOWN
        self._warned = ""
        try:
            statement = self._statements.get(text)
            if statement is None:
                statement = self._statements[text] = await connection.prepare(text)
            done = await statement.fetchval(self._node, self._incarnation, number, *arguments)
        except NO_ANSWER as error:
            self._lost(error)
            return Outcome.UNKNOWN
        except asyncpg.PostgresError as error:
            if error.sqlstate == ANOTHER_OWNER:
                raise Fenced from error
            if not is_passing(error):
                raise StorageError(f"the database refuses a commit: {error}") from error
            self._lost(error)
            await self._pause(PAUSES_S[-1])
            return Outcome.UNKNOWN
        if done is None:
            return Outcome.REFUSED
        if self._warned:
            self._log.warning("the database warned of a commit", warning=self._warned)
            return Outcome.UNKNOWN
        return Outcome.DONE

    def _lost(self, error: BaseException) -> None:
        if not self._stopping.is_set():
            self._log.warning("a commit has no answer from the database", error=str(error) or type(error).__name__)
        self._drop()

    async def _last_turn(self) -> int:
        """The number of the last turn that is visible. Raises Fenced, StorageError."""
        attempt = 0
        while True:
            self._go_on()
            if self._connection is None:
                await self._connect()
            try:
                held = None if self._held is None else sorted(self._held - self._unsure)
                row = await self.connection.fetchrow(_LAST_TURN, self._node, held)
            except (*NO_ANSWER, asyncpg.PostgresError):
                self._drop()
                await self._pause(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
                attempt += 1
                continue
            if row is None or row["incarnation"] < self._incarnation:
                raise WentBack(
                    f"the database does not know this process (node {self._node}, incarnation {self._incarnation}): it "
                    "has lost commits, or is another database. Nothing is served from it"
                )
            if row["incarnation"] != self._incarnation or row["others"]:
                raise Fenced
            return int(row["turn"])

    async def _connect(self) -> None:
        attempt = 0
        while True:
            try:
                connection, server = await self._dial()
            except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
                if attempt % TELL_EVERY == 1:
                    self._log.warning("the database does not answer", error=str(error) or type(error).__name__)
                await self._pause(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
                attempt += 1
                continue
            if server.system_identifier != self._system_identifier:
                connection.terminate()
                raise StorageError(
                    f"another database answers than before: its system identifier is {server.system_identifier}, not "
                    f"{self._system_identifier}"
                )
            if self._stopping.is_set():
                connection.terminate()
            self._go_on()
            self._log.info("connected to the database again")
            self._use(connection)
            return

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        self._go_on()

    def _go_on(self) -> None:
        """Raises StorageError after a stop: the same commit, sent again, might wait as long as the first one."""
        if self._stopping.is_set():
            raise StorageError("stopped before the database had answered; nothing of the last turn was acknowledged")
