"""The common part of both streaming readers: the planner, the time of the next micro-batch, and its largest size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kohort.spark.options.source import Options
from kohort.spark.options.values import OptionError
from kohort.spark.source.planner import Planner
from kohort.spark.source.positions import Positions
from kohort.spark.source.tasks import read_task

IDLE_S = 0.1
"""The interval of requests to the cluster. Without new offsets Spark asks for them a hundred times a second."""


class PacedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The planning state stays in the query's planning process and is never pickled."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planner: Planner | None = None
        self._target: Positions | None = None
        """Where an availableNow run ends; set when it begins."""
        self._latest: Positions = {}
        self._idle_since = 0.0
        self._last_batch_at: float | None = None
        self._commit_expected = False
        """True if Spark will call commit() before it plans the tasks of the new batch."""

    def __reduce__(self) -> Any:
        return type(self), (self._options,)

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def prepareForTriggerAvailableNow(self) -> None:
        # Losses are reported later, once it is known whether the query had reached the missing offsets.
        self._target = self.planner.all_ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadMinRows(least) if least is not None else ReadAllAvailable()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self._options, partition)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _wait_while_idle(self) -> None:
        time.sleep(max(0.0, self._idle_since + IDLE_S - time.monotonic()))
        self._idle_since = time.monotonic()

    def _too_few(self, begin: Positions, ends: Positions, limit: ReadLimit) -> bool:
        """True if the batch must wait for more records: minOffsetsPerTrigger, for at most maxTriggerDelay."""
        least = self._options.min_offsets_per_trigger
        if self._target is not None or least is None or isinstance(limit, ReadAllAvailable):
            return False
        delay_s = self._options.max_trigger_delay_ms / 1000
        if self._last_batch_at is None or time.monotonic() - self._last_batch_at >= delay_s:
            return False
        return sum(max(offset - begin[place], 0) for place, offset in ends.items()) < least

    def _batch_planned(self, *, first: bool) -> None:
        self._idle_since = 0.0
        self._last_batch_at = time.monotonic()
        self._commit_expected = not first

    def _check_commit_called(self) -> None:
        """Call this when Spark plans the tasks of a new batch. Raises OptionError."""
        if self._commit_expected:
            raise OptionError(
                "asynchronous progress tracking (asyncProgressTrackingEnabled) is not supported: the group's offsets "
                "could get ahead of the checkpoint"
            )
