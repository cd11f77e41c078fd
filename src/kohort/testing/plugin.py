"""The pytest plugin: `kohort_server` is a new server for one test, `kohort_server_factory` starts any number.

    def test_orders(kohort_server):
        producer = Producer({"bootstrap.servers": kohort_server.bootstrap_servers})

    def test_moves(kohort_server_factory):
        server = kohort_server_factory(brokers=3, num_partitions=6)

For a server that several tests share, write your own fixture: `with KohortServer() as server: yield server`.
The plugin imports the server when a test uses it, so it does not slow down the start of pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kohort.testing.server import KohortServer


@pytest.fixture
def kohort_server() -> Iterator[KohortServer]:
    """A running server of one broker, in memory; stopped after the test."""
    from kohort.testing.server import KohortServer

    with KohortServer() as server:
        yield server


@pytest.fixture
def kohort_server_factory() -> Iterator[Callable[..., KohortServer]]:
    """A function that starts a server; it takes KohortServer's arguments. Servers stop after the test."""
    from kohort.testing.server import KohortServer

    with ExitStack() as running:

        def make(**settings: Any) -> KohortServer:
            return running.enter_context(KohortServer(**settings))

        yield make
