"""A kohort server inside a test.

    from kohort.testing import KohortServer

    with KohortServer(brokers=3) as server:
        server.create_topic("orders", partitions=6)
        server.produce("orders", "one", "two")
        consumer = Consumer(server.client_config("billing"))
        ...
        server.wait_stable("billing", members=1)
        assert server.lag("billing") == 0
        server.move_group("billing", to_broker=2)      # clients meet NOT_COORDINATOR
        server.stop_broker(1, failover=True)           # another broker takes over
        server.start_broker(1)                         # back on the same port
        server.restart()                               # the whole server, with its data

`KohortServer(clock=ManualClock())` runs on a clock that the test advances: sessions end without waiting.

With pytest there is nothing to set up: the package brings the fixtures `kohort_server` and `kohort_server_factory`.

    server            `KohortServer`
    calls             what it does as a client: records, lag, waiting for a group
    clock             `ManualClock`
    ports             the ports of a stopped server
    secured           certificates and users of a server with TLS and SASL
    plugin            the pytest fixtures, and the section in the report of a failed test
    rebalance_report  the text of that section
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.testing.clock import ManualClock
    from kohort.testing.server import KohortServer

__all__ = ["KohortServer", "ManualClock"]


def __getattr__(name: str) -> Any:
    # pytest imports this package at its start, for the plugin; it imports the server when a test uses it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kohort.testing.{'server' if name == 'KohortServer' else 'clock'}"), name)
