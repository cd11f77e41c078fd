"""Listening sockets, one set a broker.

Sockets are bound first and listen only when the server is ready: an early client is refused instead of kept waiting. A
broker whose listener is down keeps its addresses bound, so that no other program takes its port.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any

from kohort.config import ANYWHERE, Address, Config, ConfigError, listeners_of
from kohort.config import Listener as Settings
from kohort.server import log
from kohort.server.arrivals import BACKLOG, Acceptor

HTTP = "HTTP"
"""The protocol of the listener for /metrics and /readyz; the others speak Kafka's."""
RESOLVE_S = 0.3
LAST_PORT = 65_535


class ListenFailed(Exception):
    """The server cannot listen on an address. The text says which, why, and what to do."""


class BoundSockets:
    """The sockets of one address. A host name may have several addresses, which then share the port."""

    def __init__(
        self, settings: Settings, index: int = 0, *, may_be_insecure: bool, beside: BoundSockets | None = None
    ) -> None:
        """`index`: the place of this address among those of the listener. `beside`: the sockets of the same host beside
        which a gateway adds a port. The host is not looked up again, because that may block the event loop."""
        self._wanted = address = settings.addresses[index]
        self._settings = settings
        self._may_be_insecure = may_be_insecure
        self._sockets: list[socket.socket] = []
        self.bound = Address(address.host, address.port)
        """The address with the real port instead of 0."""
        self.hosts: list[str] = []
        """The addresses that the host name has."""
        self._is_added = beside is not None
        self._found: list[Any] = [] if beside is None else beside._found
        """What the host name stands for."""

    @property
    def name(self) -> str:
        """Of the listener."""
        return self._settings.name

    def bind(self) -> None:
        """Raises ListenFailed, and ConfigError for an address that must not be open to the network."""
        host, port = self.bound
        try:
            found = self._found = self._found or socket.getaddrinfo(
                host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
            )
        except OSError as error:
            raise ListenFailed(f"cannot listen on {self._wanted}: {error.strerror}; see {self._setting}") from None
        self.hosts = [str(where[0]) for *_, where in found]
        if not self._may_be_insecure and self._settings.protocol == "PLAINTEXT":
            check_secured(self._settings.name, self._wanted, self.hosts)
        elif not self._may_be_insecure and self._settings.protocol == HTTP:
            check_local(self._wanted, self.hosts)
        for family, kind, protocol, _, where in sorted(set(found)):
            opened = socket.socket(family, kind, protocol)
            try:
                # Connections of an earlier process may linger in TIME_WAIT; two listeners still exclude each other.
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                opened.bind((where[0], self.bound.port, *where[2:]))
                opened.setblocking(False)
            except OSError as error:
                opened.close()
                if self._sockets and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # in many hosts files "localhost" has an IPv6 address on a machine without IPv6
                self.close()
                raise ListenFailed(self._explained(error)) from None
            self._sockets.append(opened)
            self.bound = Address(host, opened.getsockname()[1])

    def listen(self) -> list[socket.socket]:
        """The sockets, which listen now. Raises ListenFailed."""
        for bound in self._sockets:
            try:
                bound.listen(BACKLOG)
            except OSError as error:
                self.close()
                raise ListenFailed(self._explained(error)) from None
        return self._sockets

    def close(self) -> None:
        for bound in self._sockets:
            bound.close()
        self._sockets = []

    @property
    def _setting(self) -> str:
        return "http.listener" if self._settings.protocol == HTTP else "listeners"

    def _explained(self, error: OSError) -> str:
        where = f"cannot listen on {self.bound}"
        other = "--set http.listener=HOST:PORT" if self._settings.protocol == HTTP else "--listeners HOST:PORT"
        if self._is_added:  # by a gateway, for a broker of its upstream
            other = "--broker-ports PORT,..."
        if error.errno == errno.EADDRINUSE:
            return f"{where}: the port is in use; stop its user, or choose another with {other}"
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"{where}: not permitted; choose a port above 1023 with {other}"
        return f"{where}: {error.strerror or error}; see {other.partition('HOST')[0].strip('= ')}"


