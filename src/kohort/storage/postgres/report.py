"""What the tables say of the nodes: for administrators, also while no node serves."""

from __future__ import annotations

import asyncio

import asyncpg
import msgspec

from kohort.storage.postgres.connections import NO_ANSWER, connect, shown
from kohort.storage.protocol import StorageError, Unavailable

_NODES = """
SELECT lease.id, host, port, rack, node.incarnation, turn, extract(epoch FROM until - clock_timestamp())::float,
       (SELECT count(*) FROM kohort.slot WHERE owner = lease.id)
FROM kohort.node_lease lease JOIN kohort.node ON node.id = lease.id ORDER BY lease.id
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


def nodes_of(url: str) -> list[NodeStatus]:
    """Raises StorageError. Starts an event loop."""
    return asyncio.run(_nodes(url))


async def _nodes(url: str) -> list[NodeStatus]:
    try:
        connection, _ = await connect(url, "admin", "reader")
        try:
            if await connection.fetchval("SELECT to_regclass('kohort.node_lease')") is None:
                raise StorageError(f"{shown(url)} has no tables of kohort")
            return [NodeStatus(*row) for row in await connection.fetch(_NODES)]
        finally:
            await connection.close(timeout=1)
    except (*NO_ANSWER, asyncpg.PostgresError) as error:
        raise Unavailable(f"cannot read {shown(url)}: {str(error) or type(error).__name__}") from error


__all__ = ["NodeStatus", "StorageError", "Unavailable", "nodes_of"]
