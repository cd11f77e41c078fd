"""`PostgresStorage`: the data of a kohort that lives in a PostgreSQL database.

A turn is one statement and one round trip (schema.py, writer.py). `open` takes the node's row, then waits until the
node owns the data (leases.py). From then on no former owner can commit anything. Only then it loads the logs.

Steps read from memory (batch_index.py). Data of batches is read with connections of their own: one for the replay and
one a `LogReader`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import asyncpg

from kohort.storage.check import Extent, check_operations
from kohort.storage.postgres.ask_table import Asked, AskTable
from kohort.storage.postgres.changes import apply
from kohort.storage.postgres.connections import NO_ANSWER, NotThePrimary, Server, connect, shown
from kohort.storage.postgres.io_thread import IoThread
from kohort.storage.postgres.leases import Leases, NodeAddress, Timing
from kohort.storage.postgres.loading import load
from kohort.storage.postgres.purge import purge_piece
from kohort.storage.postgres.reader import Logs, PostgresReader
from kohort.storage.postgres.reads import PostgresReads
from kohort.storage.postgres.schema import FORMAT_VERSION, NUMBERS_A_BLOCK, SHARED_VERSION
from kohort.storage.postgres.slot_table import LogEnd, Seen, SlotTable
from kohort.storage.postgres.tables import prepare
from kohort.storage.postgres.writer import Connected, Writer, is_passing
from kohort.storage.protocol import (
    CreateLog,
    Fenced,
    GiveSlots,
    Lease,
    Log,
    LogInfo,
    LogKey,
    NoLog,
    Operation,
    StorageError,
    StoredBatch,
    TakeSlots,
    Unavailable,
)
from kohort.storage.slots import METADATA_TOPIC_ID, slot_of

PURGE_EVERY_S = 5.0
RECONNECT_S = 0.5
LASTING = frozenset(("28", "3D", "42"))
"""Classes of errors that a later start meets again: a wrong password, no such database, no permission."""
PURGE_PAUSE_S = 0.05
"""Between two pieces: turns come first."""


class PostgresStorage(PostgresReads):
    """Call `open` before anything else but `abandon` and `close`. `failed` is called in a thread if another process
    takes over between two commits."""

    def __init__(
        self,
        url: str,
        address: NodeAddress,
        log: Log | None = None,
        failed: Callable[[Exception], None] = lambda error: None,
        timing: Timing = Timing(),
        move_s: float | None = None,
        *,
        fills: int = 0,
    ) -> None:
        """`move_s`: all nodes serve at once, and slots move at most so often (seconds). None: one node owns all.

        `fills`: as the target of a migration, of this format. The database must have no data, or that of an unfinished
        migration, which is removed; no node serves it before `UnservedDatabase.finish`."""
        self.shown = shown(url)
        self._url = url
        self._node = address.id
        self._log = log or NoLog()
        self._leases = Leases(address, timing, self._dial, self._log)
        self._leases.fenced = failed
        self.is_ours: Callable[[], bool] | None = self._leases.clock.holds
        self._shares = move_s is not None
        self._fills = fills
        self._slots = SlotTable(self._leases, self._dial, move_s or 0.0, self._log)
        self._asks = AskTable(self._dial, self._log)
        self._served: set[int] = set()
        """The slots that this node serves; without meaning if it owns all."""
        self._writer: Writer | None = None
        self._opening: asyncio.Task[Writer] | None = None
        self._closed = False
        self._lease = Lease(0)
        self._numbers: list[int] = []
        self._io = IoThread("kohort-postgres")
        self._logs = Logs({})
        self._reader = self.reader()

    # -- opening and closing

    def _dial(self, kind: Any) -> Any:
        return connect(self._url, f"node {self._node}", kind)

    def open(self) -> PostgresStorage:
        """Connect, create the tables if they are missing, and wait until this node owns the data. Raises StorageError,
        also when `abandon` is called meanwhile. Returns itself."""
        try:
            self._writer = self._io.wait(self._open())
        except (*NO_ANSWER, asyncpg.PostgresError) as error:
            text = f"cannot use the database {self.shown}: {str(error) or type(error).__name__}"
            code = getattr(error, "sqlstate", None) or ""
            raise (StorageError if code[:2] in LASTING else Unavailable)(text) from error
        self._io.start(self._purge())
        return self

    def watch_others(self, changed: Callable[[tuple[NodeAddress, ...]], None]) -> None:
        """`changed` is called in a thread with the other nodes that have a lease: now, and when they change."""

        async def begin() -> None:
            self._leases.watch(changed)

        self._io.wait(begin())

    async def _open(self) -> Writer:
        self._opening = asyncio.current_task()
        connected = await self._dial("writer")
        try:
            await self._prepare(*connected)
            turn = await self._leases.register(connected[0])
            self._leases.start()
            if self._shares:
                await self._slots.found(connected[0])
            while not self._shares and not await self._owns(connected[0]):
                connected = await self._dial_again(connected[0])
            dial, incarnation = partial(self._dial, "writer"), self._leases.incarnation
            held = self._served if self._shares else None
            writer = Writer(connected, dial, self._node, incarnation, turn, self._log, held)
            await writer.begin()
            if not self._shares:
                self._logs.by_key = await load(writer.connection)
        except BaseException:
            connected[0].terminate()
            raise
        if not connected[1].has_standby_names:
            self._log.warning(
                "the database has no synchronous standby",
                hint="what kohort acknowledges is lost with the server's disk; see synchronous_standby_names",
            )
        return writer

    async def _owns(self, connection: asyncpg.Connection[Any]) -> bool:
        """Returns when this node owns the data; False if the connection is lost meanwhile."""
        try:
            await self._leases.own(connection)
        except (*NO_ANSWER, asyncpg.PostgresError) as error:
            self._log.warning("the database does not answer", error=str(error) or type(error).__name__)
            return False
        return True

    async def _dial_again(self, lost: asyncpg.Connection[Any]) -> Connected:
        lost.terminate()
        while True:
            await asyncio.sleep(RECONNECT_S)
            with suppress(NotThePrimary, asyncpg.PostgresError, *NO_ANSWER):
                connected: Connected = await self._dial("writer")
                return connected

    async def _prepare(self, connection: asyncpg.Connection[Any], server: Server) -> None:
        await prepare(connection, server, self.shown, self._format, self._log)

    @property
    def _format(self) -> int:
        if self._fills:
            return -self._fills
        return SHARED_VERSION if self._shares else FORMAT_VERSION

    @property
    def incarnation(self) -> int:
        """Of the node's row: another process that has taken over since has another one."""
        return self._leases.incarnation

    def abandon(self) -> None:
        with suppress(StorageError):
            self._io.wait(self._stop())

    async def _stop(self) -> None:
        if self._writer is not None:
            self._writer.stop()
        elif self._opening is not None:
            self._opening.cancel()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.close()
            self.abandon()
            with suppress(StorageError):
                self._io.wait(self._leases.stop())
                self._io.wait(self._close_slots())
            self._io.stop()

    async def _purge(self) -> None:
        """Deletes trimmed and deleted rows until the engine is closed."""
        while True:
            connection = None
            try:
                connection, _ = await self._dial("reader")
                while await purge_piece(connection):
                    await asyncio.sleep(PURGE_PAUSE_S)
            except (StorageError, asyncpg.PostgresError, *NO_ANSWER) as error:
                self._log.info("nothing is purged now", error=str(error) or type(error).__name__)
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(PURGE_EVERY_S)

    def reader(self) -> PostgresReader:
        return PostgresReader(self._io, self._logs, partial(self._dial, "reader"), self._leases.clock.holds)

    # -- writing

    def acquire(self) -> Lease:
        self._lease = Lease(self._lease + 1)
        return self._lease

    def commit(self, operations: Sequence[Operation], lease: Lease) -> None:
        if lease != self._lease:
            raise Fenced
        writer = self._writer
        assert writer is not None, "the engine is open"
        if self._closed or self._logs.version % 2:
            raise StorageError("an earlier commit failed; restart kohort to go on")
        moves = [operation for operation in operations if isinstance(operation, TakeSlots | GiveSlots)]
        if moves:
            operations = [operation for operation in operations if not isinstance(operation, TakeSlots | GiveSlots)]
        if self._shares:
            self._check_slots(operations, moves)
        check_operations(operations, self._extent)
        created = sum(isinstance(operation, CreateLog) for operation in operations)
        if len(self._numbers) < created:
            self._io.wait(self._reserve(writer, created))
        logs = self._logs
        with logs.lock:
            logs.version += 1
            changes = apply(operations, logs.by_key, self._numbers)
        for move in moves:
            if isinstance(move, TakeSlots):
                changes.taken += move.slots
            else:
                changes.given.update(move.slots)
        self._io.wait(writer.commit(changes))
        with logs.lock:
            logs.version += 1
            if moves:
                self._served |= set(changes.taken)
                self._served -= changes.given.keys()
                for key in [key for key in logs.by_key if slot_of(key) in changes.given]:
                    del logs.by_key[key]
        if self._shares and (
            changes.given or any(operation.log.topic_id == METADATA_TOPIC_ID for operation in operations)
        ):
            self._io.start(self._asks.tell())

    def _check_slots(self, operations: Sequence[Operation], moves: Sequence[TakeSlots | GiveSlots]) -> None:
        """A bug would write to what another node owns, and the fence is of the node only. Raises StorageError."""
        ours = set(self._served)
        for move in moves:
            if isinstance(move, TakeSlots):
                ours |= set(move.slots)
        for operation in operations:
            if slot_of(operation.log) not in ours:
                raise StorageError(f"{operation.log} is in a slot of another node")

    # -- nodes that serve at once

    def look(self) -> Seen | None:
        """What the tables say of nodes and slots; None if the database does not answer. Raises StorageError."""
        return self._io.wait(self._slots.look())

    def wait(self) -> None:
        """Until another node has changed something, or for about a second."""
        self._io.wait(self._slots.wait())

    def look_again(self) -> None:
        """`wait` returns at once."""
        self._io.call(self._leases.told.set)

    def metadata(self, first: int) -> list[StoredBatch] | None:
        """The batches of the metadata log from an offset on; None if the database does not answer."""
        return self._io.wait(self._slots.metadata(first))

    def take_producer_ids(self, count: int) -> int | None:
        """The first one of `count` producer ids that no other node gets; None if the database does not answer."""
        return self._io.wait(self._slots.take_producer_ids(count))

    def ends(self, changed: Sequence[LogEnd], gone: Sequence[LogKey], within_s: float) -> list[LogEnd] | None:
        """See `SlotTable.ends`."""
        return self._io.wait(self._slots.ends(changed, gone, within_s))

    def load_slots(self, slots: Collection[int]) -> list[LogInfo] | None:
        """Know the logs of slots that this node owns and does not serve yet. Returns them; None if the database does
        not answer."""
        return self._io.wait(self._load_slots(slots))

    async def _load_slots(self, slots: Collection[int]) -> list[LogInfo] | None:
        found = await self._slots.load(slots)
        if found is None:
            return None
        with self._logs.lock:
            self._logs.by_key.update(found)
        return [log.info() for log in found.values()]

    async def _close_slots(self) -> None:
        self._slots.close()
        self._asks.close()

    def ask(self, *row: Any) -> int | None:
        """See `AskTable`, also for the next ones."""
        return self._io.wait(self._asks.ask(*row))

    def asked(self, known: Collection[int]) -> list[Asked] | None:
        return self._io.wait(self._asks.asked(known))

    def answer(self, number: int, answer: bytes) -> None:
        self._io.wait(self._asks.answer(number, answer))

    def answers(self, numbers: Collection[int]) -> list[tuple[int, bytes]] | None:
        return self._io.wait(self._asks.answers(numbers))

    async def _reserve(self, writer: Writer, count: int) -> None:
        """Raises as `Writer.commit`."""
        while len(self._numbers) < count:
            try:
                first = await writer.connection.fetchval("SELECT nextval('kohort.log_no')")
            except (*NO_ANSWER, asyncpg.PostgresError) as error:
                if not isinstance(error, NO_ANSWER) and not is_passing(error):
                    raise StorageError(f"the database gives no numbers for new logs: {error}") from error
                await writer.begin()  # an empty turn connects again, and finds out whether the node is still the owner
            else:
                self._numbers[:0] = range(first + NUMBERS_A_BLOCK - 1, first - 1, -1)

    def _extent(self, key: LogKey) -> Extent | None:
        log = self._logs.by_key.get(key)
        return None if log is None else Extent(log.start_offset, log.end_offset)
