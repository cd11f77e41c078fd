"""The bytes of an HTTP/1.1 request to what is asked, and what is refused. Hostile input gives `Refused`, nothing else.

The listener knows no login, so a page in a browser must not reach it through a name of its own that leads to
127.0.0.1 (DNS rebinding): a listener on a loopback address answers only to addresses and to names of this machine.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

HEAD_BYTES = 8_192
"""The longest request line and header."""
END = b"\r\n\r\n"

_LINE = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.([01])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n\0]*)")
"""Takes time in proportion to the line: spaces around the value are no parts of the pattern."""


class Request(NamedTuple):
    method: str
    path: str
    accept: str


class Refused(Exception):
    """The request gets this status and text, and its connection is closed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def read_request(head: bytes, hosts: frozenset[str] | None) -> Request:
    """`head`: everything before the empty line. `hosts`: the names that the Host field may have besides addresses;
    None: any. Raises Refused."""
    line, *rest = head.split(b"\r\n")
    match = _LINE.fullmatch(line)
    if match is None:
        raise Refused(400, "this is not an HTTP/1.1 request")
    fields: dict[bytes, bytes] = {}
    for text in rest:
        field = _FIELD.fullmatch(text)
        if field is None:
            raise Refused(400, "a header field is malformed")
        name = field[1].lower()
        if name == b"host" and name in fields:
            raise Refused(400, "the request has two Host fields")
        fields[name] = field[2].strip(b" \t")
    host = fields.get(b"host")
    if host is None and match[3] == b"1":
        raise Refused(400, "the request has no Host field")
    if host is not None and hosts is not None and not _is_ours(host.decode("latin-1"), hosts):
        raise Refused(403, "the Host field names another host; use an address or localhost")
    method = match[1].decode()
    if method not in ("GET", "HEAD"):
        raise Refused(405, "only GET and HEAD are served")
    path = match[2].decode().partition("?")[0]
    return Request(method, path, fields.get(b"accept", b"").decode("latin-1"))


def _is_ours(host: str, hosts: frozenset[str]) -> bool:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]*))(?::\d{1,5})?", host)
    if match is None:
        return False
    name = (match[1] or match[2] or "").lower().rstrip(".")
    if name in hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def wants_open_metrics(accept: str) -> bool:
    """True if the client would rather have OpenMetrics 1.0 than the older text (RFC 9110, 12.5.1)."""
    best = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        given = dict(word.partition("=")[::2] for word in parameters)
        if kind in best and given.get("version", "1.0.0") in ("1.0.0", "0.0.4"):
            best[kind] = max(best[kind], _quality(given.get("q", "1")))
    return best["application/openmetrics-text"] > 0 and best["application/openmetrics-text"] >= best["text/plain"]


def _quality(text: str) -> float:
    return float(text) if re.fullmatch(r"[01](\.\d{0,3})?", text) else 0.0
