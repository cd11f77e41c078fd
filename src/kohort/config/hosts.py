"""Limits of single addresses: HOST:NUMBER, comma separated, as in `max.connections.per.ip.overrides`.

Host names are looked up once, at the start, because a look-up may take long.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from functools import lru_cache

from kohort.config.declaration import INT_MAX

HOST = r"[0-9A-Za-z\-%._:]+"
"""Source: Utils.validHostPattern."""


@lru_cache(maxsize=64)
def per_host(text: str) -> Mapping[str, int]:
    """The limit of each host; an address is written in one way. Raises ValueError."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, number = part.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        is_host = _is_address(host) or (re.fullmatch(HOST, host) and ":" not in host)
        if not is_host or not re.fullmatch(r"\s*[0-9]{1,10}", number) or int(number) > INT_MAX:
            raise ValueError("it takes ADDRESS:CONNECTIONS, comma separated")
        found[_canonical(host)] = int(number)
    return found


def names_of(text: str) -> list[str]:
    """The hosts that are names, not addresses."""
    return [host for host in per_host(text) if not _is_address(host)]


def with_addresses(text: str) -> str:
    """The same with addresses for names. Blocks. Raises OSError for a name that has none."""
    if not names_of(text):
        return text
    found: dict[str, int] = {}
    for host, number in per_host(text).items():
        places = [host] if _is_address(host) else [str(where[0]) for *_, where in socket.getaddrinfo(host, None)]
        found.update((_canonical(place), number) for place in places)
    return ",".join(f"{host}:{number}" for host, number in found.items())


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _canonical(host: str) -> str:
    """An address as the system writes it; IPv4 as such where IPv6 stands for it."""
    if not _is_address(host):
        return host
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
