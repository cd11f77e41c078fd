"""The address that the console listens on. It is a loopback address, because the console has no login yet."""

from __future__ import annotations

import ipaddress
import socket

NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
"""Hosts in requests that are served; others may be a name that an attacker's DNS gives to 127.0.0.1."""


def parse(listen: str) -> tuple[str, int]:
    """ "HOST:PORT" of a loopback address. Raises ValueError, which says what is wrong."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{listen!r} is not HOST:PORT")
    if not is_loopback(host):
        raise ValueError(
            f"{listen!r} can be reached from other machines, and the console has no login yet: listen on 127.0.0.1, "
            "and use a tunnel (ssh -L 8090:127.0.0.1:8090 HOST) or a proxy with a login on this machine (--allow-host)"
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_socket(host: str, port: int) -> socket.socket:
    """Raises OSError, for example if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
