"""Which query is this? The planning process is not told, but its tasks are.

Spark gives a task the query's id, run and batch as local properties; the planning process gets offsets and nothing
else. So the first tasks of a batch send what they know to the planning process, in one datagram to the address that
their partition carries, and the planning process puts it into the metadata of its commits. The address is the one from
which the planning process reaches the cluster, so nothing is opened where nothing else is, and a random token goes with
it. A datagram that is lost, or cannot get there, costs a name in a description and nothing else.
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
"""Spark's description of a streaming job; a query without a name has no first line."""
LARGEST = 8_192


class ReplyTo(NamedTuple):
    """Where a task's news goes."""

    host: str
    port: int
    token: str


class Tidings:
    """The planning process's end: hears which query its tasks belong to."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._token = secrets.token_hex(16)
        self._socket: socket.socket | None = None
        self.last: GroupReader | None = None
        """What was heard last: its batch is the newest that has begun."""
        host, port = parse_addresses(bootstrap_servers)[0]
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # sends nothing: asks which of our addresses would be used
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

    def hear(self) -> GroupReader | None:
        """Take what has come in meanwhile. Returns the newest that is known, None while nothing is."""
        while self._socket is not None:
            try:
                data = self._socket.recv(LARGEST)
            except OSError:  # nothing (more) there
                break
            told = _told(data, self._token)
            if told is not None:
                self.last = told
        return self.last


def _told(data: bytes, token: str) -> GroupReader | None:
    try:
        found = json.loads(data)
        if not secrets.compare_digest(str(found.pop("token")), token):
            return None
        return GroupReader(**found)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def tell(reply_to: ReplyTo, local_property: Callable[[str], str | None]) -> None:
    """Tell the planning process what a task's local properties say of its query. Never fails."""
    described = DESCRIPTION.match(local_property("spark.job.description") or "")
    batch = local_property("streaming.sql.batchId") or ""
    news = {
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
            sender.sendto(json.dumps(news).encode()[:LARGEST], (reply_to.host, reply_to.port))
    except OSError:
        pass
