"""The table of slots of nodes that serve at once: who owns what, takeovers, and moves.

`look` is called again and again, by each node. It returns what the tables say, after it has done this node's part:

- Slots of a node whose lease has run out are dealt over the others. That transaction raises the former owner's
  incarnation, and waits for the row of a commit under way, as every takeover (leases.py). Any node may do it.
- The owner of the controller's slot says which slots should move (`wanted`). The owner gives them in a turn of its own.

Notifications only make nodes look at once. Each looks every LOOK_S besides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec

from kohort.storage.postgres import leases
from kohort.storage.postgres.batch_index import LogIndex
from kohort.storage.postgres.connections import NO_ANSWER, READ_S, NotThePrimary
from kohort.storage.postgres.leases import Dial, Leases, NodeAddress
from kohort.storage.postgres.loading import load
from kohort.storage.postgres.schema import CHANNEL, LOCK
from kohort.storage.protocol import Fenced, Log, LogKey, StoredBatch
from kohort.storage.slots import CONTROLLER_SLOT, METADATA_TOPIC_ID, SLOTS, dealt, next_moves

_NODES = """
SELECT lease.id, host, port, rack, listeners, drained.id IS NOT NULL AS is_drained
FROM kohort.node_lease lease LEFT JOIN kohort.drained ON drained.id = lease.id
WHERE until > clock_timestamp() ORDER BY lease.id
"""
_METADATA = """
SELECT base_offset, last_offset, max_timestamp, data FROM kohort.batch
WHERE log = (SELECT no FROM kohort.log WHERE topic_id = $1 AND NOT gone) AND base_offset >= $2 ORDER BY base_offset
"""
_PUT_ENDS = """
INSERT INTO kohort.log_end (topic_id, partition, start_offset, end_offset)
SELECT * FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::bigint[])
ON CONFLICT (topic_id, partition) DO UPDATE
SET start_offset = excluded.start_offset, end_offset = excluded.end_offset, changed = clock_timestamp()
"""
_DROP_ENDS = """
DELETE FROM kohort.log_end USING unnest($1::bytea[], $2::int[]) u(topic_id, partition)
WHERE log_end.topic_id = u.topic_id AND log_end.partition = u.partition
"""
_ENDS = """
SELECT topic_id, partition, start_offset, end_offset FROM kohort.log_end
WHERE changed > clock_timestamp() - $1::float * interval '1 s'
"""
LogEnd = tuple[LogKey, int, int]
"""A log, its first offset, and the offset that its next record gets."""
_LIVING = "SELECT until > clock_timestamp() FROM kohort.node_lease WHERE id = $1"
_OWNERS = "SELECT owner FROM kohort.slot ORDER BY id"
_WANT = "UPDATE kohort.slot SET wanted = u.node FROM unnest($1::int[], $2::int[]) u(id, node) WHERE slot.id = u.id"


class Seen(msgspec.Struct, frozen=True):
    """What the tables say."""

    nodes: tuple[NodeAddress, ...]
    """Those with a lease, this one among them."""
    owners: tuple[int, ...]
    """Of each slot."""
    epochs: tuple[int, ...]
    wanted: Mapping[int, int]
    """Slots that should move, and where."""


class SlotTable:
    """All methods run on the engine's event loop. They raise Fenced, and return None if the database does not
    answer."""

    def __init__(self, own: Leases, dial: Dial, move_s: float, log: Log) -> None:
        self._leases = own
        self._node = own.address.id
        self._dial = dial
        self._move_s = move_s
        self._log = log
        self._dealt_at = 0.0
        self._connection: asyncpg.Connection[Any] | None = None

    async def found(self, connection: asyncpg.Connection[Any]) -> None:
        """The first node owns everything."""
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            await connection.execute(
                f"INSERT INTO kohort.slot (id, owner, epoch) SELECT id, $1, 0 FROM generate_series(0, {SLOTS - 1}) id "
                "WHERE NOT EXISTS (SELECT FROM kohort.slot)",
                self._node,
            )

    async def wait(self) -> None:
        """Until another node has changed something, or for LOOK_S."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._leases.told.wait(), leases.LOOK_S)
        self._leases.told.clear()

    async def look(self) -> Seen | None:
        try:
            connection = await self._connected()
            seen = await self._read(connection)
            living = {node.id for node in seen.nodes}
            took = [node for node in sorted(set(seen.owners) - living) if await self._take_over(connection, node)]
            if took or (seen.owners[CONTROLLER_SLOT] == self._node and await self._move(connection, seen)):
                seen = await self._read(connection)
        except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
            self._failed(error)
            return None
        return seen

    async def load(self, slots: Collection[int]) -> dict[LogKey, LogIndex] | None:
        """The logs of slots that this node owns and does not serve yet."""
        try:
            return await load(await self._connected(), slots)
        except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
            self._failed(error)
            return None

    async def metadata(self, first: int) -> list[StoredBatch] | None:
        """The batches of the metadata log from an offset on, as one snapshot."""
        try:
            connection = await self._connected()
            async with asyncio.timeout(READ_S):
                return [StoredBatch(*row) for row in await connection.fetch(_METADATA, METADATA_TOPIC_ID, first)]
        except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
            self._failed(error)
            return None

    async def take_producer_ids(self, count: int) -> int | None:
        """The first one of `count` that nobody else gets."""
        try:
            connection = await self._connected()
            text = "UPDATE kohort.producer_ids SET next_id = next_id + $1 RETURNING next_id - $1"
            first: int = await connection.fetchval(text, count)
        except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
            self._failed(error)
            return None
        return first

    async def ends(self, changed: Sequence[LogEnd], gone: Sequence[LogKey], within_s: float) -> list[LogEnd] | None:
        """Say where own logs begin and end, and which are gone. Returns what has changed of all logs since so many
        seconds."""
        try:
            connection = await self._connected()
            if changed:
                columns = [
                    list(column) for column in zip(*((*key, start, end) for key, start, end in changed), strict=True)
                ]
                await connection.execute(_PUT_ENDS, *columns)
            if gone:
                await connection.execute(_DROP_ENDS, [key.topic_id for key in gone], [key.partition for key in gone])
            return [(LogKey(*key), start, end) for *key, start, end in await connection.fetch(_ENDS, within_s)]
        except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
            self._failed(error)
            return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    # -- this node's part

    async def _connected(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            self._connection, _ = await self._dial("writer")  # a takeover waits for as long as it takes
        return self._connection

    def _failed(self, error: BaseException) -> None:
        self._log.warning("the slots cannot be read", error=str(error) or type(error).__name__)
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _read(self, connection: asyncpg.Connection[Any]) -> Seen:
        rows = await connection.fetch("SELECT owner, epoch, wanted FROM kohort.slot ORDER BY id")
        nodes = await connection.fetch(_NODES)
        return Seen(
            tuple(
                NodeAddress(
                    row["id"],
                    row["host"],
                    row["port"],
                    row["rack"],
                    msgspec.json.decode(row["listeners"], type=dict[str, tuple[str, int]]),
                )
                for row in nodes
            ),
            tuple(owner for owner, _, _ in rows),
            tuple(epoch for _, epoch, _ in rows),
            {slot: wanted for slot, (_, _, wanted) in enumerate(rows) if wanted is not None},
        )

    async def _drained(self, connection: asyncpg.Connection[Any]) -> list[int]:
        return [row[0] for row in await connection.fetch("SELECT id FROM kohort.drained")]

    async def _take_over(self, connection: asyncpg.Connection[Any], owner: int) -> bool:
        """Deal the slots of a node that has no lease any more, if this node may say so."""
        if not self._leases.may_judge(await self._leases.has_stopped(connection, owner)):
            return False
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            mine = "SELECT 1 FROM kohort.node_lease WHERE id = $1 AND incarnation = $2"
            if await connection.fetchval(mine, self._node, self._leases.incarnation) is None:
                raise Fenced
            if await connection.fetchval(f"{_LIVING} FOR UPDATE", owner):
                return False
            for table in ("node_lease", "node"):
                await connection.execute(
                    f"UPDATE kohort.{table} SET incarnation = incarnation + 1 WHERE id = $1", owner
                )
            owners = [row[0] for row in await connection.fetch(_OWNERS)]
            living = {row["id"]: row["is_drained"] for row in await connection.fetch(_NODES)} | {self._node: False}
            takers = [node for node, is_drained in living.items() if not is_drained]
            slots = dealt([slot for slot, node in enumerate(owners) if node == owner], owners, takers)
            await connection.execute(
                "UPDATE kohort.slot SET owner = u.node, epoch = epoch + 1, wanted = NULL "
                "FROM unnest($1::int[], $2::int[]) u(id, node) WHERE slot.id = u.id AND owner = $3",
                list(slots),
                list(slots.values()),
                owner,
            )
            await connection.execute(f"NOTIFY {CHANNEL}")
        self._log.warning("a node is gone, and the others take over", node=owner, slots=len(slots))
        return True

    async def _move(self, connection: asyncpg.Connection[Any], seen: Seen) -> bool:
        """As the controller: say which slots should move next."""
        living = [node.id for node in seen.nodes]
        # A slot may have gone to the node that it should move to in another way, as by a takeover.
        lost = [slot for slot, node in seen.wanted.items() if node not in living or seen.owners[slot] == node]
        if lost:
            await connection.execute("UPDATE kohort.slot SET wanted = NULL WHERE id = ANY ($1::int[])", lost)
        if time.monotonic() - self._dealt_at < self._move_s:
            return bool(lost)
        wanted = {slot: node for slot, node in seen.wanted.items() if slot not in lost}
        moves = next_moves(seen.owners, wanted, living, await self._drained(connection))
        if moves:
            self._dealt_at = time.monotonic()
            await want(connection, moves)
        return bool(moves or lost)


async def want(connection: asyncpg.Connection[Any], moves: Mapping[int, int]) -> None:
    """Ask the owners of slots to give them to other nodes."""
    slots: Sequence[int] = list(moves)
    await connection.execute(_WANT, slots, list(moves.values()))
    await connection.execute(f"NOTIFY {CHANNEL}")