class Listener:
    """One listener of one broker."""

    def __init__(self, sockets: BoundSockets, broker_id: int, acceptor: Callable[[], Acceptor]) -> None:
        """`acceptor` makes what accepts connections, when the listener is up for the first time."""
        self.sockets = sockets
        self.broker_id = broker_id
        self.is_up = False
        self._make_acceptor = acceptor
        self._acceptor: Acceptor | None = None

    def up(self) -> None:
        """Listen, if it does not. Raises ListenFailed."""
        if self.is_up:
            return
        sockets = self.sockets.listen()
        self._acceptor = self._acceptor or self._make_acceptor()
        self._acceptor.start(sockets)
        self.is_up = True

    @property
    def is_busy(self) -> bool:
        """See `Acceptor.is_busy`."""
        return self._acceptor is not None and self._acceptor.is_busy

    def down(self) -> None:
        """Stop listening; the addresses stay reserved."""
        self.close()
        self.sockets.bind()

    def close(self) -> None:
        if self._acceptor is not None:
            self._acceptor.stop()
        self.sockets.close()
        self.is_up = False


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
            if not 0 <= chosen <= LAST_PORT:
                raise ListenFailed(
                    f"cannot listen on {Address(host, chosen)}: there is no such port; name others with --broker-ports"
                )
            moved = settings._replace(addresses=(Address(host, chosen),))
            beside = next((one.sockets for one in self._listeners if one.sockets.name == settings.name), None)
            sockets = BoundSockets(moved, may_be_insecure=config.allow_insecure_listeners, beside=beside)
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


def are_local(hosts: Sequence[str]) -> bool:
    """True if no other machine reaches these addresses."""
    return all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host in hosts)


def check_local(wanted: Address, hosts: Sequence[str]) -> None:
    """Raises ConfigError if other machines reach the HTTP listener."""
    if not are_local(hosts):
        raise ConfigError(
            f"http.listener at {wanted} is reached by other machines and has neither TLS nor a login. Listen on "
            "127.0.0.1, with a proxy or an agent on this machine before it; or, in a network that you trust, set "
            "allow.insecure.listeners=true"
        )


def check_secured(name: str, wanted: Address, hosts: Sequence[str]) -> None:
    """Raises ConfigError if one of a listener's addresses is reached by other machines."""
    if are_local(hosts):
        return
    raise ConfigError(
        f"the listener {name} at {wanted} is reached by other machines and has neither TLS nor SASL. These "
        "three settings give it both (docs/secure.md):\n"
        f"  listeners=SASL_SSL://{wanted}\n"
        "  ssl.keystore.location=/path/to/server.pem\n"
        "  sasl.enabled.mechanisms=SCRAM-SHA-512\n"
        "To listen without protection, in a network that you trust, set allow.insecure.listeners=true; to serve this "
        "machine alone, listen on 127.0.0.1"
    )


def advertised(settings: Settings, bound: Sequence[Address]) -> list[Address] | None:
    """The addresses that clients of a listener get: the advertised ones, or else those it listens on; None for no
    addresses.

    For a listener without a host that is this machine's name if it can be resolved, or else 127.0.0.1, as in Kafka.
    Raises ConfigError for 0.0.0.0 and ::, because no client can connect to these. Source: KafkaConfig.validateValues.
    """
    if settings.advertised is None:
        return None
    if settings.advertised:
        return [
            Address(address.host, address.port if address.port > 0 else listening.port)
            for address, listening in zip(settings.advertised, bound, strict=True)
        ]
    if not any(address.host in ANYWHERE for address in bound):
        return list(bound)
    if spelled := next((address for address in bound if address.host), None):
        raise ConfigError(
            f"the listener {settings.name} at {spelled} is on all addresses of this machine, and clients need one of "
            "them: set advertised.listeners=HOST:PORT, with a name or address that they can reach"
        )
    host = _own_name()
    log.warning(
        "a listener is open to the network",
        listener=settings.name,
        clients_are_told=host,
        hint="advertised.listeners tells another",
    )
    return [Address(host if a.host in ANYWHERE else a.host, a.port) for a in bound]


def _own_name() -> str:
    name = socket.gethostname()
    resolver = ThreadPoolExecutor(1, thread_name_prefix="kohort-resolve")
    try:
        resolver.submit(socket.getaddrinfo, name, None).result(RESOLVE_S)
    except (OSError, FutureTimeout, UnicodeError):
        return "127.0.0.1"
    finally:
        resolver.shutdown(wait=False, cancel_futures=True)
    return name
