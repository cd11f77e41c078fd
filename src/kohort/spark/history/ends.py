"""Where the logs of the topics ended, and when: the lag is this end less the committed offset.

`__consumer_offsets` does not contain it. In a running cluster (ListOffsets), the offset of the first record at or after
an instant is the end of the log at that instant, as far as the records' timestamps ascend and for as long as the
records are kept. Between two known instants the log is assumed to have grown evenly.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from kohort.spark.files.arrow import file_system
from kohort.spark.history.decoding.columns import TIME, Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.store import HistoryFailed
from kohort.spark.history.tables.columns import dense, encoded, instants, milliseconds
from kohort.spark.history.tables.commits import Places
from kohort.spark.history.tables.spans import codes

TopicPartition = tuple[str, int]
COLUMNS = ("topic", "partition", "at", "end")


class Ends:
    """The ends of partitions over time."""

    def __init__(self, series: dict[TopicPartition, tuple[Numbers, Numbers]]) -> None:
        self.series = series
        """For each partition instants in milliseconds, ascending, and the ends at them."""

    @classmethod
    def of(cls, table: pa.Table) -> Ends:
        """Ends from a table with the columns topic, partition, at (an instant), end. ValueError if one is missing."""
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise ValueError(f"the log ends lack {', '.join(missing)}; they have {', '.join(table.column_names)}")
        topic, names = encoded(table.column("topic"))
        partition, end = dense(table.column("partition")), dense(table.column("end"))
        at = milliseconds(table.column("at"))
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

    def extended(self, newer: Ends) -> Ends:
        """The newer ends, and these ends for the time before them, whose records retention may have deleted."""
        series = dict(self.series)
        for place, (at, end) in newer.series.items():
            if place in series:
                old_at, old_end = series[place]
                kept = old_at < at[0]
                at, end = np.concatenate([old_at[kept], at]), np.concatenate([old_end[kept], end])
            series[place] = (at, end)
        return Ends(series)

    def at(self, places: Places, times: Numbers) -> Numbers:
        """The log's end for each place (row) and instant (column); NOTHING if not known."""
        each, first = codes(places.topics, places.partitions)
        names = places.topic_names.to_pylist()
        found = np.full((len(first), len(times)), NOTHING)
        for number, row in enumerate(first.tolist()):
            known = self.series.get((names[places.topics[row]], int(places.partitions[row])))
            if known is not None:
                found[number] = _between(*known, times)
        return found[each]


def _between(at: Numbers, ends: Numbers, times: Numbers) -> Numbers:
    known = (times >= at[0]) & (times <= at[-1])
    return np.where(known, np.interp(times, at, ends).astype(np.int64), NOTHING)


def _joined(arrays: Iterable[Numbers]) -> Numbers:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def read_ends(address: str) -> Ends:
    """The ends in a Parquet or CSV file. Raises HistoryFailed, which names the file."""
    try:
        return Ends.of(_read_table(address))
    except (OSError, ValueError) as error:  # pyarrow's errors of format and type are ValueErrors
        raise HistoryFailed(f"{address}: {error}") from None


def _read_table(address: str) -> pa.Table:
    """The table of a file; in its column `at` integers, which are milliseconds, become instants."""
    system, path = file_system(address)
    with system.open_input_file(path) as file:
        read = pyarrow.csv.read_csv(file) if path.endswith(".csv") else pq.read_table(file)
    if "at" in read.column_names and pa.types.is_integer(read.schema.field("at").type):
        instant = pc.multiply(read.column("at"), 1000).cast(TIME)
        read = read.set_column(read.column_names.index("at"), "at", instant)
    return read
