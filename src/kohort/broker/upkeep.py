"""What has to be done now and then: retention and compaction of logs, the expiry of committed offsets.

Work comes in bounded pieces, one a turn, so that no client waits long behind it. A round looks at every partition once;
while a round is under way the broker is busy and is stepped again at once.
"""

from __future__ import annotations

from collections import deque

from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.coordinator.events import ExpireOffsets
from kohort.storage.protocol import LogKey

PARTITIONS_A_TURN = 64
"""How many logs are looked at in one turn."""


class Upkeep:
    def __init__(self, state: BrokerState, now: Millis) -> None:
        self._state = state
        self._logs_due_ms = now + state.config.log_retention_check_interval_ms
        self._offsets_due_ms = now + state.config.offsets_retention_check_interval_ms
        self._logs: deque[LogKey] = deque()
        """Left of the round under way."""

    @property
    def busy(self) -> bool:
        return bool(self._logs)

    def next_deadline(self) -> Millis:
        return min(self._logs_due_ms, self._offsets_due_ms)

    def step(self, now: Millis) -> None:
        state = self._state
        if now >= self._offsets_due_ms:
            self._offsets_due_ms = now + state.config.offsets_retention_check_interval_ms
            for shard in range(len(state.shards)):
                state.ask(shard, ExpireOffsets())
        if now >= self._logs_due_ms:
            self._logs_due_ms = now + state.config.log_retention_check_interval_ms
            self._logs = deque(
                topic.log_key(i) for topic in state.catalog.topics.values() for i in range(len(topic.partitions))
            )
        for _ in range(min(PARTITIONS_A_TURN, len(self._logs))):
            self._look_after(self._logs.popleft(), now)

    def _look_after(self, log: LogKey, now: Millis) -> None:
        pass
