"""Connects to PostgreSQL, and refuses databases that lose what they acknowledge.

Every connection looks at the server before it is used, because after a failover another server answers at the same
address. No connection may go through a pooler in transaction mode: prepared statements and session settings belong to
one server process.

A server that is gone without a word is noticed after some ten seconds, at both ends (keepalives, tcp_user_timeout).
Nothing is ever cancelled on the writer's connection: a commit that waits for its standby stands although it was
cancelled, and clients would learn that it is durable before it is.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import urlsplit

import asyncpg

from kohort.storage.protocol import StorageError, Unavailable

OLDEST = 140_000
CONNECT_S = 10.0
SILENCE_S = 10
"""After this time without a sign of life, the other end counts as gone."""
READ_S = 5.0
"""The longest time of a read."""
NO_ANSWER = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a server's last words, which came between two statements
)
"""What asyncpg raises if the server cannot be reached, or the connection is lost."""

_LOOK = """
SELECT pg_is_in_recovery() AS in_recovery,
       current_setting('server_version_num')::int AS version,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS standbys,
       current_setting('transaction_read_only') AS read_only,
       (SELECT system_identifier FROM pg_control_system()) AS system_identifier
"""


SCHEMES = ("postgresql", "postgres")
UNSHOWN = "the database"
_HOST = re.compile(r"(?:[\w.%-]*|\[[\w.:%]+\])(?::\d+)?")


class NotThePrimary(Unavailable):
    """The server takes no writes, perhaps for the moment: a failover is under way."""


class Server:
    """What a connection has found."""

    __slots__ = ("has_standby_names", "system_identifier")

    def __init__(self, system_identifier: int, *, has_standby_names: bool) -> None:
        self.system_identifier = system_identifier
        self.has_standby_names = has_standby_names


def shown(url: str) -> str:
    """The URL as the log may have it: without user and password. A URL that is not understood is not shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return UNSHOWN
    hosts = parts.netloc.rpartition("@")[2]
    if parts.scheme not in SCHEMES or "@" in parts.path or not all(map(_HOST.fullmatch, hosts.split(","))):
        return UNSHOWN  # part of a password may be in the place of a port
    return f"{parts.scheme}://{hosts}{parts.path}"


async def connect(
    url: str, name: str, kind: Literal["writer", "reader", "lease"] = "writer"
) -> tuple[asyncpg.Connection[Any], Server]:
    """Raises StorageError for a database that must not be used, one of NO_ANSWER, or asyncpg.PostgresError."""
    settings = {
        "application_name": f"kohort {name} {kind}",
        "statement_timeout": "0" if kind == "writer" else str(round(READ_S * 1000)),
        "idle_in_transaction_session_timeout": str(SILENCE_S * 1000),
        "tcp_keepalives_idle": str(SILENCE_S // 2),
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": str(SILENCE_S * 1000),
    }
    try:
        connection = await asyncpg.connect(
            url, timeout=CONNECT_S, server_settings=settings, target_session_attrs="read-write"
        )
    except asyncpg.exceptions.TargetServerAttributeNotMatched as error:
        raise NotThePrimary(f"no server at {shown(url)} takes writes") from error
    except asyncpg.exceptions.ClientConfigurationError as error:
        raise StorageError(f"the URL of the database is refused: {error}") from None
    except ValueError:  # its text may have part of the password
        raise StorageError(
            "the URL of the database is not understood; expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "with %40, %3A and %2F for the characters @, : and / of a name or password"
        ) from None
    try:
        _notice_silence(connection)
        row = await connection.fetchrow(_LOOK)
        assert row is not None
        server = _judged(dict(row), url)
        if kind == "lease":
            await connection.execute("SET synchronous_commit = off")
        elif row["synchronous_commit"] in ("off", "local"):
            await connection.execute("SET synchronous_commit = on")
    except BaseException:
        connection.terminate()
        raise
    return connection, server


def _judged(row: dict[str, Any], url: str) -> Server:
    where = shown(url)
    if row["in_recovery"] or row["read_only"] == "on":
        raise NotThePrimary(f"the server at {where} is a standby or takes no writes")
    if row["version"] < OLDEST:
        raise StorageError(f"the server at {where} is PostgreSQL {row['version'] // 10_000}; kohort needs 14 or newer")
    for name in ("fsync", "full_page_writes"):
        if row[name] == "off":
            raise StorageError(
                f"{name} is off at {where}: the server loses what it has acknowledged when its machine stops; "
                f"set {name} = on"
            )
    return Server(row["system_identifier"], has_standby_names=bool(row["standbys"].strip()))


def _notice_silence(connection: asyncpg.Connection[Any]) -> None:
    transport = getattr(connection, "_transport", None)  # asyncpg has no option for this
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.family == getattr(socket, "AF_UNIX", None):
        return
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S // 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000)
