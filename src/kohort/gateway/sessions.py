"""The sessions of classic members whose heartbeats a link keeps waiting. Without IO.

A client sends its next heartbeat after the answer to the last one. On a connection that also has requests for an
upstream broker which stalls, that answer waits, because answers keep their order; or the client is not read at all. The
coordinator is well meanwhile, and so is the member: before Kafka its session would last, because the coordinator is
another broker. So its last heartbeat is repeated as long as its connection is open, for KEPT_S at most. The answers to
these are dropped; the client gets the one to its own.

Members of the consumer protocol (KIP-848) need none of this: a heartbeat of theirs may bring an assignment, which must
not be dropped, and their clients have a connection for the coordinator alone.
"""

from __future__ import annotations

from kohort.gateway.requests import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, Request

KEPT_S = 60.0
MOST_MEMBERS = 16
"""Members of one connection."""
MOST_BYTES = 4_096
"""Of a heartbeat."""
CORRELATED = 12
"""Bytes of a request up to the end of its correlation id."""


class Sessions:
    def __init__(self, beat_s: float) -> None:
        """`beat_s`: how often a heartbeat is repeated, in seconds."""
        self._beat_s = beat_s
        self._heartbeats: dict[bytes, bytes] = {}
        """The last Heartbeat of each member, by what follows the correlation id."""
        self._is_stuck = False
        self._stuck_since = self._beaten_at = 0.0

    def saw(self, request: Request, data: bytes) -> None:
        """A request to the coordinator; `data` may lack its end."""
        if request.key in (JOIN_GROUP, LEAVE_GROUP):
            self._heartbeats.clear()
        elif request.key == HEARTBEAT and int.from_bytes(data[:4], "big") == len(data) - 4 <= MOST_BYTES:
            member = data[CORRELATED:]
            if member in self._heartbeats or len(self._heartbeats) < MOST_MEMBERS:
                self._heartbeats[member] = data

    def due(self, now: float, *, is_stuck: bool) -> list[bytes]:
        """The heartbeats to repeat now. `is_stuck`: the members wait for the link."""
        if not is_stuck or not self._heartbeats:
            self._is_stuck = False
            return []
        if not self._is_stuck:
            self._is_stuck = True
            self._stuck_since = self._beaten_at = now
        if now < self._beaten_at + self._beat_s or now > self._stuck_since + KEPT_S:
            return []
        self._beaten_at = now
        return list(self._heartbeats.values())


def correlation_id_of(request: bytes) -> int:
    return int.from_bytes(request[CORRELATED - 4 : CORRELATED], "big", signed=True)
