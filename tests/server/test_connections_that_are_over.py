"""A connection that is over leaves nothing behind. The server's garbage collector looks at everything once an hour, so
its objects must not refer to each other (server/memory/collector.py)."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator

import pytest
from edges import eventually

from kohort.client.cluster import Cluster
from kohort.server.connection import Connection
from kohort.server.security.login import Login
from kohort.server.security.tls_link import TlsLink
from kohort.testing import KohortServer

KINDS = (Connection, TlsLink, Login)


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def present() -> set[int]:
    return {id(each) for each in gc.get_objects() if type(each) in KINDS}


@pytest.mark.parametrize("security", ["", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_connection_that_is_over_goes_at_once(security: str, without_collections: None) -> None:
    users = {"users": {"alice": "secret"}} if "SASL" in security else {}
    with KohortServer(security=security, **users) as server:
        settings = server.client_config("alice") if users else server.client_config()
        secured = {key: value for key, value in settings.items() if key.startswith(("security", "ssl", "sasl"))}
        eventually(lambda: not server._server._connections._open)
        gc.collect()
        before = present()
        for _ in range(3):
            with Cluster(server.bootstrap_servers, security=secured or None) as cluster:
                cluster.nodes()
            host, _, port = server.bootstrap_servers.rpartition(":")
            with socket.create_connection((host, int(port))) as unfinished:
                unfinished.sendall(b"\x16\x03\x01")
        eventually(lambda: present() <= before)
