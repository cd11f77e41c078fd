"""An observer of turns (turn_schedule.py): how long they take, and what they append.

It costs a turn some microseconds, and a heartbeat that needs no turn nothing. A server without /metrics has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kohort.broker.metrics.histograms import Histogram
from kohort.broker.turn import Arrived, Turn
from kohort.storage.protocol import Append


class TurnTimes:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock`: seconds that never go back."""
        self.turns = Histogram()
        self.steps = Histogram()
        self.commits = Histogram()
        self.records: dict[bytes, int] = {}
        """Records appended to each topic, by its id."""
        self.bytes: dict[bytes, int] = {}
        """Bytes appended to each topic, by its id."""
        self._clock = clock
        self._began = 0.0
        self._decided = 0.0

    @property
    def under_way_s(self) -> float:
        """For how long the present turn runs; 0 between turns."""
        return self._clock() - self._began if self._began else 0.0

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        self._began = self._clock()

    def decided(self, turn: Turn) -> None:
        self._decided = self._clock()
        self.steps.add(self._decided - self._began)

    def committed(self, turn: Turn) -> None:
        self.commits.add(self._clock() - self._decided)
        records, sizes = self.records, self.bytes
        for operation in turn.operations:
            if isinstance(operation, Append):
                topic, batches = operation.log.topic_id, operation.batches
                records[topic] = records.get(topic, 0) + batches[-1].last_offset + 1 - batches[0].base_offset
                sizes[topic] = sizes.get(topic, 0) + sum(len(batch.data) for batch in batches)

    def turn_ends(self, turn: Turn) -> None:
        self.turns.add(self._clock() - self._began)
        self._began = 0.0
