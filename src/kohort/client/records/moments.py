"""Moments of a log, as ListOffsets knows them: a time, or an end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import EARLIEST, LATEST, MAX_TIMESTAMP

Moment = int | Literal["earliest", "latest", "max-timestamp"]
"""Milliseconds since 1970, or an end of the log."""

_ENDS = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": MAX_TIMESTAMP}


def timestamps(
    partitions: Iterable[TopicPartition], at: Moment | Mapping[TopicPartition, Moment]
) -> dict[TopicPartition, int]:
    """The timestamp of a request for each partition, at a moment or at each partition's own."""
    moments = {partition: at[partition] if isinstance(at, Mapping) else at for partition in partitions}
    return {partition: _ENDS[moment] if isinstance(moment, str) else moment for partition, moment in moments.items()}
