"""The leaders in answers with NOT_LEADER_OR_FOLLOWER, so that a client need not ask for metadata (KIP-951)."""

from __future__ import annotations

from kohort.broker.nodes import Node
from kohort.broker.state import BrokerState


class CurrentLeaders:
    """Collects them, each once."""

    def __init__(self, state: BrokerState, listener: str) -> None:
        self._known = state.nodes_by_listener.at(listener)
        self._ids: dict[int, None] = {}

    def add(self, broker_id: int) -> None:
        self._ids[broker_id] = None

    def nodes(self) -> list[Node]:
        """Those that the clients of the listener can reach."""
        return [self._known[broker_id] for broker_id in self._ids if broker_id in self._known]
