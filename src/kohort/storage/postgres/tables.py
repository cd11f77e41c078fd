"""Creates the tables, and judges those that are there: of another format or mode, a copy, unfinished, migrated away."""

from __future__ import annotations

from typing import Any

import asyncpg

from kohort.storage.postgres.connections import Server
from kohort.storage.postgres.leases import has_ended
from kohort.storage.postgres.schema import FORMAT_VERSION, LOCK, SHARED_SCHEMA, SHARED_VERSION, WHOLE_SCHEMA
from kohort.storage.protocol import Log, StorageError

_LIVING = """
SELECT id, host, port, instance, extract(epoch FROM until - clock_timestamp())::float AS left_s
FROM kohort.node_lease WHERE until > clock_timestamp() ORDER BY id
"""
_EMPTY = "TRUNCATE kohort.node, kohort.node_lease, kohort.slot, kohort.log, kohort.kept_producers, kohort.batch"


async def prepare(connection: asyncpg.Connection[Any], server: Server, shown: str, format_: int, log: Log) -> None:
    """Create the tables if they are missing. Several nodes may start at once. Raises StorageError for tables that a
    node of this format must not use."""
    async with connection.transaction():
        if not await connection.fetchval(f"SELECT pg_try_advisory_xact_lock({LOCK})"):
            log.info("waiting: another node registers, or a migration uses the database", storage=shown)
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        found = await format_of(connection)
        if found is None:
            await connection.execute(WHOLE_SCHEMA)
            if abs(format_) == SHARED_VERSION:
                await connection.execute(SHARED_SCHEMA)
            await connection.execute(
                "INSERT INTO kohort.cluster VALUES (true, $1, $2)", format_, server.system_identifier
            )
        elif format_ < 0:
            check_unfinished(found, format_, shown)
            await _remove_former(connection, shown)
    await judge(connection, server, shown, format_)


async def format_of(connection: asyncpg.Connection[Any]) -> int | None:
    """None if the tables are missing."""
    if await connection.fetchval("SELECT to_regclass('kohort.cluster')") is None:
        return None
    found: int = await connection.fetchval("SELECT format FROM kohort.cluster")
    return found


def check_unfinished(found: int, format_: int, shown: str) -> None:
    """Raises StorageError unless the tables are those of an interrupted migration to this format."""
    if found >= 0:
        raise StorageError(f"{shown} holds data of kohort already; migrate to a database without a schema kohort")
    if found != format_:
        raise StorageError(
            f"{shown} has the rest of a migration with another --serving: repeat that, or DROP SCHEMA kohort CASCADE"
        )


async def _remove_former(connection: asyncpg.Connection[Any], shown: str) -> None:
    """What an interrupted migration has left."""
    living = await living_node(connection)
    if living is not None:
        raise StorageError(f"another migration to {shown} runs, or has just been killed: {living[1]}")
    await connection.execute(_EMPTY)


async def living_node(connection: asyncpg.Connection[Any]) -> tuple[int, str] | None:
    """A node that has a lease, as its id and a text; None if none has, or if their processes, on this machine, are
    gone."""
    for row in await connection.fetch(_LIVING):
        if not has_ended(row["instance"]):
            place = f" at {row['host']}:{row['port']}" if row["host"] else ""
            return row["id"], f"node {row['id']}{place} has a lease of {row['left_s']:.1f} s"
    return None


async def judge(connection: asyncpg.Connection[Any], server: Server, shown: str, format_: int) -> None:
    """Raises StorageError for tables that a node of this format must not use."""
    version, identifier = await connection.fetchrow("SELECT format, system_identifier FROM kohort.cluster")
    if version < 0 and version != format_:
        raise StorageError(
            f"{shown} is the target of a migration that runs or was interrupted, and no node serves it: repeat kohort "
            "migrate, which begins anew, or choose another database"
        )
    if {version, format_} == {FORMAT_VERSION, SHARED_VERSION}:
        modes = {FORMAT_VERSION: "one", SHARED_VERSION: "all"}
        raise StorageError(
            f"the nodes of {shown} were started with cluster.serving={modes[version]}, and this one with "
            f"cluster.serving={modes[format_]}: a database keeps the mode of its first node. Start this one with the "
            "same setting, or choose another database"
        )
    if version != format_:
        raise StorageError(
            f"the tables in {shown} have format {version}, and this kohort knows {format_}: start the kohort that "
            "wrote them, or choose another database"
        )
    if identifier != server.system_identifier:
        raise StorageError(
            f"{shown} is a copy: its tables were made in another PostgreSQL server (system identifier {identifier}, "
            f"here {server.system_identifier}). If the copy is complete and nothing uses the original any more: "
            f"UPDATE kohort.cluster SET system_identifier = {server.system_identifier}"
        )
    place = await migrated_to(connection)
    if place is not None:
        raise StorageError(
            f"the data of {shown} was migrated to {place}: serve that. If that was never served, DROP TABLE "
            "kohort.migrated lets nodes serve this database again"
        )


async def migrated_to(connection: asyncpg.Connection[Any]) -> str | None:
    """Where the data has gone."""
    if await connection.fetchval("SELECT to_regclass('kohort.migrated')") is None:
        return None
    place: str | None = await connection.fetchval("SELECT place FROM kohort.migrated")
    return place or "another place"


async def mark_migrated(connection: asyncpg.Connection[Any], place: str) -> None:
    """No node serves the database from now on."""
    async with connection.transaction():
        await connection.execute("CREATE TABLE IF NOT EXISTS kohort.migrated (place text NOT NULL)")
        await connection.execute("DELETE FROM kohort.migrated")
        await connection.execute("INSERT INTO kohort.migrated VALUES ($1)", place)
