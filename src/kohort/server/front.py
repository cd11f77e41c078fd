"""A server behind a gateway: what the gateway is to the server, and the listeners that it adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kohort.broker.topics.catalog import Catalog
from kohort.config import Address, Config, listeners_of
from kohort.server.arrivals import Acceptor
from kohort.server.connection import Connection
from kohort.server.connections import Connections
from kohort.server.listeners import BoundSockets, Listener
from kohort.server.turns import TurnLoop
from kohort.storage.protocol import WrongDirectory

if TYPE_CHECKING:
    from kohort.broker.state import BrokerState
    from kohort.server.http.health import Check
    from kohort.server.security.tls_link import Inside


class Behind(Protocol):
    """The part of a server that its front uses."""

    config: Config
    added: AddedListeners
    advertised: dict[str, list[Address]]

    def fail(self, error: Exception) -> None: ...


class Front(Protocol):
    """What stands between the sockets and the connections: the gateway."""

    def attach(self, server: Behind, state: BrokerState, connections: Connections, turns: TurnLoop) -> None:
        """The broker is loaded and has had its first turn. Nothing listens yet."""

    def around(self, connection: Connection, place: int) -> Inside:
        """The protocol of a client's bytes, some of which it hands to `connection`. `place`: see `AddedListeners`."""

    def checks(self) -> Sequence[Check]:
        """Of /readyz."""

    def close(self) -> None: ...


class AddedListeners:
    """More listeners than the settings have: one more for each of them, by a *place*, which their connections have."""

    def __init__(
        self, config: Config, listeners: list[Listener], acceptor: Callable[[int, str, int], Acceptor]
    ) -> None:
        """`listeners` are all of the server."""
        self._config = config
        self._listeners = listeners
        self._acceptor = acceptor
        self._by_place: dict[int, list[Listener]] = {}

    def add(self, place: int, port: int | None = None) -> dict[str, Address]:
        """The first at `port`, by default `place` ports above that of the settings (port 0 stays 0), the others as far
        from theirs. Returns where they listen, by their names. Raises ListenFailed, ConfigError."""
        try:
            return self._add(place, port)
        except BaseException:
            self.remove(place)
            raise

    def _add(self, place: int, port: int | None) -> dict[str, Address]:
        config, all_settings = self._config, listeners_of(self._config)
        added: dict[str, Address] = {}
        distance = place if port is None else port - all_settings[0].addresses[0].port
        for settings in all_settings:
            host, of_settings = settings.addresses[0]
            chosen = of_settings + distance if of_settings or (port is not None and not added) else 0
            moved = settings._replace(addresses=(Address(host, chosen),))
            sockets = BoundSockets(moved, may_be_insecure=config.allow_insecure_listeners)
            sockets.bind()
            acceptor = partial(self._acceptor, config.broker_id, settings.name, place)
            listener = Listener(sockets, config.broker_id, acceptor)
            self._listeners.append(listener)
            self._by_place.setdefault(place, []).append(listener)
            listener.up()
            added[settings.name] = sockets.bound
        return added

    def remove(self, place: int) -> None:
        """Connections stay."""
        for listener in self._by_place.pop(place, ()):
            self._listeners.remove(listener)
            listener.close()


def check_owner(catalog: Catalog, data_dir: str, *, is_gateway: bool) -> None:
    """Raises WrongDirectory if the data are those of a server, and a gateway starts on them, or the other way round."""
    has_topics = any(not (topic.is_followed or topic.is_internal) for topic in catalog.topics.values())
    if (has_topics and is_gateway) or (catalog.upstream is not None and not is_gateway):
        whose = "server; kohort serve" if is_gateway else "gateway; kohort gateway"
        raise WrongDirectory(f"the data directory {data_dir} is that of a {whose} takes it")
