"""Listeners: what `listeners`, `advertised.listeners` and `listener.security.protocol.map` say together.

Several brokers have the same listeners, each at its own address. Without a name, a listener is PLAINTEXT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kohort.config.addresses import PLAINTEXT, Address, one_each
from kohort.config.declaration import ConfigError
from kohort.config.parsing import parse_value
from kohort.config.settings import SETTINGS, Config
from kohort.security.jaas import parse_jaas

PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PREFIX = "listener.name."
OF_LISTENERS = frozenset(
    name for name in SETTINGS if name.startswith(("ssl.", "sasl.", "connections.max.reauth", "connection.failed"))
) | {"max.connections", "max.connection.creation.rate"}
"""Settings that a listener may have for itself."""
BEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", BEARER)
REAUTH = "connections.max.reauth.ms"
JAAS = "sasl.jaas.config"
OF_BEARER = "sasl.oauthbearer."
BEARER_HANDLER = "sasl.server.callback.handler.class"
"""Kafka's brokers need it with VALIDATOR for tokens with a signature."""
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
VALIDATORS = (VALIDATOR, VALIDATOR.replace("oauthbearer.", "oauthbearer.secured."))
"""The class, and its name before Kafka 4.0."""


class Listener(NamedTuple):
    name: str
    protocol: str
    """One of PROTOCOLS."""
    addresses: tuple[Address, ...]
    """Where it listens: one address for each broker."""
    advertised: tuple[Address, ...] | None
    """The addresses that its clients get: one for each broker, or () for `addresses`. None if `advertised.listeners`
    leaves this listener out; then its clients get none."""

    @property
    def is_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


def listeners_of(config: Config) -> list[Listener]:
    """The listeners in their order. Raises ConfigError."""
    protocols = _protocols(config.listener_security_protocol_map)
    listening = one_each(config.brokers, "listeners", config.listeners)
    if not listening:
        raise ConfigError("listeners names no address; it takes HOST:PORT, or NAME://HOST:PORT")
    advertised = one_each(config.brokers, "advertised.listeners", config.advertised_listeners)
    if unknown := advertised.keys() - listening.keys():
        name = min(unknown)
        raise ConfigError(f"advertised.listeners names the listener {name}, which listeners does not; add it there")
    found = []
    for name, addresses in listening.items():
        protocol = protocols.get(name, name)
        if protocol not in PROTOCOLS:
            raise ConfigError(
                f"the listener {name} has no protocol; add {name}:SASL_SSL, or another of "
                f"{', '.join(PROTOCOLS)}, to listener.security.protocol.map"
            )
        told = tuple(advertised[name]) if name in advertised else None if advertised else ()
        found.append(Listener(name, protocol, tuple(addresses), told))
    _check_prefixes(config.of_listeners, listening.keys())
    for listener in found:
        if listener.is_sasl:
            mechanisms_at(config, listener.name)
    return found


def value_at(config: Config, listener: str, setting: str, mechanism: str = "") -> Any:
    """The value of a setting for a listener, and for a SASL mechanism: its own, or else that of all."""
    own = dict(config.of_listeners)
    at = f"{PREFIX}{listener.lower()}."
    for name in (f"{at}{mechanism.lower()}.{setting}", f"{at}{setting}"):
        if name in own:
            return parse_value(setting, own[name])
    return getattr(config, SETTINGS[setting].name)


def mechanisms_at(config: Config, listener: str) -> tuple[str, ...]:
    """The SASL mechanisms of a listener. Raises ConfigError."""
    text = value_at(config, listener, "sasl.enabled.mechanisms")
    names = tuple(dict.fromkeys(name.strip().upper() for name in text.split(",") if name.strip()))
    if not names or not set(names) <= set(MECHANISMS):
        raise ConfigError(
            f"sasl.enabled.mechanisms of the listener {listener} is {text!r}; kohort serves {', '.join(MECHANISMS)}"
        )
    return names


def plain_users(config: Config, listener: str) -> dict[str, str]:
    """The users and passwords of a listener's PLAIN, out of its JAAS configuration. Raises ConfigError."""
    name = f"{PREFIX}{listener.lower()}.plain.{JAAS}"
    text = dict(config.of_listeners).get(name)
    return {} if text is None else _users(name, text)


def bearer_options(config: Config, listener: str) -> Mapping[str, str]:
    """The options of a listener's OAUTHBEARER, out of its JAAS configuration. Raises ConfigError."""
    name = f"{PREFIX}{listener.lower()}.{BEARER.lower()}.{JAAS}"
    text = dict(config.of_listeners).get(name)
    return {} if text is None else _options(name, text, "OAuthBearerLoginModule")


def _options(name: str, text: str, login_module: str) -> Mapping[str, str]:
    try:
        module = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(str(error).replace(JAAS, name)) from None
    if module.name != login_module:
        raise ConfigError(f"{name}: the login module is not {login_module}; kohort reads that one, and loads none")
    return module.options


def _users(name: str, text: str) -> dict[str, str]:
    options = _options(name, text, "PlainLoginModule")
    users = {option[5:]: value for option, value in options.items() if option.startswith("user_")}
    if not all(users) or not all(users.values()):
        raise ConfigError(f"{name}: the name or the password of a user is empty")
    return users


def _check_prefixes(settings: Iterable[tuple[str, str]], listeners: Iterable[str]) -> None:
    known = {listener.lower() for listener in listeners}
    for name, text in settings:
        rest = name.removeprefix(PREFIX)
        listener = next((known for known in sorted(known, key=len, reverse=True) if rest.startswith(f"{known}.")), "")
        setting = rest.removeprefix(f"{listener}.")
        if not listener:
            raise ConfigError(f"{name} is of a listener that listeners does not name; it names {', '.join(known)}")
        mechanism, _, of_mechanism = setting.partition(".")
        if mechanism.upper() in MECHANISMS and of_mechanism == REAUTH:
            setting = of_mechanism
        elif mechanism.upper() == BEARER:
            if of_mechanism == BEARER_HANDLER and text.strip() in VALIDATORS:
                continue
            if of_mechanism == JAAS:
                _options(name, text, "OAuthBearerLoginModule")
                continue
            if of_mechanism.startswith(OF_BEARER):
                setting = of_mechanism
        elif setting == f"plain.{JAAS}":
            _users(name, text)
            continue
        if setting not in OF_LISTENERS:
            raise ConfigError(f"{name}: {setting} is not a setting that kohort has for single listeners")
        parse_value(setting, text)


def _protocols(text: str) -> dict[str, str]:
    """Protocol by the name of the listener."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (word.strip().upper() for word in part.partition(":"))
        if not colon or protocol not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map is {text!r}; it takes NAME:PROTOCOL, comma separated, and the "
                f"protocols are {', '.join(PROTOCOLS)}"
            )
        if found.setdefault(name, protocol) != protocol:
            raise ConfigError(f"listener.security.protocol.map is {text!r}; it names {name} twice")
    return found
