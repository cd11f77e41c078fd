"""Addresses of listeners: HOST:PORT, or NAME://HOST:PORT for a listener with a name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kohort.config.declaration import ConfigError

PLAINTEXT = "PLAINTEXT"
"""The name of a listener without a name, and the protocol without TLS and SASL."""
ANYWHERE = ("", "0.0.0.0", "::")
"""Hosts that stand for all addresses of the machine."""


class Address(NamedTuple):
    """HOST:PORT of a listener. The host "" means all addresses of the machine; the port -1 means that no port was
    given."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port < 0 else f"{host}:{self.port}"


def addresses(setting: str, text: str) -> list[tuple[str, Address]]:
    """The names and addresses of a comma separated list; `setting` is the one that an error names.

    CONTROLLER://… is skipped, because kohort has no controllers of their own."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = part.rpartition("://")
        name = name.strip().upper() or PLAINTEXT
        if name == "CONTROLLER":
            continue
        if not re.fullmatch(r"[A-Z0-9][A-Z0-9_.-]*", name):
            raise ConfigError(f"{setting} is {part!r}; the name of a listener has letters, digits, hyphens and periods")
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:/\s]*))(?::(\d{1,5}))?", rest)
        port = int(match[3] or -1) if match else -1
        if match is None or port > 65535 or (port < 0 and setting != "advertised.listeners"):
            raise ConfigError(f"{setting} is {part!r}; it takes HOST:PORT, or [ADDRESS]:PORT for IPv6")
        host = match[1] or match[2] or ""
        if setting == "advertised.listeners" and host in (*ANYWHERE, "*"):
            raise ConfigError(f"{setting} is {part!r}; clients need a host name or address that leads to this machine")
        found.append((name, Address("" if host == "*" else host, port)))
    return found


def one_each(brokers: int, setting: str, text: str) -> dict[str, list[Address]]:
    """For each listener by its name, one address for each broker. A single address means consecutive ports."""
    by_name: dict[str, list[Address]] = {}
    for name, address in addresses(setting, text):
        by_name.setdefault(name, []).append(address)
    each = {name: _one_each(brokers, setting, text, found) for name, found in by_name.items()}
    real = [address for found in each.values() for address in found if address.port > 0]
    if setting == "listeners" and len(set(real)) < len(real):
        raise ConfigError(f"{setting} is {text!r}; it names an address twice")
    return each


def _one_each(brokers: int, setting: str, text: str, found: list[Address]) -> list[Address]:
    if len(found) == 1 and brokers > 1:
        host, port = found[0]
        if port + brokers - 1 > 65535:
            raise ConfigError(f"{setting} is {text!r}; there are no {brokers} consecutive ports from there on")
        return [Address(host, port + index if port > 0 else port) for index in range(brokers)]
    if len(found) != brokers:
        raise ConfigError(f"{setting} names {len(found)} addresses, but brokers is {brokers}; they must agree")
    real = [address for address in found if address.port > 0]
    if len(set(real)) < len(real):
        raise ConfigError(f"{setting} is {text!r}; it names an address twice")
    return found


def spelled_out(by_name: Iterable[tuple[str, Iterable[Address]]]) -> str:
    """The text that `addresses` reads; the name PLAINTEXT is left out."""
    return ",".join(
        str(address) if name == PLAINTEXT else f"{name}://{address}" for name, found in by_name for address in found
    )
