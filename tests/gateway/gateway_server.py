"""A gateway in a thread of the test's process, before a server of another thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kohort.client.security.security import Security
from kohort.client.wire.routing import parse_addresses
from kohort.config import Address
from kohort.gateway.gateway import Gateway
from kohort.gateway.run import gateway_config
from kohort.server.server import Server
from kohort.storage.memory import MemoryStorage
from kohort.testing import KohortServer

PLAINTEXT = Security()
REFRESH_S = 0.1
UPSTREAM = os.environ.get("GATEWAY_UPSTREAM", "")
"""With an address, or with the word kohort for a server of the test's own, the tests of clients run through a gateway
before it (make peers-gateway)."""


class GatewayServer(KohortServer):
    def __init__(
        self, upstream: str, *, gone_after_s: float = 0.3, upstream_security: Security = PLAINTEXT, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._config = gateway_config(self._config)
        self._upstream = upstream
        self._security = upstream_security
        self._gone_after_s = gone_after_s
        self.gateway: Gateway | None = None

    def _new_server(self, storage: MemoryStorage | None) -> Server:
        addresses = parse_addresses(self._upstream)
        ports = self.broker_ports()  # they stay over restarts
        self.gateway = Gateway(
            addresses, self._security, ports=ports, refresh_s=REFRESH_S, gone_after_s=self._gone_after_s
        )
        return Server(self._config, storage, self._clock, front=self.gateway)

    def broker_ports(self) -> list[int]:
        by_slot = {} if self.gateway is None else self.gateway.listening
        return [next(iter(by_slot[slot].values())).port for slot in sorted(by_slot)]

    def advertise(self, port: int) -> int:
        """Clients get this port of 127.0.0.1 as the address of the only broker. Returns that of its listener."""
        assert self.gateway is not None
        (listening,) = self.broker_ports()
        self.gateway.listening[0] = dict.fromkeys(self.gateway.listening[0], Address("127.0.0.1", port))
        return listening

    def wait_for_upstream(self) -> GatewayServer:
        assert self.gateway is not None
        checks = self.gateway.checks
        wait_for(lambda: all(check.good for check in checks()), "the gateway does not see its upstream")
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
    of_brokers = {name: settings.pop(name) for name in ("brokers", "broker_rack") if name in settings}
    with ExitStack() as stack:
        upstream = UPSTREAM
        if UPSTREAM == "kohort":
            upstream = stack.enter_context(KohortServer(**of_brokers)).bootstrap_servers
        yield stack.enter_context(GatewayServer(upstream, **settings)).wait_for_upstream()
