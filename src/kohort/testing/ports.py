"""The ports of a server that is stopped and will start again."""

from __future__ import annotations

import contextlib
import weakref

from kohort.config import Config, Listener, http_address, listeners_of
from kohort.server.listeners import HTTP, BoundSockets, ListenFailed


class HeldPorts:
    """While they are held, no other program gets these ports, and clients are refused."""

    def __init__(self) -> None:
        self._sockets: list[BoundSockets] = []
        weakref.finalize(self, _close_all, self._sockets)

    def hold(self, config: Config) -> None:
        """Hold the ports of `config`, except those that another program has taken already."""
        found = listeners_of(config)
        if (http := http_address(config)) is not None:
            found.append(Listener("http.listener", HTTP, (http,), None))
        for settings in found:
            for index in range(len(settings.addresses)):
                held = BoundSockets(settings, index, may_be_insecure=True)
                with contextlib.suppress(ListenFailed):
                    held.bind()
                    self._sockets.append(held)

    def release(self) -> None:
        _close_all(self._sockets)


def _close_all(held: list[BoundSockets]) -> None:
    while held:
        held.pop().close()
