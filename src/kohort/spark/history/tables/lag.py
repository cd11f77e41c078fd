"""The table `lag`: which instants of a place it has, and the lag of groups from it.

Most places change rarely. Of instants in a row with the same committed offset and the same end, only the first and the
last are rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.tables.columns import dense, encoded, instants, milliseconds


def turning_points(committed: Numbers, ends: Numbers, known: Numbers) -> tuple[Numbers, Numbers]:
    """The places (rows) and instants (columns) that are rows of the table."""
    same = known[:, 1:] & known[:, :-1]
    same &= (committed[:, 1:] == committed[:, :-1]) & (ends[:, 1:] == ends[:, :-1])
    inside = np.zeros(known.shape, bool)
    inside[:, 1:-1] = same[:, 1:] & same[:, :-1]
    place, instant = np.nonzero(known & ~inside)
    return place, instant


def of_groups(rows: pa.Table) -> pa.Table:
    """The lag of each group (`lag_sum`) at each instant of these rows, which are all of some groups, in the table's
    order."""
    if not rows.num_rows:
        return pa.table({"group": rows.column("group"), "at": rows.column("at"), "lag_sum": rows.column("lag")})
    group, names = encoded(rows.column("group"))
    place = np.stack([group, encoded(rows.column("topic"))[0], dense(rows.column("partition"))])
    values = np.stack([dense(rows.column(name)) for name in ("committed", "end")])
    times, at = np.unique(milliseconds(rows.column("at")), return_inverse=True)
    holds = (place[:, 1:] == place[:, :-1]).all(axis=0) & (values[:, 1:] == values[:, :-1]).all(axis=0)
    # A row stands for the instants up to the next one with the same values, and for its own.
    length = np.append(np.where(holds, np.diff(at), 1), 1)
    row = np.repeat(np.arange(len(at)), length)
    instant = at[row] + np.arange(len(row)) - (np.cumsum(length) - length)[row]
    cell, first, which = np.unique(group[row] * len(times) + instant, return_index=True, return_inverse=True)
    lag = np.zeros(len(cell), np.int64)
    np.add.at(lag, which, dense(rows.column("lag"))[row])
    return pa.table(
        {
            "group": names.take(pa.array(group[row][first])),
            "at": instants(times[instant[first]]),
            "lag_sum": pa.array(lag),
        }
    )
