"""The brokers of this process, as clients see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """The address at which clients reach a broker."""

    host: str
    port: int
    rack: str | None = None
    by_listener: Mapping[str, tuple[str, int]] | None = None
    """Host and port by the name of a listener. None: every listener's clients get `host` and `port`."""


class Node(msgspec.Struct, frozen=True, gc=False):
    id: int
    host: str
    port: int
    rack: str | None
    by_listener: Mapping[str, tuple[str, int]] | None = None


def nodes_of(first_id: int, endpoints: Sequence[Endpoint]) -> list[Node]:
    """The brokers at these endpoints."""
    return [
        Node(first_id + index, endpoint.host, endpoint.port, endpoint.rack, endpoint.by_listener)
        for index, endpoint in enumerate(endpoints)
    ]


class NodesByListener:
    """The brokers with the addresses that the clients of a listener get."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._found: dict[str, dict[int, Node]] = {}

    def at(self, listener: str) -> Mapping[int, Node]:
        """The brokers by their ids. A broker without an address of this listener is not among them."""
        found = self._found.get(listener)
        if found is None:
            found = self._found[listener] = {
                node.id: moved for node in self._nodes if (moved := _moved(node, listener)) is not None
            }
        return found


def _moved(node: Node, listener: str) -> Node | None:
    if node.by_listener is None:
        return node
    place = node.by_listener.get(listener)
    return None if place is None else Node(node.id, *place, node.rack)
