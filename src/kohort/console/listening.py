"""The address that the console listens on. One that other machines reach needs TLS and a login."""

from __future__ import annotations

import ipaddress
import socket

NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
"""Hosts in requests that are served; others may be a name that an attacker's DNS gives to 127.0.0.1."""
ANYWHERE = ("0.0.0.0", "::")


def parse(listen: str) -> tuple[str, int]:
    """ "HOST:PORT". Raises ValueError, which says what is wrong."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise ValueError(f"{listen!r} is not HOST:PORT")
    return host, int(port)


def check_protected(host: str, *, tls: bool, login: bool, changes: bool, may_be_insecure: bool) -> None:
    """Raises ValueError if other machines reach the address and the console is not protected from them."""
    if is_loopback(host):
        return
    if changes and not login:
        raise ValueError(f"{host} can be reached from other machines: with --allow-changes it needs --login, too")
    missing = [flag for flag, given in (("--certificate FILE", tls), ("--login", login)) if not given]
    if missing and not may_be_insecure:
        raise ValueError(
            f"{host} can be reached from other machines, and then the console needs TLS and a login: add "
            f"{' and '.join(missing)}. Or listen on 127.0.0.1, and use a tunnel (ssh -L 8090:127.0.0.1:8090 HOST) or a "
            "proxy on this machine (--allow-host); in a network that you trust, --allow-insecure"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def own_name() -> str:
    """As other machines may name this one."""
    return socket.gethostname().lower()


def open_socket(host: str, port: int) -> socket.socket:
    """Raises OSError, for example if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


def url_of(listening: socket.socket, *, https: bool = False) -> str:
    host, port = listening.getsockname()[:2]
    if host in ANYWHERE:
        host = own_name()
    return f"{'https' if https else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/"
