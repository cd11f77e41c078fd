"""How the planning process learns which query it plans: the tasks of a batch report it.

Spark gives a task the query's id, run and batch as local properties; the planning process gets only offsets. So the
first tasks of a batch send these properties in one datagram to the address in their RangePartition, and the planning
process adds them to the metadata of its commits. The socket is bound to the address from which the planning process
reaches the cluster, so it opens no other interface, and each datagram carries a random token. A lost datagram only
leaves a name out of a description.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Callable
from typing import NamedTuple

from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.wire.routing import parse_addresses

DESCRIPTION = re.compile(r"(?P<name>.*)\nid = \S+\nrunId = \S+\nbatch = \S+\Z", re.DOTALL)
"""Spark's description of a streaming job. Without a query name the first line is missing."""
LARGEST = 8_192


class ReplyTo(NamedTuple):
    """The address to which tasks report."""

    host: str
    port: int
    token: str


class IdentityReceiver:
    """The planning process's end: receives the identity of the query from its tasks."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._token = secrets.token_hex(16)
        self._socket: socket.socket | None = None
        self._newest: GroupReader | None = None
        host, port = parse_addresses(bootstrap_servers)[0]
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # sends nothing; selects the local address
                local = probe.getsockname()[0]
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            self._socket.bind((local, 0))
            self._socket.setblocking(False)
        except OSError:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def reply_to(self) -> ReplyTo | None:
        if self._socket is None:
            return None
        host, port, *_ = self._socket.getsockname()
        return ReplyTo(host, port, self._token)

    def receive(self) -> GroupReader | None:
        """Read all waiting datagrams. Returns the newest identity; its batch is the newest one that has started."""
        while self._socket is not None:
            try:
                data = self._socket.recv(LARGEST)
            except OSError:  # nothing more is waiting
                break
            self._newest = _parse(data, self._token) or self._newest
        return self._newest


def _parse(data: bytes, token: str) -> GroupReader | None:
    try:
        found = json.loads(data)
        if not secrets.compare_digest(str(found.pop("token")), token):
            return None
        return GroupReader(**found)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def send_identity(reply_to: ReplyTo, local_property: Callable[[str], str | None]) -> None:
    """Send what a task's local properties say of its query. Never fails."""
    described = DESCRIPTION.match(local_property("spark.job.description") or "")
    batch = local_property("streaming.sql.batchId") or ""
    identity = {
        "query": local_property("sql.streaming.queryId"),
        "name": described["name"] if described else None,
        "run": local_property("spark.jobGroup.id"),
        "batch": int(batch) if batch.isdigit() else None,
        "application": local_property("spark.app.name"),
        "token": reply_to.token,
    }
    try:
        family = socket.AF_INET6 if ":" in reply_to.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(json.dumps(identity).encode()[:LARGEST], (reply_to.host, reply_to.port))
    except OSError:
        pass
