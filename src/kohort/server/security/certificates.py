"""The TLS of all listeners. Certificates are renewed by SIGHUP, by a changed file, or by AlterConfigs on a broker.

All brokers of the process share the TLS of a listener, until AlterConfigs gives one of them settings of its own
(`listener.name.NAME.ssl.keystore.location` and others, config/dynamic.py). Such settings are tried before the request
is answered, as in Kafka (DynamicBrokerConfig.scala). At a start, they count before those of the configuration.
"""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kohort.config import Config, ConfigError, Listener, of_dynamic_listener
from kohort.server import log
from kohort.server.security.contexts import ListenerTls

SOON = datetime.timedelta(days=30)
"""A certificate that expires within this time is warned of."""
MOST_BYTES = 1024 * 1024
"""Of a file or text that a client names."""
ENCRYPTED = "ENCRYPTED PRIVATE KEY-----"
"""Behind BEGIN in PEM: the key tells how many iterations decrypt it, which can be minutes of CPU."""


class Certificates:
    def __init__(
        self,
        config: Config,
        listeners: Iterable[Listener],
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """Settings that cannot be used raise ConfigError in `load`, because those of the brokers may replace them."""
        self._config = config
        self._now = now
        self._listeners = {listener.name.lower(): listener for listener in listeners}
        self._shared: dict[str, ListenerTls] = {}
        self._own: dict[tuple[str, int], ListenerTls] = {}
        """By the listener and the broker."""
        self._texts: dict[tuple[str, int], dict[str, str]] = {}
        self._tried: tuple[object, dict[str, ListenerTls]] = None, {}
        self._unusable: dict[str, ConfigError] = {}
        for listener in self._listeners.values():
            try:
                self._shared[listener.name] = ListenerTls(config, listener)
            except ConfigError as error:
                self._unusable[listener.name] = error

    def __len__(self) -> int:
        return len(self._listeners)

    def of(self, listener: str, broker_id: int) -> ListenerTls:
        return self._own.get((listener, broker_id)) or self._shared[listener]

    def load(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """At the start: what is set on each broker, by its id. Raises ConfigError."""
        first = self._config.broker_id
        for broker_id in range(first, first + self._config.brokers):
            for listener, texts in self._by_listener(configs.get(str(broker_id), {})).items():
                try:
                    self._own[listener, broker_id] = self._made(listener, texts)
                except ConfigError as error:
                    hint = "the settings of the start are used"
                    log.error("a certificate is not used", listener=listener, reason=str(error), hint=hint)
                else:
                    self._texts[listener, broker_id] = texts
            for name, unusable in self._unusable.items():
                if (name, broker_id) not in self._own:
                    raise unusable
        self.warn()

    # -- AlterConfigs

    def check(self, broker_id: int, configs: Mapping[str, str]) -> None:
        """Try what is to be set on a broker. Raises ConfigError."""
        made = {}
        wanted = self._by_listener(configs)
        for listener in self._listeners.values():
            name = listener.name
            texts = wanted.get(name, {})
            if texts != self._texts.get((name, broker_id), {}):
                made[name] = self._made(name, texts) if texts else self._restored(name)
                made[name].check_replaces(self.of(name, broker_id))
        self._tried = (broker_id, dict(configs)), made

    def use(self, broker_id: int, configs: Mapping[str, str]) -> None:
        """What has been tried is used for new connections. The same settings again: the files are read again."""
        if self._tried[0] != (broker_id, dict(configs)):
            try:
                self.check(broker_id, configs)
            except ConfigError as error:  # the configs are those of before, and were not usable at the start
                log.warning("a new certificate is not used", reason=str(error))
                return
        made = self._tried[1]
        self._tried = None, {}
        wanted = self._by_listener(configs)
        for listener, tls in made.items():
            if listener in wanted:
                self._own[listener, broker_id], self._texts[listener, broker_id] = tls, wanted[listener]
            else:
                self._own.pop((listener, broker_id), None)
                self._texts.pop((listener, broker_id), None)
                self._shared[listener] = tls
            self._renewed(tls)
        for listener in wanted.keys() - made.keys():
            self._renew(self._own[listener, broker_id])

    def _by_listener(self, configs: Mapping[str, str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for name, text in configs.items():
            place = of_dynamic_listener(name)
            if place is not None and place[0] in self._listeners:
                found.setdefault(self._listeners[place[0]].name, {})[name.lower()] = text
        return found

    def _made(self, listener: str, texts: Mapping[str, str]) -> ListenerTls:
        for name, text in texts.items():
            _check_text(name, text)
        settings = tuple({**dict(self._config.of_listeners), **texts}.items())
        return ListenerTls(replace(self._config, of_listeners=settings), self._listeners[listener.lower()])

    def _restored(self, listener: str) -> ListenerTls:
        return self._shared.get(listener) or self._made(listener, {})

    # -- files

    def renew(self, *, all_of_them: bool = True) -> None:
        """Read the files of keys again: all of them, or those that have changed."""
        for tls in self._all():
            if all_of_them or tls.has_changed:
                self._renew(tls)

    def _renew(self, tls: ListenerTls) -> None:
        try:
            tls.renew()
        except ConfigError as error:
            log.warning("a new certificate is not used", listener=tls.listener, reason=str(error))
        else:
            self._renewed(tls)

    def _renewed(self, tls: ListenerTls) -> None:
        log.info("a certificate was read again", listener=tls.listener, subject=tls.identity.subject)
        self._warn(tls)

    def _all(self) -> Iterable[ListenerTls]:
        return (*self._shared.values(), *self._own.values())

    # -- their end

    def warn(self) -> None:
        """A line in the log for each certificate that has expired, or soon will."""
        for tls in self._all():
            self._warn(tls)

    def _warn(self, tls: ListenerTls) -> None:
        left = tls.ends - self._now()
        what = {"listener": tls.listener, "subject": tls.ending, "ends": f"{tls.ends:%Y-%m-%d %H:%M} UTC"}
        if left <= datetime.timedelta():
            log.error("a certificate has expired: clients refuse it", **what, hint="renew its file (docs/secure.md)")
        elif left <= SOON:
            log.warning("a certificate expires soon", **what, days=left.days)


def _check_text(name: str, text: str) -> None:
    """The event loop tries what a client sets, so it must be quick: a small file, and no encrypted key of the client's
    own. Raises ConfigError."""
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{name} has more than {MOST_BYTES} characters")
    if ENCRYPTED in text:
        raise ConfigError(
            f"{name}: the key is encrypted; set it without a password, or put it into a file of the server"
        )
    if name.endswith(".location") and text:
        try:
            found = os.stat(os.path.expanduser(text))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{name}: cannot read {text}: {getattr(error, 'strerror', None) or error}") from None
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            raise ConfigError(f"{name}: {text} is no file of at most {MOST_BYTES} bytes")
