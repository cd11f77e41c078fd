"""The commits of one log partition: a series a place, and what is odd in it.

A place is a group, a topic and a partition; its commits stand in a row, in order of the log. A commit that is lower
than the one before it is a step back. What it means depends on what comes then:

- a *rewind*: the group goes on from there, and reads again what it had read;
- a *reset*: nobody was in the group, so it was a person or a tool;
- a *tooth*: within a few commits the place is back where it was. Somebody else commits the same partition. Teeth in a
  row are a *sawtooth*.

All of it is done a column at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding.columns import TIME, Numbers
from kohort.spark.history.decoding.kernels import NOTHING, READ, TOMBSTONE
from kohort.spark.history.tables.spans import codes

STEPS = ("first", "forward", "same", "back", "deleted")
FIRST, FORWARD, SAME, BACK, DELETED = range(len(STEPS))

RECOVERY = 4
"""A step back that is made up for within so many commits is a tooth."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places, by number."""

    groups: Numbers
    """Of each its group's number."""
    topics: Numbers
    partitions: Numbers
    group_names: pa.Array
    topic_names: pa.Array

    def __len__(self) -> int:
        return len(self.groups)

    def columns(self, places: Numbers) -> dict[str, pa.Array]:
        """The columns group, topic and partition of a table whose rows are of these places."""
        return {
            "group": pa.DictionaryArray.from_arrays(pa.array(self.groups[places], pa.int32()), self.group_names),
            "topic": pa.DictionaryArray.from_arrays(pa.array(self.topics[places], pa.int32()), self.topic_names),
            "partition": pa.array(self.partitions[places], pa.int32()),
        }

    def names(self) -> list[tuple[str, str, int]]:
        groups, topics = self.group_names.to_pylist(), self.topic_names.to_pylist()
        rows = zip(self.groups.tolist(), self.topics.tolist(), self.partitions.tolist(), strict=True)
        return [(groups[group], topics[topic], partition) for group, topic, partition in rows]


@dataclass(frozen=True, slots=True)
class Commits:
    """Rows in order of their places, and in order of the log inside of each. Times in milliseconds."""

    places: Places
    place: Numbers
    at: Numbers
    offset: Numbers
    """NOTHING for a deletion."""
    previous: Numbers
    """The offset before; NOTHING where there is none."""
    step: Numbers
    rows: Numbers
    """Where each is in the table that they came from."""
    first: Numbers
    """The first row of each place, and behind them the number of rows."""

    def last(self) -> Numbers:
        """The last row of each place."""
        return self.first[1:] - 1


