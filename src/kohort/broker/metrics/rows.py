"""What a scrape has read of a group: its topics, and their partitions."""

from __future__ import annotations

import msgspec

from kohort.broker.lag.lag_times import UNKNOWN
from kohort.broker.logs.partition import Partition
from kohort.broker.turn import Millis


class Row(msgspec.Struct, gc=False):
    """A partition of a topic in which the group has committed."""

    index: int
    offset: int
    """-1: nothing committed."""
    lag: int
    """-1: nothing committed, or no such partition."""
    lag_ms: Millis
    partition: Partition | None = None


class OfTopic(msgspec.Struct):
    name: str
    rows: list[Row]
    offset_sum: int = 0
    lag_sum: int = 0
    max_lag: int = -1
    max_lag_ms: Millis = UNKNOWN
