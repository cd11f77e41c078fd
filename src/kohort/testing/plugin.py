"""The pytest plugin: `kohort_server` is a fresh server for one test, `kohort_server_factory` makes servers to order.

    def test_orders(kohort_server):
        producer = Producer({"bootstrap.servers": kohort_server.bootstrap_servers})

    def test_moves(kohort_server_factory):
        server = kohort_server_factory(brokers=3, num_partitions=6)

For a server that several tests share, make a fixture of your own: `with KohortServer() as server: yield server`.
The server is imported when a test asks for one; pytest starts no slower for having this plugin.
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
    """A running server of one broker, in memory, gone after the test."""
    from kohort.testing.server import KohortServer

    with KohortServer() as server:
        yield server


@pytest.fixture
def kohort_server_factory() -> Iterator[Callable[..., KohortServer]]:
    """Makes running servers; takes KohortServer's arguments. They are stopped after the test."""
    from kohort.testing.server import KohortServer

    with ExitStack() as running:

        def make(**settings: Any) -> KohortServer:
            return running.enter_context(KohortServer(**settings))

        yield make
