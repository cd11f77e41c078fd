"""The newest connections on which producers have committed offsets of groups, to know requests that come late.

Below version 5 of TxnOffsetCommit, all transactions of a producer have one epoch, so nothing in a request says which of
them it belongs to. A client has one connection to a broker at a time, and sends a request again on a new one. So what
arrives on an older connection than the producer has used since is a copy of an earlier transaction's request
(docs/decisions/0018-late-requests-of-old-connections.md).
"""

from __future__ import annotations

from kohort.broker.turn import ConnectionId

MOST_PRODUCERS = 5_000
"""Those that have committed offsets last. A late request of another one is served, as in Kafka."""


class NewestConnections:
    def __init__(self) -> None:
        self._newest: dict[tuple[int, int], tuple[int, ConnectionId]] = {}
        """By producer id and broker: epoch and connection. The one that was used last is the last."""

    def is_late(self, producer_id: int, epoch: int, broker_id: int, connection: ConnectionId) -> bool:
        """Whether the producer has committed offsets on a newer connection to the broker, or at a newer epoch. If not,
        this connection is the newest from now on."""
        newest = self._newest.pop((producer_id, broker_id), (epoch, connection))
        is_late = (epoch, connection) < newest
        self._newest[producer_id, broker_id] = newest if is_late else (epoch, connection)
        if len(self._newest) > MOST_PRODUCERS:
            del self._newest[next(iter(self._newest))]
        return is_late
