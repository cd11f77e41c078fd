"""A gateway in a thread of the test's process, before a server of another thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kohort.client.security.security import Security
from kohort.client.wire.routing import parse_addresses
from kohort.gateway.gateway import Gateway
from kohort.gateway.run import gateway_config
from kohort.server.server import Server
from kohort.storage.memory import MemoryStorage
from kohort.testing import KohortServer

REFRESH_S = 0.1
UPSTREAM = os.environ.get("KOHORT_TEST_UPSTREAM", "")
"""With an address, or with the word kohort for a server of the test's own, the tests of clients run through a gateway
before it (make peers-gateway)."""


class GatewayServer(KohortServer):
    def __init__(self, upstream: str, *, gone_after_s: float = 0.3, **settings: Any) -> None:
        super().__init__(**settings)
        self._config = gateway_config(self._config)
        self._upstream = upstream
        self._gone_after_s = gone_after_s
        self.gateway: Gateway

    def _new_server(self, storage: MemoryStorage | None) -> Server:
        addresses = parse_addresses(self._upstream)
        self.gateway = Gateway(addresses, Security(), refresh_s=REFRESH_S, gone_after_s=self._gone_after_s)
        return Server(self._config, storage, self._clock, front=self.gateway)

    def wait_for_upstream(self) -> GatewayServer:
        wait_for(lambda: all(check.good for check in self.gateway.checks()), "the gateway does not see its upstream")
        return self


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


@contextmanager
def before_upstream(settings: dict[str, Any]) -> Iterator[GatewayServer]:
    """A gateway with these settings before UPSTREAM."""
    brokers = settings.pop("brokers", 1)
    if UPSTREAM != "kohort":
        with GatewayServer(UPSTREAM, **settings) as gateway:
            yield gateway.wait_for_upstream()
        return
    with (
        KohortServer(brokers=brokers, **settings) as upstream,
        GatewayServer(upstream.bootstrap_servers, **settings) as gateway,
    ):
        yield gateway.wait_for_upstream()
