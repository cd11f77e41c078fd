"""Where the logs of the topics ended, and when: what commits are compared with to know a lag.

`__consumer_offsets` does not know it. A cluster that runs is asked with ListOffsets, for instants of the past too: the
first record at or after an instant stands where the log ended then. So the end at an instant follows the records'
timestamps, as far as these are in order, and is known for as long as the records are kept. Between two instants that
were asked for it is taken to have grown evenly.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.tables.commits import Places, dense, encoded, instants, milliseconds
from kohort.spark.history.tables.spans import codes

TopicPartition = tuple[str, int]
COLUMNS = ("topic", "partition", "at", "end")


class Ends:
    """The ends of partitions over time."""

    def __init__(self, series: dict[TopicPartition, tuple[Numbers, Numbers]]) -> None:
        self.series = series
        """Of each partition instants in milliseconds, ascending, and its ends then."""

    @classmethod
    def of(cls, table: pa.Table) -> Ends:
        """From a table of topic, partition, at (an instant) and end. Raises ValueError where it has other columns."""
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise ValueError(f"the log ends lack {', '.join(missing)}; they have {', '.join(table.column_names)}")
        topic, names = encoded(table.column("topic"))
        partition, at, end = (
            dense(table.column("partition")),
            milliseconds(table.column("at")),
            dense(table.column("end")),
        )
        place, first = codes(topic, partition)
        order = np.lexsort((at, place))
        edges = np.searchsorted(place[order], np.arange(len(first) + 1))
        texts = names.to_pylist()
        series = {}
        for number, row in enumerate(first.tolist()):
            mine = order[edges[number] : edges[number + 1]]
            mine = mine[end[mine] >= 0]
            if len(mine):
                series[texts[topic[row]], int(partition[row])] = (at[mine], end[mine])
        return cls(series)

    def table(self) -> pa.Table:
        """The table `log_ends`."""
        places = sorted(self.series)
        counts = [len(self.series[place][0]) for place in places]
        return pa.table(
            {
                "topic": pa.array(np.repeat(np.array([p[0] for p in places], object), counts), pa.string()),
                "partition": pa.array(np.repeat(np.array([p[1] for p in places], np.int32), counts), pa.int32()),
                "at": instants(_joined([self.series[place][0] for place in places])),
                "end": pa.array(_joined([self.series[place][1] for place in places]), pa.int64()),
            }
        )

    def at(self, places: Places, times: Numbers) -> Numbers:
        """Of each place (row) and instant (column) the log's end; NOTHING outside of what is known."""
        found = np.full((len(places), len(times)), NOTHING)
        rows: dict[TopicPartition, Numbers | None] = {}
        for row, (_, topic, partition) in enumerate(places.names()):
            key = topic, partition
            if key not in rows:
                known = self.series.get(key)
                rows[key] = None if known is None else _between(*known, times)
            line = rows[key]
            if line is not None:
                found[row] = line
        return found


def _between(at: Numbers, ends: Numbers, times: Numbers) -> Numbers:
    known = (times >= at[0]) & (times <= at[-1])
    return np.where(known, np.interp(times, at, ends).astype(np.int64), NOTHING)


def _joined(arrays: Iterable[Numbers]) -> Numbers:
    return np.concatenate([np.zeros(0, np.int64), *arrays])
