"""A broker on the memory engine, and a client of it."""

from __future__ import annotations

import pytest
from wire_driver import Connection, Wire


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def client(wire: Wire, request: pytest.FixtureRequest) -> Connection:
    """In a module with PARTITIONS, the topic `t` exists with that many partitions."""
    client = wire.connect()
    if partitions := getattr(request.module, "PARTITIONS", 0):
        client.create_topic("t", partitions)
    return client
