"""The facts of one progress report of a streaming query. Without Spark.

Spark gives offsets as JSON texts. Those of this package's source and of Spark's own Kafka source have the same form;
what other sources give has no positions, so their queries have no lag.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohort.client.metadata import TopicPartition
from kohort.spark.source.positions import Positions, from_json

Lags = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one finished batch, or of an idle moment."""

    query: str
    """The query's name, or its id if it has none."""
    batch: int
    rows: int
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    """By Spark's names of the phases: triggerExecution is all of them."""
    lags: Lags = field(default_factory=dict)
    """Records that the query has not read, by partition, as far as a source told its ends."""

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


def lags_of(sources: Iterable[tuple[str | None, str | None]]) -> Lags:
    """The lags by partition. `sources`: the end of the batch and the end of the logs, of each source, as JSON."""
    found: Lags = {}
    for reached, latest in sources:
        ends = _positions(latest)
        read = _positions(reached)
        for place in ends.keys() & read.keys():
            found[place] = found.get(place, 0) + max(ends[place] - read[place], 0)
    return found


def _positions(text: str | None) -> Positions:
    try:
        return from_json(json.loads(text or "{}"))
    except (ValueError, TypeError, AttributeError):
        return {}


def line_of(facts: Facts) -> str:
    """A line for a log: `query ingest, batch 12: 3,000 rows in 1.2 s (commit 0.1 s); lag 120 in 4 partitions, …`."""
    took = facts.durations_ms.get("triggerExecution", 0) / 1000
    committed = (facts.durations_ms.get("commitOffsets", 0) + facts.durations_ms.get("commitBatch", 0)) / 1000
    line = f"query {facts.query}, batch {facts.batch}: {facts.rows:,} rows in {took:.1f} s (commit {committed:.1f} s)"
    if not facts.lags:
        return line
    behind = {place: lag for place, lag in facts.lags.items() if lag}
    if not behind:
        return f"{line}; no lag"
    topic, partition = most = max(behind, key=lambda place: (behind[place], place))
    return f"{line}; lag {facts.lag:,} in {len(behind)} partitions, most in {topic}-{partition}: {behind[most]:,}"
