"""HTTP over a raw socket, and the numbers of /metrics."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def said(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    parts = []
    while True:
        try:
            part = connection.recv(65_536)
        except ConnectionError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def ask(address: str, page: str = "/metrics", accept: str = "", method: str = "GET") -> tuple[int, str, str]:
    """The status, the header and the body."""
    with connected(address) as connection:
        fields = f"Host: {address}\r\n" + (f"Accept: {accept}\r\n" if accept else "")
        connection.sendall(f"{method} {page} HTTP/1.1\r\n{fields}\r\n".encode())
        return parts_of(said(connection))


def parts_of(answer: bytes) -> tuple[int, str, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head.decode(), body.decode()


def numbers(address: str, accept: str = "") -> Numbers:
    """The samples of /metrics by name and labels, as an independent parser reads them."""
    status, _, text = ask(address, accept=accept)
    assert status == 200, text
    read = read_open_metrics if accept else read_text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in read(text)
        for sample in family.samples
    }


def value(found: Numbers, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def of(found: Numbers, name: str) -> Mapping[frozenset[tuple[str, str]], float]:
    """All series of a name, by their labels."""
    return {labels: number for (other, labels), number in found.items() if other == name}
