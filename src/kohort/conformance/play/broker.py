"""The broker that a player asks, and the versions in which it is asked.

Commands name the versions of Apache Kafka 4.3 unless they say `v=`. A broker that serves less is asked in its highest
version, as clients do, down to the version that still has what the command is about.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple

from kohort.client.security.security import Security
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.exchange import PLAINTEXT, VersionRange
from kohort.wire.schema import schema_of

CONNECT_S = 20.0
LOWEST = {
    "ConsumerGroupDescribe": 0,
    "CreateTopics": 5,
    "DeleteGroups": 0,
    "DeleteTopics": 1,
    "DescribeGroups": 4,
    "FindCoordinator": 4,
    "Heartbeat": 3,
    "InitProducerId": 3,
    "JoinGroup": 5,
    "LeaveGroup": 3,
    "ListGroups": 4,
    "ListOffsets": 2,
    "Metadata": 4,
    "OffsetCommit": 7,
    "OffsetFetch": 8,
    "Produce": 7,
    "SyncGroup": 3,
}
"""The lowest version that an API is asked in if the command names none; without a row, the version of Kafka 4.3."""


class NotServed(Exception):
    """The broker does not have what a command asks for."""


class Ended(Exception):
    """The run ends before its time, because a signal asks for it or the broker is gone."""


Check = Callable[[], None]
"""Raises Ended once the run has to end."""


def unchecked() -> None:
    """The check of a run that nothing ends."""


class Broker(NamedTuple):
    host: str
    port: int
    security: Security = PLAINTEXT
    served: Mapping[int, VersionRange] | None = None
    """The versions by API key; None: all that anybody asks for."""
    node_id: int | None = None
    """Topics are put on this broker; None: it is the only one."""
    named: Callable[[str], str] = str
    """The name of a group or transactional id that begins with this and that this broker coordinates."""

    def open(self, client_id: str | None) -> socket.socket:
        """A connection after TLS and authentication. Raises OSError and KafkaError."""
        if self.security.tls is None and self.security.sasl is None:
            return socket.create_connection((self.host, self.port), CONNECT_S)
        return self.connect(client_id or "").detach()

    def connect(self, client_id: str) -> Connection:
        return Connection(self.host, self.port, client_id=client_id, version_caps={}, security=self.security)

    def serves(self, request: type) -> bool:
        return self.served is None or schema_of(request).api_key in self.served

    def version(self, request: type, wanted: int, is_named: bool = False) -> int:
        """`is_named`: the command names the version, so no other will do. Raises NotServed."""
        schema = schema_of(request)
        name = schema.name.removesuffix("Request")
        if self.served is None or schema.api_key is None:
            return wanted
        if schema.api_key not in self.served:
            raise NotServed(f"the broker does not serve {name}")
        first, last = self.served[schema.api_key]
        lowest = wanted if is_named else LOWEST.get(name, wanted)
        if not first <= min(wanted, last) or last < lowest:
            raise NotServed(f"the broker serves {name} in versions {first} to {last}, and this needs {lowest}")
        return min(wanted, last)


Address = tuple[str, int] | Broker


def broker_of(address: Address) -> Broker:
    """The broker at an address. A plain one is in no need of authentication, and serves everything."""
    return Broker(*address)


def fields_apart(request: type, one: int, other: int) -> frozenset[str]:
    """The fields of an API's answers that only one of the two versions has."""
    return _fields(response_of(request), one) ^ _fields(response_of(request), other)


def _fields(message: type, version: int) -> frozenset[str]:
    found: set[str] = set()
    for field in schema_of(message).fields:
        if version in field.versions:
            inner = field.type[0] if isinstance(field.type, list) else field.type
            found |= {field.name} | (_fields(inner, version) if isinstance(inner, type) else set())
    return frozenset(found)


def response_of(request: type) -> type:
    """The class of the answers to requests of a class."""
    name = request.__name__.removesuffix("Request") + "Response"
    kind: type = getattr(import_module(request.__module__), name)
    return kind
