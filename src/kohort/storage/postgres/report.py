"""What the tables say of the nodes, and what administrators ask of them; also while no node serves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec

from kohort.storage.postgres.connections import NO_ANSWER, connect, shown
from kohort.storage.postgres.schema import CHANNEL
from kohort.storage.postgres.slot_table import want
from kohort.storage.protocol import StorageError, Unavailable
from kohort.storage.slots import CONTROLLER_SLOT

_NODES = """
SELECT lease.id, host, port, rack, node.incarnation, turn, extract(epoch FROM until - clock_timestamp())::float,
       (SELECT count(*) FROM kohort.slot WHERE owner = lease.id)
FROM kohort.node_lease lease JOIN kohort.node ON node.id = lease.id ORDER BY lease.id
"""
_DRAIN = "INSERT INTO kohort.drained VALUES ($1) ON CONFLICT DO NOTHING"
_OTHERS = """
SELECT count(*) FROM kohort.node_lease
WHERE id <> $1 AND until > clock_timestamp() AND id NOT IN (SELECT id FROM kohort.drained)
"""


class NodeStatus(msgspec.Struct, frozen=True):
    id: int
    host: str
    port: int
    rack: str | None
    incarnation: int
    """It changes with each process, and with each takeover."""
    turn: int
    """The last committed turn."""
    lease_s: float
    """How long its lease lasts; negative since when it has none."""
    slots: int
    is_drained: bool = False
    is_controller: bool = False
    """It owns the controller's slot."""


class NotShared(StorageError):
    """One node owns all slots of the database."""


def drain(url: str, node: int, *, back: bool = False) -> None:
    """Let a node give all its slots away, and get none; or (`back`) take slots again. Raises StorageError. Starts an
    event loop."""

    async def change(connection: asyncpg.Connection[Any]) -> None:
        if not back and not await connection.fetchval(_OTHERS, node):
            raise StorageError(f"no other node can take the slots of node {node}: none has a lease, or all are drained")
        text = "DELETE FROM kohort.drained WHERE id = $1" if back else _DRAIN
        await connection.execute(text, node)
        await connection.execute(f"NOTIFY {CHANNEL}")

    asyncio.run(_changed(url, node, change))


def move(url: str, slot: int, node: int) -> None:
    """Let a slot go to a node. Raises StorageError. Starts an event loop."""

    async def change(connection: asyncpg.Connection[Any]) -> None:
        if not await connection.fetchval("SELECT until > clock_timestamp() FROM kohort.node_lease WHERE id = $1", node):
            raise StorageError(f"node {node} has no lease: it does not run, or cannot reach the database")
        if await connection.fetchval("SELECT id FROM kohort.drained WHERE id = $1", node) is not None:
            raise StorageError(
                f"node {node} is drained and takes no slots; kohort cluster drain {node} --undo ends that"
            )
        if await connection.fetchval("SELECT owner FROM kohort.slot WHERE id = $1", slot) == node:
            raise StorageError(f"node {node} serves slot {slot} already")
        await want(connection, {slot: node})

    asyncio.run(_changed(url, node, change))


async def _changed(url: str, node: int, change: Callable[[asyncpg.Connection[Any]], Awaitable[None]]) -> None:
    try:
        connection, _ = await connect(url, "admin", "writer")
        try:
            if await connection.fetchval("SELECT to_regclass('kohort.drained')") is None:
                raise NotShared(f"the nodes of {shown(url)} do not serve at once: cluster.serving=all is not set there")
            if await connection.fetchval("SELECT id FROM kohort.node WHERE id = $1", node) is None:
                raise StorageError(f"there is no node {node}; kohort cluster nodes lists them")
            await change(connection)
        finally:
            await connection.close(timeout=1)
    except (*NO_ANSWER, asyncpg.PostgresError) as error:
        raise Unavailable(f"cannot use {shown(url)}: {str(error) or type(error).__name__}") from error


def nodes_of(url: str) -> list[NodeStatus]:
    """Raises StorageError. Starts an event loop."""
    return asyncio.run(_nodes(url))


async def _nodes(url: str) -> list[NodeStatus]:
    try:
        connection, _ = await connect(url, "admin", "reader")
        try:
            if await connection.fetchval("SELECT to_regclass('kohort.node_lease')") is None:
                raise StorageError(f"{shown(url)} has no tables of kohort")
            found = [NodeStatus(*row) for row in await connection.fetch(_NODES)]
            if await connection.fetchval("SELECT to_regclass('kohort.drained')") is None:
                return found
            drained = {row[0] for row in await connection.fetch("SELECT id FROM kohort.drained")}
            controller = await connection.fetchval("SELECT owner FROM kohort.slot WHERE id = $1", CONTROLLER_SLOT)
            return [
                msgspec.structs.replace(each, is_drained=each.id in drained, is_controller=each.id == controller)
                for each in found
            ]
        finally:
            await connection.close(timeout=1)
    except (*NO_ANSWER, asyncpg.PostgresError) as error:
        raise Unavailable(f"cannot read {shown(url)}: {str(error) or type(error).__name__}") from error


__all__ = ["NodeStatus", "StorageError", "Unavailable", "drain", "move", "nodes_of"]
