"""The extent of a log: how many records, from when to when, of which topic-partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from kohort.spark.files.arrow import file_system
from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.tables.columns import milliseconds

INTERVALS_S = (1, 5, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600)
MOST_INTERVALS = 120


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a log, or of a part of it."""

    records: int
    """A record that was read twice counts twice."""
    first: int
    last: int
    """Milliseconds; -1 if there are no records."""
    places: frozenset[tuple[str, int]]
    """The topic-partitions with commits."""

    @classmethod
    def of(cls, parts: Sequence[Extent]) -> Extent:
        return cls(
            sum(part.records for part in parts),
            min((part.first for part in parts if part.first >= 0), default=-1),
            max((part.last for part in parts), default=-1),
            frozenset().union(*(part.places for part in parts)),
        )


def extent_of(files: Mapping[str, Sequence[str]]) -> Extent:
    """The extent of files of records, given by what they hold (`store.HOLDS`)."""
    return Extent.of([_of_file(file, holds == "commits") for holds, ones in files.items() for file in ones])


def _of_file(file: str, has_commits: bool) -> Extent:
    system, path = file_system(file)
    place = ["commit_topic", "commit_partition"] if has_commits else []
    read = pq.read_table(
        path, filesystem=system, columns=["log_time", *place], read_dictionary=place[:1], partitioning=None
    ).unify_dictionaries()
    at = milliseconds(read.column("log_time"))
    at = at[at >= 0]
    pairs = read.group_by(place).aggregate([]).to_pylist() if has_commits else []
    places = frozenset((one["commit_topic"], one["commit_partition"]) for one in pairs if one["commit_topic"])
    first, last = (int(at.min()), int(at.max())) if len(at) else (-1, -1)
    return Extent(read.num_rows, first, last, places)


def interval_edges(first: int, last: int, interval_s: int | None) -> Numbers:
    """The edges, in milliseconds, of the intervals of rates and lag: multiples of the width, and `last`.

    Without `interval_s` the width is the smallest of INTERVALS_S that gives at most MOST_INTERVALS.
    """
    if first < 0:
        return np.array([max(last, 0), max(last, 0) + 1], np.int64)
    span = max(last - first, 1)
    fitting = (width for width in INTERVALS_S if span / (width * 1000) <= MOST_INTERVALS)
    width = (interval_s or next(fitting, INTERVALS_S[-1])) * 1000
    edges = np.arange(first // width * width, max(last, first + 1), width, dtype=np.int64)
    return np.append(edges, max(last, edges[-1] + 1))
