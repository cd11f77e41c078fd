"""Makes a history in this process, without Spark: a log of a million records is read and analysed in seconds.

The records go to the same directory as those that Spark reads, in files of their own; a note keeps where the next run
continues. A directory may change between the two: a record that both have read counts once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from kohort.client.errors import KafkaError
from kohort.spark.arrow.decoder import DECODER_VARIABLE
from kohort.spark.history.decoding.compilation import plain_kernels
from kohort.spark.history.decoding.decode import decode
from kohort.spark.history.decoding.record_files import RecordFiles
from kohort.spark.history.store import HistoryFailed, Store, TooLarge
from kohort.spark.options.source import Options, parse
from kohort.spark.source.planner import DataLoss, open_cluster
from kohort.spark.source.read import Range, read_range

MOST_RECORDS = 1_000_000
"""Of a larger log Spark makes the history, if nobody chooses."""
CONNECTIONS = 4
NOTE = "records/files/notes/log.json"


class LocalEngine:
    records_at_once = 20_000
    """Records of several log partitions that are analysed together, because each analysis takes fifty milliseconds
    however few there are. More would take memory: an analysis has arrays of places by intervals."""

    def __init__(self, most_records: int | None = None) -> None:
        """Above `most_records` it gives up."""
        self._most = most_records

    def read(self, store: Store, source: Mapping[str, str]) -> None:
        """Write the log records that are new since the last run to records/files.

        How many there are only reading says: of a compacted log few offsets are left. Raises TooLarge, HistoryFailed,
        KafkaError.
        """
        options = parse(source)
        note = store / NOTE
        done = {int(index): end for index, end in json.loads(note.read_text()).items()} if note.exists() else {}
        wanted = _ranges(options, done)
        offsets = sum(one.end - one.start for one in wanted)
        with _quick_decoders(offsets), ThreadPoolExecutor(CONNECTIONS) as pool:
            try:
                list(pool.map(partial(_read, store, options, _Count(self._most)), wanted))
            except DataLoss as error:
                raise HistoryFailed(str(error)) from error
        note.write_text(json.dumps(done | {one.partition: one.end for one in wanted}))

    def run(self, work: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
        """Call `do` with each piece of work; returns the results in order."""
        with _quick_decoders(0):
            return [do(one) for one in work]


def _ranges(options: Options, done: Mapping[int, int]) -> list[Range]:
    """The offsets of each log partition that are not read yet."""
    [topic] = options.topics
    with open_cluster(options) as cluster:
        found = cluster.topics([topic])[topic]
        if found.error:
            raise KafkaError(found.error, f"{topic}: {found.error.name}")
        places = [(topic, index) for index in range(len(found.partitions))]
        first = cluster.offsets(places, "earliest")
        end = cluster.offsets(places, "latest", isolation=options.isolation)
    ranges = []
    for place in places:
        start = max(first[place], done.get(place[1], 0))
        if start > end[place]:  # the topic is a new one
            start = first[place]
        if start < end[place]:
            ranges.append(Range(*place, start, end[place]))
    return ranges


class _Count:
    """The records that all threads have read. Two that add at once may count too few, which a limit can bear."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._records = 0

    def add(self, records: int) -> None:
        self._records += records
        if self._most is not None and self._records > self._most:
            raise TooLarge(self._most)


def _read(store: Store, options: Options, count: _Count, wanted: Range) -> None:
    with RecordFiles(store, f"log-{wanted.start}") as files:
        for batch in read_range(options, wanted, partial(decode, dictionaries=True)):
            count.add(batch.num_rows)
            files.write(pa.Table.from_batches([batch]))


@contextmanager
def _quick_decoders(offsets: int) -> Iterator[None]:
    """numba reads the record batches of a log with so many offsets only if that pays: to load numba costs as much as it
    saves in a million records, and to compile its code for the first time two seconds more. It never reads the records
    of groups: these are few, and to compile that takes half a minute on a new machine."""
    pays = offsets > MOST_RECORDS and find_spec("numba") is not None
    without = DECODER_VARIABLE not in os.environ and not pays
    with plain_kernels():
        if without:
            os.environ[DECODER_VARIABLE] = "python"  # no warning
        try:
            yield
        finally:
            if without:
                del os.environ[DECODER_VARIABLE]
