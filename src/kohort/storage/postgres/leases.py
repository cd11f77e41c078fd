"""Leases: which process is a node, which node owns the data, and who takes over.

Every node renews a lease by the database's clock. A node that owns no slots is a stand-by: it waits until the owner's
lease has run out, and takes the slots over. That is one transaction, which raises the former owner's incarnation. It
waits for the row of a commit under way, and every later commit of the former owner finds another incarnation.

Safety never depends on a lease. It decides when somebody takes over, and for how long a node may answer from memory
(`LeaseClock`).

A node takes over only after it has renewed its own lease for a whole time of a lease without a gap: after an outage of
the database all leases have run out, and nobody is to blame.

Renewals do not wait for a standby server of PostgreSQL: while commits do, all nodes are alive.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec

from kohort.storage.postgres.connections import NO_ANSWER, NotThePrimary, Server
from kohort.storage.postgres.schema import CHANNEL, LOCK
from kohort.storage.protocol import Fenced, Log, StorageError
from kohort.storage.slots import SLOTS

AGAIN_S = 0.5
"""After this time a failed renewal is tried again."""
STOP_S = 2.0
"""How long a stop tries to give the lease back."""
LOOK_S = 1.0
"""How often a stand-by looks whether it may take over."""
PROCESS = "/proc"

Dial = Callable[[Any], Awaitable[tuple["asyncpg.Connection[Any]", Server]]]


def _now_s() -> float:
    """Goes on while the machine is suspended, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class NodeAddress(msgspec.Struct, frozen=True):
    """A node as clients reach it."""

    id: int
    host: str = ""
    port: int = 0
    rack: str | None = None
    by_listener: Mapping[str, tuple[str, int]] = msgspec.field(default_factory=dict)


class Timing(msgspec.Struct, frozen=True):
    lease_s: float = 9.0
    renew_s: float = 2.0

    @property
    def trusted_s(self) -> float:
        """A node stops to answer a second in nine before others may count its lease as run out."""
        return self.lease_s * 8 / 9

    @property
    def answer_s(self) -> float:
        """The longest time of a renewal."""
        return self.lease_s / 3


class LeaseClock:
    """Whether this node may still answer from memory."""

    def __init__(self, timing: Timing) -> None:
        self._trusted_s = timing.trusted_s
        self._until = 0.0

    def renewed(self, sent_at: float) -> None:
        self._until = sent_at + self._trusted_s

    def holds(self) -> bool:
        """Called from any thread."""
        return _now_s() < self._until


