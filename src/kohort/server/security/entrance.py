"""What a new connection meets: TLS and SASL, as its listener demands, and then `Connection`.

Only listeners with TLS or SASL have an entrance, so that a server without them does not load these modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.broker.broker import Broker
from kohort.broker.decoding import Decoded, most_bytes
from kohort.broker.request import RequestContext
from kohort.broker.turn import ConnectionId
from kohort.config import BEARER, Config, ConfigError, Listener, bearer_at, mechanisms_at, plain_users, value_at
from kohort.coordinator.events import Client, RequestId
from kohort.server import log
from kohort.server.connection import Connection
from kohort.server.connections import Connections
from kohort.server.security.certificates import Certificates
from kohort.server.security.conversation import Conversation, Done, Terms
from kohort.server.security.door import Door
from kohort.server.security.login import Login
from kohort.server.security.session import Session
from kohort.server.security.tls_link import Inside, TlsLink

LOOK_S = 60.0
"""How often files of keys are looked at."""
LOOKS_OF_A_DAY = 1440
"""Then certificates that expire soon are warned of again."""


class Bearer:
    """OAUTHBEARER of one listener. Raises ConfigError."""

    def __init__(self, config: Config, listener: str) -> None:
        try:
            from kohort.server.security.keys import KeySet  # these take PyJWT and urllib
            from kohort.server.security.tokens import Verifier
        except ImportError as error:
            raise ConfigError(f"OAUTHBEARER takes the package PyJWT: pip install 'kohort[oauth]' ({error})") from None
        terms = bearer_at(config, listener)
        for what, expected in (("audience", terms.audiences), ("issuer", terms.issuer)):
            if not expected:
                setting = f"sasl.oauthbearer.allow.unverified.{what}"
                log.warning(f"tokens of any {what} are accepted", listener=listener, setting=setting)
        self._keys = KeySet(terms, listener)
        self.verify = Verifier(terms, self._keys).verify
        self.start, self.stop = self._keys.start, self._keys.stop


class Entrance:
    """The listeners with TLS or SASL. Raises ConfigError if the settings of one of them cannot be used."""

    def __init__(
        self, config: Config, listeners: list[Listener], around: Callable[[Connection, int], Connection | Inside]
    ) -> None:
        """`around` makes the protocol of a connection's bytes, by the place of its listener."""
        self._listeners = {listener.name: listener for listener in listeners}
        self.certificates = Certificates(config, [listener for listener in listeners if listener.is_tls])
        self._config = config
        self._around = around
        self._bearers = {
            listener.name: Bearer(config, listener.name)
            for listener in listeners
            if listener.is_sasl and BEARER in mechanisms_at(config, listener.name)
        }
        self._terms: dict[str, Terms] = {}
        self._hashing: ThreadPoolExecutor | None = None
        self._connections: Connections
        self.door: Door
        self._looking: asyncio.TimerHandle | None = None
        self._looks = 0
        self.delay_s = config.connection_failed_authentication_delay_ms / 1000

    @property
    def has_tls(self) -> bool:
        return bool(self.certificates)

    def open(self, connections: Connections, broker: Broker) -> None:
        """Before the listeners are up."""
        self._connections = connections
        self.door = Door(connections.admit_to_door, connections.left_door, connections.log)
        most = most_bytes(self._config)
        for listener in self._listeners.values():
            if listener.is_sasl:
                self._terms[listener.name] = self._terms_of(listener, broker, most)
        for bearer in self._bearers.values():
            bearer.start()
        if self.certificates:
            self.certificates.load(broker.state.catalog.broker_configs)
            broker.state.listener_keys = self.certificates
            self._look_later()

    def _terms_of(self, listener: Listener, broker: Broker, most: dict[int, int]) -> Terms:
        config, name = self._config, listener.name
        mechanisms = mechanisms_at(config, name)
        if listener.protocol == "SASL_PLAINTEXT":
            if "PLAIN" in mechanisms:
                log.warning("passwords cross the network in clear text", listener=name, hint="use SASL_SSL, or SCRAM")
            if BEARER in mechanisms:
                log.warning("tokens cross the network in clear text", listener=name, hint="use SASL_SSL")

        def answer_versions(found: Decoded) -> Any:
            header = found.header
            context = RequestContext(
                RequestId(0), ConnectionId(0), config.broker_id, header.api_key, header.api_version,
                header.correlation_id, Client("", ""), broker.state.now, listener=name,
            )  # fmt: skip
            return found.api.handler(broker.state, found.request, context)

        return Terms(
            mechanisms,
            plain_users(config, name),
            broker.state.catalog.credentials,
            {mechanism: value_at(config, name, "connections.max.reauth.ms", mechanism) for mechanism in mechanisms},
            answer_versions,
            most,
            self._bearers.get(name),
        )

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for bearer in self._bearers.values():
            bearer.stop()
        if hasattr(self, "door"):
            self.door.close_all()
        if self._hashing is not None:
            self._hashing.shutdown(wait=False, cancel_futures=True)

    def protocol(self, broker_id: int, listener: str, place: int) -> asyncio.Protocol:
        """The protocol of a new connection."""
        settings = self._listeners[listener]
        if not settings.is_tls:
            return cast(asyncio.Protocol, self._login(broker_id, settings))

        def inside(name: str) -> Inside:
            """What follows after TLS, for the name of a client by its certificate."""
            if settings.is_sasl:
                return self._login(broker_id, settings)
            principal = Principal(name) if name else ANONYMOUS
            return self._around(Connection(self._connections, broker_id, listener, principal), place)

        return cast(asyncio.Protocol, TlsLink(self.certificates.of(listener, broker_id), self.door, broker_id, inside))

    def _login(self, broker_id: int, listener: Listener) -> Login:
        terms = self._terms[listener.name]

        def welcome(done: Done, software: tuple[str, str]) -> Inside:
            connection = Connection(self._connections, broker_id, listener.name, Principal(done.user), software)
            if done.session_ms:
                connection.session = Session(
                    done,
                    self._connections.clock,
                    lambda user, mechanism: Conversation(terms, (user, mechanism)),
                    self.hash,
                    self.delay_s,
                )
            return connection

        limits = (
            value_at(self._config, listener.name, "sasl.authentication.timeout.ms") / 1000,
            value_at(self._config, listener.name, "sasl.server.max.receive.size"),
        )
        return Login(self, Conversation(terms), broker_id, listener.name, limits, welcome)

    def hash(self, compute: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Compute in a thread, one after the other, and call `then` in the event loop."""
        if self._hashing is None:
            self._hashing = ThreadPoolExecutor(1, thread_name_prefix="kohort-hash")
        loop = asyncio.get_running_loop()
        computed = self._hashing.submit(compute)

        def tell(_: object) -> None:
            if not computed.cancelled():
                with suppress(RuntimeError):  # the loop is closed: the server has stopped
                    loop.call_soon_threadsafe(lambda: then(computed.result()))

        computed.add_done_callback(tell)

    # -- new certificates

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self.certificates.renew(all_of_them=False)
        self._looks += 1
        if self._looks % LOOKS_OF_A_DAY == 0:
            self.certificates.warn()
        self._look_later()