def milliseconds(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """A column of instants, of any unit, as milliseconds; NOTHING for nulls. Without a time zone they are in UTC."""
    micros = pc.fill_null(column.cast(TIME, safe=False).cast(pa.int64()), NOTHING * 1000)
    found: Numbers = micros.to_numpy() // 1000 if isinstance(micros, pa.ChunkedArray) else _dense(micros) // 1000
    return found


def _dense(column: pa.Array) -> Numbers:
    dense: Numbers = column.to_numpy(zero_copy_only=False)
    return dense


def dense(column: pa.ChunkedArray | pa.Array, missing: int = NOTHING) -> Numbers:
    """A column of integers as int64; `missing` for nulls."""
    filled = pc.fill_null(column.cast(pa.int64()), missing)
    found: Numbers = filled.to_numpy() if isinstance(filled, pa.ChunkedArray) else _dense(filled)
    return found


def encoded(column: pa.ChunkedArray | pa.Array) -> tuple[Numbers, pa.Array]:
    """A column of strings (or binaries) as numbers, and what they stand for, in order; NOTHING for nulls."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names = column.dictionary
    order = pc.array_sort_indices(names).to_numpy()
    ranks = np.full(len(names) + 1, NOTHING)
    ranks[order] = np.arange(len(names))
    # The last one, which is NOTHING, is that of nulls.
    return ranks[dense(column.indices)], names.take(pa.array(order))


def commits_of(table: pa.Table) -> Commits:
    """The commits of a table of log records, in any order; a record that is there twice counts once."""
    status, kind = dense(table.column("status")), dense(table.column("kind"))
    log = dense(table.column("log_offset"))
    rows = np.flatnonzero((kind >= 0) & (kind <= 1) & ((status == READ) | (status == TOMBSTONE)))
    rows = rows[np.unique(log[rows], return_index=True)[1]]
    group, group_names = encoded(table.column("group"))
    topic, topic_names = encoded(table.column("commit_topic"))
    partition = dense(table.column("commit_partition"))
    place, found = codes(group[rows], topic[rows], partition[rows])
    order = np.argsort(place, kind="stable")
    places = Places(group[rows[found]], topic[rows[found]], partition[rows[found]], group_names, topic_names)
    rows, place = rows[order], place[order]
    written = milliseconds(table.column("log_time"))[rows]
    at = np.where(written >= 0, written, milliseconds(table.column("commit_time"))[rows])
    offset = np.where(status[rows] == READ, dense(table.column("commit_offset"))[rows], NOTHING)
    previous = np.full(len(rows), NOTHING)
    previous[1:] = np.where(place[1:] == place[:-1], offset[:-1], NOTHING)
    step = np.select(
        [offset == NOTHING, previous == NOTHING, offset > previous, offset == previous],
        [DELETED, FIRST, FORWARD, SAME],
        BACK,
    )
    first = np.searchsorted(place, np.arange(len(places) + 1))
    return Commits(places, place, at, offset, previous, step, rows, first)


def commits_table(commits: Commits, table: pa.Table) -> pa.Table:
    """The table `commits`, in order of groups, topics, partitions and the log."""
    rows = pa.array(commits.rows)
    taken = table.select(
        ["log_partition", "log_offset", "leader_epoch", "metadata", "commit_time", "expire_time", "topic_id"]
    ).take(rows)
    return pa.table(
        {
            **commits.places.columns(commits.place),
            "at": instants(commits.at),
            "offset": nullable(commits.offset),
            "previous": nullable(commits.previous),
            "step": words(commits.step, STEPS),
            "leader_epoch": taken.column("leader_epoch"),
            "metadata": taken.column("metadata"),
            "commit_time": taken.column("commit_time"),
            "expire_time": taken.column("expire_time"),
            "topic_id": taken.column("topic_id"),
            "log_partition": taken.column("log_partition"),
            "log_offset": taken.column("log_offset"),
        }
    )


def instants(at: Numbers) -> pa.Array:
    """Milliseconds as a column; null where negative."""
    return pa.array(np.where(at >= 0, at, 0) * 1000, pa.int64(), mask=at < 0).cast(TIME)


def nullable(values: Numbers, kind: pa.DataType | None = None) -> pa.Array:
    """Numbers as a column; null where negative."""
    return pa.array(values, kind or pa.int64(), mask=values < 0)


def words(numbers: Numbers, of: tuple[str, ...]) -> pa.Array:
    """Words by their numbers."""
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(of, pa.string()))


def teeth(commits: Commits) -> Numbers:
    """Of each row whether it is a step back that is made up for within RECOVERY commits."""
    back = commits.step == BACK
    best = np.full(len(back), NOTHING)
    count = len(back)
    for ahead in range(1, RECOVERY + 1):
        later = np.full(count, NOTHING)
        same = commits.place[ahead:] == commits.place[:-ahead] if count > ahead else np.zeros(0, bool)
        later[: max(count - ahead, 0)] = np.where(same, commits.offset[ahead:], NOTHING)
        best = np.maximum(best, later)
    found: Numbers = back & (best >= commits.previous)
    return found


class Saw(NamedTuple):
    """Sawteeth: a row each."""

    place: Numbers
    since: Numbers
    until: Numbers
    teeth: Numbers
    deepest: Numbers
    """The longest step back."""


def sawteeth(commits: Commits, least: int, gap_ms: int) -> Saw:
    """Runs of at least so many teeth, none further from the last than `gap_ms`."""
    rows = np.flatnonzero(teeth(commits))
    place, at = commits.place[rows], commits.at[rows]
    depth = commits.previous[rows] - commits.offset[rows]
    if not len(rows):
        return Saw(*(np.zeros(0, np.int64) for _ in range(5)))
    begins = np.flatnonzero(np.r_[True, (place[1:] != place[:-1]) | (at[1:] - at[:-1] > gap_ms)])
    ends = np.r_[begins[1:], len(rows)] - 1
    kept = ends - begins + 1 >= least
    deepest = np.maximum.reduceat(depth, begins)
    begins, ends = begins[kept], ends[kept]
    return Saw(place[begins], at[begins], at[ends], ends - begins + 1, deepest[kept])


def rates(commits: Commits, edges: Numbers) -> pa.Table:
    """The table `rates`: what was read in each interval between `edges` (ms), by place; without empty intervals.

    An instant on an edge belongs to the interval that begins there, but for the last, which belongs to the one that
    ends there: it is the last instant of the history.
    """
    width = len(edges) - 1
    bucket = np.searchsorted(edges, commits.at, side="right") - 1
    bucket = np.where(commits.at == edges[-1], width - 1, bucket)
    inside = (bucket >= 0) & (bucket < width) & (commits.step != DELETED)
    cell = commits.place[inside] * width + bucket[inside]
    moved = np.where(commits.previous >= 0, commits.offset - commits.previous, 0)[inside]
    used, index = np.unique(cell, return_inverse=True)
    forward = np.bincount(index, np.maximum(moved, 0), len(used)).astype(np.int64)
    back = np.bincount(index, np.maximum(-moved, 0), len(used)).astype(np.int64)
    number = np.bincount(index, minlength=len(used))
    lengths = np.diff(edges)[used % width]
    return pa.table(
        {
            **commits.places.columns(used // width),
            "since": instants(edges[:-1][used % width]),
            "until": instants(edges[1:][used % width]),
            "commits": pa.array(number, pa.int32()),
            "records": pa.array(forward),
            "again": pa.array(back),
            "per_second": pa.array(forward / lengths * 1000.0),
        }
    )


def committed_at(commits: Commits, times: Numbers) -> Numbers:
    """Of each place (row) and instant (column) the committed offset; NOTHING before the first and after a deletion."""
    found = np.full((len(commits.places), len(times)), NOTHING)
    if not len(commits.at):
        return found
    # A position in one ascending series: the place in front, the time behind it. Clocks may step back a little.
    low, high = int(min(commits.at.min(), times.min())), int(max(commits.at.max(), times.max()))
    span = high - low + 2
    running = np.maximum.accumulate(commits.place * span + (commits.at - low))
    wanted = np.arange(len(commits.places))[:, None] * span + (times - low)[None, :]
    row = np.searchsorted(running, wanted.ravel(), side="right").reshape(wanted.shape) - 1
    there = row >= commits.first[:-1][:, None]
    found[there] = commits.offset[row[there]]
    return found
