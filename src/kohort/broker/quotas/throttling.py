"""Throttling (KIP-219): an answer above a quota leaves at once, with the time for which its connection is muted.

A muted connection is not read, and its next requests wait in its backlog. Nobody else waits. The broker serves a
connection again when its time is over (`unmute_due`), which is a deadline like others. A client that
closes its connection is not muted any more: its last changes are handled.

Quotas never end the session of a member whose client sends its heartbeats (`Deviations.short_mutes`; Kafka promises
nothing of the kind). A connection with heartbeats is muted for a second at a time. After that, the requests before
a heartbeat that waits are handled without a mute in between.

The time of requests is measured by the edge's stopwatch, because the broker's clock stands still in a turn. From a
`begin` to the next one, or to `end`, the time belongs to one connection; what an answer takes after its throttle time
is known counts for the next one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import islice
from typing import Any

from kohort.broker.connection import Connection
from kohort.broker.messages import changed
from kohort.broker.quotas.entities import FETCH, PRODUCE
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.broker.turn import ConnectionId, Millis, Mute
from kohort.wire.schemas.fetch import FetchResponse
from kohort.wire.schemas.share_fetch import ShareFetchResponse

PRODUCE_KEY, FETCH_KEY, SHARE_FETCH_KEY = 0, 1, 78
NOT_COUNTED = frozenset((27,))
"""The keys of the APIs whose time does not count: those of other brokers."""
OF_MEMBERS = frozenset((11, 12, 14, 68, 76))
"""The keys of the APIs by which a member stays in its group."""
MEMBER_MS = 1_000
"""A connection on which a member sends heartbeats is muted for no longer at a time."""
MOST_GRACE = 100
"""Requests before a heartbeat that do not mute such a connection."""
PARTITION_BYTES = 40
"""What a partition takes in the answer to a Fetch, about, besides its records."""


class Throttling:
    def __init__(self, state: BrokerState, stopwatch: Callable[[], int]) -> None:
        """`stopwatch` returns nanoseconds; only differences count."""
        self._state = state
        self._quotas = state.catalog.quotas
        self._stopwatch = stopwatch
        self._mark = 0
        self._serving: Connection | None = None
        self._muted: dict[ConnectionId, tuple[Connection, Millis]] = {}
        self._heap: list[tuple[Millis, ConnectionId]] = []

    # -- time

    def begin(self, connection: Connection) -> None:
        """A request of this connection, or the next step of its answer, is handled now."""
        self._lap()
        self._serving = connection

    def end(self) -> None:
        """What follows belongs to no connection."""
        self._lap()
        self._serving = None

    def _lap(self) -> None:
        now = self._stopwatch()
        if self._serving is not None:
            self._serving.spent_ns += now - self._mark
        self._mark = now

    # -- answers

    def throttled(self, connection: Connection, context: RequestContext, answer: Any) -> Any:
        """Count the request. Returns the answer to send; `answer` is None if there is none."""
        meters, now = self._state.meters, self._state.now
        who = context.broker_id, connection.principal.name, context.client.client_id
        delay, fetched = context.throttle_ms, 0
        if context.api_key in OF_MEMBERS:
            connection.has_member = True
        if connection.grace:
            connection.grace -= 1
            is_muted = False
        else:
            is_muted = not connection.closing
        if context.api_key == PRODUCE_KEY:
            delay = max(delay, meters.charge(PRODUCE, *who, context.size, now))
        elif context.api_key == FETCH_KEY and not answer.error_code:
            fetched = _size(answer)
            delay = max(delay, meters.charge(FETCH, *who, fetched, now))
        elif context.api_key == SHARE_FETCH_KEY and not answer.error_code:
            # Its records are locked for the member, so they are not held back: the next request waits longer.
            delay = max(delay, meters.charge(FETCH, *who, _size(answer), now))
        if self._quotas.counts_time:
            self._lap()
            spent, connection.spent_ns = connection.spent_ns, 0
            if answer is not None and context.api_key not in NOT_COUNTED:
                delay = max(delay, meters.charge_time(*who, spent, now))
        if not delay:
            return answer
        if fetched:
            meters.take_back(FETCH, *who, fetched, now)
            answer = FetchResponse(responses=())
        if connection.has_member and self._state.config.deviations.short_mutes:
            delay = min(delay, MEMBER_MS)
        if is_muted:
            self._mute(connection, delay)
        if answer is None or "throttle_time_ms" not in answer.__struct_fields__:
            return answer
        return changed(answer, throttle_time_ms=delay)

    # -- mutes

    def _mute(self, connection: Connection, delay: Millis) -> None:
        until = self._state.now + delay
        connection.is_muted = True
        self._muted[connection.id] = connection, until
        heapq.heappush(self._heap, (until, connection.id))
        if len(self._heap) > 2 * len(self._muted) + 64:  # most of them are closed
            self._heap = [(deadline, muted) for muted, (_, deadline) in self._muted.items()]
            heapq.heapify(self._heap)
        self._state.turn.mutes.append(Mute(connection.id, muted=True))

    def forget(self, connection: Connection) -> None:
        """It is closed, and waits no longer."""
        connection.is_muted = False
        self._muted.pop(connection.id, None)

    def next_deadline(self) -> Millis | None:
        heap = self._heap
        while heap and self._until(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def unmute_due(self, now: Millis) -> list[Connection]:
        """The connections whose time is over."""
        due = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            connection, _ = self._muted.pop(heapq.heappop(self._heap)[1])
            connection.is_muted = False
            connection.wait_from(now)
            if connection.has_member and self._state.config.deviations.short_mutes:
                connection.grace = _before_heartbeat(connection)
            due.append(connection)
            self._state.turn.mutes.append(Mute(connection.id, muted=False))
        return due

    def _until(self, connection: ConnectionId) -> Millis | None:
        found = self._muted.get(connection)
        return found[1] if found is not None else None


def _before_heartbeat(connection: Connection) -> int:
    """How many requests wait before the last one that keeps a member in its group, up to MOST_GRACE."""
    before = 0
    for at, frame in enumerate(islice(connection.backlog, MOST_GRACE + 1)):
        if int.from_bytes(frame[:2], "big") in OF_MEMBERS:
            before = at
    return before


def _size(answer: FetchResponse | ShareFetchResponse) -> int:
    """About the bytes of the answer."""
    size = 0
    for topic in answer.responses:
        for partition in topic.partitions:
            records: Any = partition.records
            size += PARTITION_BYTES + (len(records) if isinstance(records, bytes) else sum(map(len, records or ())))
    return size
