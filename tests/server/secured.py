"""What tests of TLS and SASL share: certificates in files, raw TLS clients."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Any

from own_certificates import Issued, authority, issue, written

CA = authority()
OTHER_CA = authority("another authority")
SERVER = issue(CA, "localhost", "127.0.0.1")


def private(folder: Path, name: str, content: str | bytes) -> str:
    path = written(folder, name, content)
    os.chmod(path, 0o600)
    return path


def key_file(folder: Path, issued: Issued = SERVER, name: str = "server.pem") -> str:
    return private(folder, name, issued.certificate_pem + issued.key_pem)


def ca_file(folder: Path, ca: Issued = CA) -> str:
    return written(folder, "ca.pem", ca.certificate_pem)


def client_context(ca: Issued = CA, own: Issued | None = None, folder: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.certificate_pem)
    if own is not None and folder is not None:
        context.load_cert_chain(key_file(folder, own, "client.pem"))
    return context


def connected(address: str, context: ssl.SSLContext, host: str = "localhost", timeout: float = 10) -> ssl.SSLSocket:
    where, _, port = address.rpartition(":")
    plain = socket.create_connection((where, int(port)), timeout)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def tls_settings(folder: Path, **settings: Any) -> dict[str, Any]:
    """Settings of a KohortServer with one TLS listener."""
    return {"listeners": "SSL://127.0.0.1:0", "ssl_keystore_location": key_file(folder), **settings}


def closed(sock: socket.socket) -> bool:
    """The server has closed the connection (waits for it)."""
    try:
        return sock.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True
    except TimeoutError:
        return False
