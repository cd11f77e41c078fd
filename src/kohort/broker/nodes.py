"""The brokers of this process, as clients see them."""

from __future__ import annotations

import msgspec


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """The address at which clients reach a broker."""

    host: str
    port: int
    rack: str | None = None


class Node(msgspec.Struct, frozen=True, gc=False):
    id: int
    host: str
    port: int
    rack: str | None
