"""What a history could see: how much of the log is left, since when nothing is missing, and what was not to be had.

Offsets of a log partition count up by one. A record that compaction has deleted leaves a gap, and so does the marker at
the end of a transaction, which a reader does not get. So nothing is missing since the last gap, and an incident before
it may have left no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.tables.columns import dense, instants, milliseconds


def coverage_table(parts: list[pa.Table]) -> pa.Table:
    """The table `coverage` of log partitions: a row for each that has records. `parts` are their records."""
    partition, log, at = (
        np.concatenate([numbers(part.column(column)) for part in parts])
        for column, numbers in (("log_partition", dense), ("log_offset", dense), ("log_time", milliseconds))
    )
    rows = [(int(one), *_seen(log[partition == one], at[partition == one])) for one in np.unique(partition)]
    columns = np.array(rows, np.int64).reshape(len(rows), 7).T
    return pa.table(
        {
            "log_partition": pa.array(columns[0], pa.int32()),
            **dict(zip(("first", "last", "records", "missing"), map(pa.array, columns[1:5]), strict=True)),
            **dict(zip(("since", "whole_since"), map(instants, columns[5:]), strict=True)),
        }
    )


def _seen(log: Numbers, at: Numbers) -> tuple[int, ...]:
    """The columns of a log partition's row."""
    log, first = np.unique(log, return_index=True)
    at = at[first]
    since = int(min(at[at >= 0], default=NOTHING))
    gaps = np.flatnonzero(np.diff(log) > 1)
    whole_since = int(at[gaps[-1] + 1]) if len(gaps) else since
    return int(log[0]), int(log[-1]), len(log), int(log[-1]) + 1 - len(log), since, whole_since


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was seen. Times in milliseconds; -1 if there is none."""

    records: int
    missing: int
    """Offsets of the log without a record: compacted or deleted records, and markers of transactions."""
    since_ms: int
    until_ms: int
    whole_since_ms: int
    """Since when no record is missing in any partition of the log."""
    stories: int
    """Of kohort's journal."""
    stories_since_ms: int
    no_journal: str
    """Why the journal was not read; empty if it was."""
    partitions: int
    """Topic-partitions with commits."""
    lag_unknown: int
    """Those of them whose ends are not known."""

    @classmethod
    def of(
        cls, tables: list[pa.Table], until_ms: int, journal: tuple[int, int | None, str], partitions: int, ends: int
    ) -> Coverage:
        """From the tables `coverage` of all log partitions. `ends` of the partitions are known."""
        rows = [row for table in tables for row in table.to_pylist()]
        since = [_milliseconds(row["since"]) for row in rows if row["since"] is not None]
        whole = [_milliseconds(row["whole_since"]) for row in rows if row["missing"] and row["whole_since"]]
        stories, stories_since, no_journal = journal
        return cls(
            records=sum(row["records"] for row in rows),
            missing=sum(row["missing"] for row in rows),
            since_ms=min(since, default=-1),
            until_ms=until_ms,
            whole_since_ms=max([*whole, *([min(since)] if since else [])], default=-1),
            stories=stories,
            stories_since_ms=-1 if stories_since is None else stories_since,
            no_journal=no_journal,
            partitions=partitions,
            lag_unknown=partitions - ends,
        )

    @property
    def partial(self) -> bool:
        """True if what is not found may have happened all the same."""
        return bool(self.missing or self.lag_unknown)

    @property
    def lines(self) -> list[str]:
        """In words: the log, the lag, the journal."""
        if not self.records:
            return ["The log has no records."]
        found = [
            f"{self.records:,} records of __consumer_offsets, {stamp(self.since_ms)} to {stamp(self.until_ms)} UTC"
            + ("." if self.missing else ", none missing.")
        ]
        if self.missing:
            found.append(
                f"{self.missing:,} earlier records are not in the log any more, or are markers of transactions: of old "
                "commits compaction keeps only the last of each partition. Nothing is missing since "
                f"{stamp(self.whole_since_ms)}; resets, stuck groups and storms before that may have left no trace."
            )
        if self.lag_unknown:
            which = "any partition" if self.lag_unknown == self.partitions else f"{self.lag_unknown:,} of "
            which += "" if self.lag_unknown == self.partitions else f"{self.partitions:,} partitions"
            found.append(f"Lag is not known for {which}: groups that fall behind there are not found.")
        stories = f"{self.stories:,} {'story' if self.stories == 1 else 'stories'}"
        stories += f" since {stamp(self.stories_since_ms)}" if self.stories else ""
        if self.no_journal:
            kept = f"; {stories} are known from earlier runs" if self.stories else ""
            found.append(f"kohort's journal: not read ({self.no_journal}){kept}.")
        else:
            found.append(f"kohort's journal: {stories}.")
        return found


def stamp(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)
