"""Addresses of listeners, HOST:PORT."""

from __future__ import annotations

import re
from typing import NamedTuple

from kohort.config.settings import ConfigError


class Address(NamedTuple):
    """HOST:PORT of a listener. The host "" means all addresses of the machine; the port -1 means that no port was
    given."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port < 0 else f"{host}:{self.port}"


def addresses(name: str, text: str) -> list[Address]:
    """The addresses of a comma separated list; `name` is the setting that an error blames.

    Also takes Kafka's notation PLAINTEXT://HOST:PORT; CONTROLLER://… is skipped."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        protocol, slashes, rest = part.rpartition("://")
        if protocol == "CONTROLLER":
            continue
        if slashes and protocol != "PLAINTEXT":
            raise ConfigError(f"{name} is {part!r}; kohort speaks PLAINTEXT only, no TLS or SASL yet")
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:/\s]*))(?::(\d{1,5}))?", rest)
        port = int(match[3] or -1) if match else -1
        if match is None or port > 65535 or (port < 0 and name != "advertised.listeners"):
            raise ConfigError(f"{name} is {part!r}; it takes HOST:PORT, or [ADDRESS]:PORT for IPv6")
        host = match[1] or match[2] or ""
        if name == "advertised.listeners" and host in ("", "*", "0.0.0.0", "::"):
            raise ConfigError(f"{name} is {part!r}; clients need a host name or address that leads to this machine")
        found.append(Address("" if host == "*" else host, port))
    return found


def one_each(brokers: int, name: str, text: str) -> list[Address]:
    """One address for each broker. A single address means consecutive ports."""
    found = addresses(name, text)
    if not found and name == "advertised.listeners":
        return []
    if len(found) == 1 and brokers > 1:
        host, port = found[0]
        if port + brokers - 1 > 65535:
            raise ConfigError(f"{name} is {text!r}; there are no {brokers} consecutive ports from there on")
        return [Address(host, port + index if port > 0 else port) for index in range(brokers)]
    if len(found) != brokers:
        raise ConfigError(f"{name} names {len(found)} addresses, but brokers is {brokers}; they must agree")
    real = [address for address in found if address.port > 0]
    if len(set(real)) < len(real):
        raise ConfigError(f"{name} is {text!r}; it names an address twice")
    return found
