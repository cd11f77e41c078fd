"""A broker on the memory engine, and a client of it."""

from __future__ import annotations

import pytest
from wire_driver import Connection, Wire


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def client(wire: Wire) -> Connection:
    return wire.connect()
