"""When Spark gets the next micro-batch, and how large it may be. Both streaming readers use this."""

from __future__ import annotations

import time

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from kohort.spark.options.source import Options
from kohort.spark.options.values import OptionError
from kohort.spark.source.positions import Positions

IDLE_S = 0.1
"""Without new offsets, Spark asks for them a hundred times a second; the cluster is asked this often."""


class Pacing:
    """The state of one planning process."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._idle_since = 0.0
        self._last_batch_at: float | None = None
        self._commit_expected = False
        """True if Spark will call commit() before it plans the tasks of the new batch."""

    def read_limit(self) -> ReadLimit:
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadMinRows(least) if least is not None else ReadAllAvailable()

    def wait_while_idle(self) -> None:
        time.sleep(max(0.0, self._idle_since + IDLE_S - time.monotonic()))
        self._idle_since = time.monotonic()

    def too_few(self, begin: Positions, ends: Positions, limit: ReadLimit) -> bool:
        """True if the batch must wait for more records: minOffsetsPerTrigger, for at most maxTriggerDelay."""
        least = self._options.min_offsets_per_trigger
        if least is None or isinstance(limit, ReadAllAvailable):
            return False
        delay_s = self._options.max_trigger_delay_ms / 1000
        if self._last_batch_at is None or time.monotonic() - self._last_batch_at >= delay_s:
            return False
        return sum(max(offset - begin[place], 0) for place, offset in ends.items()) < least

    def batch_planned(self, *, first: bool) -> None:
        self._idle_since = 0.0
        self._last_batch_at = time.monotonic()
        self._commit_expected = not first

    def commit_called(self) -> None:
        self._commit_expected = False

    def check_commit_called(self) -> None:
        """Call this when Spark plans the tasks of a new batch. Raises OptionError."""
        if self._commit_expected:
            raise OptionError(
                "asynchronous progress tracking (asyncProgressTrackingEnabled) is not supported: the group's offsets "
                "could get ahead of the checkpoint"
            )