class Leases:
    """One node's lease. All methods run on the engine's event loop."""

    def __init__(self, address: NodeAddress, timing: Timing, dial: Dial, log: Log) -> None:
        self.address = address
        self.clock = LeaseClock(timing)
        self._timing = timing
        self.incarnation = 0
        self._dial = dial
        self._log = log
        self._since = 0.0
        """When the renewals without a gap began; 0 if the last one failed."""
        self._others: tuple[NodeAddress, ...] = ()
        self._connection: asyncpg.Connection[Any] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self.told = asyncio.Event()
        """Another node has changed something."""
        self.fenced: Callable[[Exception], None] = lambda error: None
        """Called once, if another process has taken over."""
        self.others_changed: Callable[[tuple[NodeAddress, ...]], None] = lambda others: None
        """Called with the other nodes that have a lease, when they change."""

    def watch(self, changed: Callable[[tuple[NodeAddress, ...]], None]) -> None:
        self.others_changed = changed
        changed(self._others)

    # -- becoming a node

    async def register(self, connection: asyncpg.Connection[Any]) -> int:
        """Take the node's row, as soon as no other process has it. Returns the last turn."""
        waits = False
        while (turn := await self._try_to_register(connection)) is None:
            if not waits:
                waits = True
                holder = await connection.fetchrow(
                    "SELECT host, port FROM kohort.node_lease WHERE id = $1", self.address.id
                )
                self._log.warning(
                    "waiting: another process is this node",
                    node=self.address.id,
                    at=f"{holder[0]}:{holder[1]}" if holder is not None else "",
                    hint="each node needs a broker.id of its own; this one waits until the other's lease ends",
                )
            await asyncio.sleep(LOOK_S)
        return turn

    async def _try_to_register(self, connection: asyncpg.Connection[Any]) -> int | None:
        node = self.address
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            held = await connection.fetchval(
                "SELECT instance FROM kohort.node_lease WHERE id = $1 AND until > clock_timestamp()", node.id
            )
            if held is not None and not has_ended(held):
                return None
            sent_at = _now_s()
            self.incarnation, turn = await connection.fetchrow(
                "INSERT INTO kohort.node VALUES ($1, 1, 0) "
                "ON CONFLICT (id) DO UPDATE SET incarnation = node.incarnation + 1 RETURNING incarnation, turn",
                node.id,
            )
            await connection.execute(
                "INSERT INTO kohort.node_lease (id, incarnation, instance, host, port, rack, listeners, until) "
                "VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + $8::float * interval '1 s') "
                "ON CONFLICT (id) DO UPDATE SET (incarnation, instance, host, port, rack, listeners, until) = "
                "(excluded.incarnation, excluded.instance, excluded.host, excluded.port, excluded.rack, "
                "excluded.listeners, excluded.until)",
                node.id,
                self.incarnation,
                _instance(),
                node.host,
                node.port,
                node.rack,
                msgspec.json.encode(node.by_listener).decode(),
                self._timing.lease_s,
            )
            await connection.execute(f"NOTIFY {CHANNEL}")
        self.clock.renewed(sent_at)
        self._since = sent_at
        return int(turn)

    # -- owning the slots

    async def own(self, connection: asyncpg.Connection[Any]) -> None:
        """Returns when this node owns all slots."""
        waits = False
        while (owner := await self._try_to_own(connection)) is not None:
            if not waits:
                waits = True
                self._log.info("waiting as a stand-by", node=self.address.id, owner=owner)
            self.told.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.told.wait(), LOOK_S)
        if waits:
            self._log.info("taking over", node=self.address.id)

    async def _try_to_own(self, connection: asyncpg.Connection[Any]) -> int | None:
        """None if this node owns all slots now; otherwise the node that owns some."""
        node = self.address.id
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            mine = "SELECT 1 FROM kohort.node_lease WHERE id = $1 AND incarnation = $2"
            if await connection.fetchval(mine, node, self.incarnation) is None:
                raise Fenced
            if not await connection.fetchval("SELECT count(*) FROM kohort.slot"):
                every = f"generate_series(0, {SLOTS - 1}) id"
                await connection.execute(
                    f"INSERT INTO kohort.slot (id, owner, epoch) SELECT id, $1, 0 FROM {every}", node
                )
            owners = await connection.fetch("SELECT DISTINCT owner FROM kohort.slot WHERE owner <> $1", node)
            for (owner,) in owners:
                living = "SELECT until > clock_timestamp() FROM kohort.node_lease WHERE id = $1"
                if await connection.fetchval(living, owner) or not self.may_judge(
                    await self.has_stopped(connection, owner)
                ):
                    return int(owner)
                # A lock keeps the owner from renewing until this transaction ends, which may wait for a standby server.
                if await connection.fetchval(f"{living} FOR UPDATE", owner):
                    return int(owner)
                for table in ("node_lease", "node"):
                    await connection.execute(
                        f"UPDATE kohort.{table} SET incarnation = incarnation + 1 WHERE id = $1", owner
                    )
                await connection.execute(
                    "UPDATE kohort.slot SET owner = $1, epoch = epoch + 1, wanted = NULL WHERE owner = $2", node, owner
                )
                await connection.execute(f"NOTIFY {CHANNEL}")
        return None

    async def has_stopped(self, connection: asyncpg.Connection[Any], node: int) -> bool:
        """The node has given its lease back."""
        return bool(await connection.fetchval("SELECT instance = '' FROM kohort.node_lease WHERE id = $1", node))

    def may_judge(self, has_stopped: bool) -> bool:
        return has_stopped or (
            self._since > 0 and _now_s() - self._since >= self._timing.lease_s and self.clock.holds()
        )

    # -- renewals

    def start(self) -> None:
        self._renewing = asyncio.create_task(self._renew_forever())

    async def _renew_forever(self) -> None:
        while not self._stopping.is_set():
            began = _now_s()
            try:
                async with asyncio.timeout(self._timing.answer_s):
                    await self._renew()
            except Fenced as error:
                self.fenced(error)
                return
            except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
                self._since = 0.0
                self._drop()
                self._log.warning("the lease is not renewed", error=str(error) or type(error).__name__)
            except StorageError as error:
                self.fenced(error)
                return
            pause_s = max(self._timing.renew_s - (_now_s() - began), 0.1) if self._since else AGAIN_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _renew(self) -> None:
        if self._connection is None:
            self._connection, _ = await self._dial("lease")
            await self._connection.add_listener(CHANNEL, self._notified)
        sent_at = _now_s()
        rows = await self._connection.fetch(
            "WITH mine AS (UPDATE kohort.node_lease SET until = clock_timestamp() + $3::float * interval '1 s' "
            "WHERE id = $1 AND incarnation = $2 RETURNING id) "
            "SELECT mine.id AS mine, lease.id, host, port, rack, listeners FROM mine LEFT JOIN kohort.node_lease lease "
            "ON lease.id <> mine.id AND lease.until > clock_timestamp()",
            self.address.id,
            self.incarnation,
            self._timing.lease_s,
        )
        if not rows:
            raise Fenced
        self.clock.renewed(sent_at)
        self._since = self._since or sent_at
        others = tuple(
            NodeAddress(node, host, port, rack, msgspec.json.decode(listeners, type=dict[str, tuple[str, int]]))
            for _, node, host, port, rack, listeners in rows
            if node is not None
        )
        if others != self._others:
            self._others = others
            self.others_changed(others)

    def _notified(self, *_: Any) -> None:
        self.told.set()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def stop(self) -> None:
        """Give the lease back, so that a stand-by need not wait for its end. A failure is no trouble."""
        self._stopping.set()
        if self._renewing is not None:
            await asyncio.wait((self._renewing,), timeout=1.0)
        with suppress(*NO_ANSWER, StorageError, asyncpg.PostgresError):
            async with asyncio.timeout(STOP_S):
                await self._give_back()
        self._drop()

    async def _give_back(self) -> None:
        if not self.incarnation:
            return
        if self._connection is None or self._connection.is_closed():
            self._connection, _ = await self._dial("lease")
        await self._connection.execute(
            "UPDATE kohort.node_lease SET until = clock_timestamp(), instance = '' WHERE id = $1 AND incarnation = $2",
            self.address.id,
            self.incarnation,
        )
        await self._connection.execute(f"NOTIFY {CHANNEL}")


# -- processes


def _instance(process: int | None = None) -> str:
    """Names a process of this machine, so that its successor there need not wait for its lease; "-" if the system does
    not tell."""
    number = os.getpid() if process is None else process
    try:
        with open(f"{PROCESS}/sys/kernel/random/boot_id") as boot, open(f"{PROCESS}/{number}/stat") as stat:
            began = stat.read().rpartition(")")[2].split()[19]
            return f"{boot.read().strip()} {os.readlink(f'{PROCESS}/self/ns/pid')} {number} {began}"
    except (OSError, IndexError):
        return "-"


def has_ended(instance: str) -> bool:
    """True if the process that a lease names was one of this machine, and is gone."""
    parts = instance.split()
    mine = _instance().split()
    if len(parts) != 4 or parts[:2] != mine[:2]:
        return False
    return _instance(int(parts[2])) != instance
