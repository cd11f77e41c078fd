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
"""Members of one connection; the last ones count."""
MOST_BYTES = 4_096
"""Of all heartbeats of a connection."""
CORRELATED = 12
"""Bytes of a request up to the end of its correlation id."""


class Sessions:
    def __init__(self, beat_s: float) -> None:
        """`beat_s`: how often a heartbeat is repeated, in seconds."""
        self._beat_s = beat_s
        self._heartbeats: dict[bytes, bytes] = {}
        """The last Heartbeat of each member: its beginning, by what follows the correlation id."""
        self._bytes = 0
        self._is_stuck = False
        self._stuck_since = self._beaten_at = 0.0

    def saw(self, request: Request, data: bytes) -> None:
        """A request to the coordinator; `data` may lack its end."""
        if request.key in (JOIN_GROUP, LEAVE_GROUP):
            self._heartbeats.clear()
            self._bytes = 0
        elif request.key == HEARTBEAT and int.from_bytes(data[:4], "big") == len(data) - 4 <= MOST_BYTES:
            member = data[CORRELATED:]
            if self._heartbeats.pop(member, None) is None:
                self._bytes += len(data)
            self._heartbeats[member] = data[:CORRELATED]
            while len(self._heartbeats) > MOST_MEMBERS or self._bytes > MOST_BYTES:
                oldest = next(iter(self._heartbeats))
                self._bytes -= len(oldest) + len(self._heartbeats.pop(oldest))

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
        return [beginning + member for member, beginning in self._heartbeats.items()]


def correlation_id_of(request: bytes) -> int:
    return int.from_bytes(request[CORRELATED - 4 : CORRELATED], "big", signed=True)
