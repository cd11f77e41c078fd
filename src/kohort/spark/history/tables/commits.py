"""The offset commits of whole log partitions: for each place (group, topic, partition) a series in the log's order.

A commit that is lower than the one before it is a step back. Its meaning depends on the commits that follow:

- a *rewind*: the group continues from the lower offset, and reads records again;
- a *reset*: the group has no members, so a person or a tool has committed;
- a *tooth*: within a few commits the place is back at the old offset, so two processes commit the same partition.
  Several teeth are a *sawtooth*.

Everything here works on whole columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING, READ, TOMBSTONE
from kohort.spark.history.tables.columns import (
    dense,
    encoded,
    instants,
    log_places,
    milliseconds,
    named,
    nullable,
    words,
)
from kohort.spark.history.tables.spans import codes

STEPS = ("first", "forward", "same", "back", "deleted")
FIRST, FORWARD, SAME, BACK, DELETED = range(len(STEPS))

RECOVERY = 4
"""A step back is a tooth if the old offset is reached again within this many commits."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places. `groups` and `topics` are the places of their names in `group_names` and `topic_names`."""

    groups: Numbers
    topics: Numbers
    partitions: Numbers
    group_names: pa.Array
    topic_names: pa.Array

    def __len__(self) -> int:
        return len(self.groups)

    def columns(self, places: Numbers) -> dict[str, pa.Array]:
        """The columns group, topic and partition of a table with these places in its rows."""
        rows = pa.array(places)
        return {
            "group": named(self.groups, self.group_names).take(rows),
            "topic": named(self.topics, self.topic_names).take(rows),
            "partition": pa.array(self.partitions, pa.int32()).take(rows),
        }

    def names(self) -> list[tuple[str, str, int]]:
        groups, topics = self.group_names.to_pylist(), self.topic_names.to_pylist()
        rows = zip(self.groups.tolist(), self.topics.tolist(), self.partitions.tolist(), strict=True)
        return [(groups[group], topics[topic], partition) for group, topic, partition in rows]


@dataclass(frozen=True, slots=True)
class Commits:
    """Commits and deletions, in the order of their places, and for each place in the order of the log."""

    places: Places
    place: Numbers
    at: Numbers
    """Milliseconds."""
    offset: Numbers
    """NOTHING for a deletion."""
    previous: Numbers
    """The offset before; NOTHING for the first one and after a deletion."""
    step: Numbers
    """One of STEPS."""
    rows: Numbers
    """The row of each in the table of log records."""
    first: Numbers
    """The first row of each place, and at the end the number of rows."""

    def last(self) -> Numbers:
        """The last row of each place."""
        return self.first[1:] - 1


def commits_of(table: pa.Table) -> Commits:
    """The commits in a table of log records, which may be in any order; a repeated record counts once."""
    status, kind = dense(table.column("status")), dense(table.column("kind"))
    log = log_places(table)
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
    """The table `commits`, in the order of groups, topics, partitions and the log. `table` has the log records."""
    taken = table.select(
        ["leader_epoch", "metadata", "commit_time", "expire_time", "topic_id", "log_partition", "log_offset"]
    ).take(pa.array(commits.rows))
    return pa.table(
        {
            **commits.places.columns(commits.place),
            "at": instants(commits.at),
            "offset": nullable(commits.offset),
            "previous": nullable(commits.previous),
            "step": words(commits.step, STEPS),
            **dict(zip(taken.column_names, taken.columns, strict=True)),
        }
    )


def teeth(commits: Commits) -> Numbers:
    """For each row, True if it is a tooth."""
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


class Sawteeth(NamedTuple):
    """A row for each sawtooth."""

    place: Numbers
    since: Numbers
    until: Numbers
    teeth: Numbers
    deepest: Numbers
    """The longest step back."""


def sawteeth(commits: Commits, least: int, gap_ms: int) -> Sawteeth:
    """Runs of at least this many teeth, each at most `gap_ms` after the one before it."""
    rows = np.flatnonzero(teeth(commits))
    place, at = commits.place[rows], commits.at[rows]
    depth = commits.previous[rows] - commits.offset[rows]
    if not len(rows):
        return Sawteeth(*(np.zeros(0, np.int64) for _ in range(5)))
    begins = np.flatnonzero(np.r_[True, (place[1:] != place[:-1]) | (at[1:] - at[:-1] > gap_ms)])
    ends = np.r_[begins[1:], len(rows)] - 1
    kept = ends - begins + 1 >= least
    deepest = np.maximum.reduceat(depth, begins)
    begins, ends = begins[kept], ends[kept]
    return Sawteeth(place[begins], at[begins], at[ends], ends - begins + 1, deepest[kept])


def sawteeth_table(found: Sawteeth, places: Places) -> pa.Table:
    return pa.table(
        {
            **places.columns(found.place),
            "since": instants(found.since),
            "until": instants(found.until),
            "teeth": pa.array(found.teeth, pa.int32()),
            "deepest": pa.array(found.deepest, pa.int64()),
        }
    )


def rates(commits: Commits, edges: Numbers) -> pa.Table:
    """The table `rates`: the records consumed in each interval between `edges` (ms), by place; without empty intervals.

    An instant on an edge belongs to the interval that begins there. The last edge, which is the last instant of the
    history, belongs to the last interval.
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
    """The committed offset for each place (row) and instant (column); NOTHING before the first and after a deletion."""
    row = np.full((len(commits.places), len(times)), NOTHING)
    if not len(commits.at):
        return row
    # Place and time as one ascending number. Log times may step back a little.
    low, high = int(min(commits.at.min(), times.min())), int(max(commits.at.max(), times.max()))
    span = high - low + 2
    at = np.maximum.accumulate(commits.place * span + (commits.at - low)) - commits.place * span + low
    since = np.searchsorted(times, at)
    seen = since < len(times)
    row[commits.place[seen], since[seen]] = np.flatnonzero(seen)  # of several commits before an instant the last
    np.maximum.accumulate(row, axis=1, out=row)
    return np.where(row >= 0, commits.offset[row], NOTHING)
