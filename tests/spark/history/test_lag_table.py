"""The rows of the table lag: few where little changes, and enough for the lag of each group at each instant."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kohort.spark.history.tables.columns import instants
from kohort.spark.history.tables.lag import of_groups, turning_points

EDGES = 12
small = st.integers(0, 2)


@st.composite
def courses(draw: st.DrawFn) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """The group of each place; by place and instant the committed offset, the end, and whether both are known."""
    groups = sorted(draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=5)))
    rows = st.lists(small, min_size=EDGES, max_size=EDGES)
    shape = st.lists(rows, min_size=len(groups), max_size=len(groups))
    committed, grown = np.cumsum(draw(shape), axis=1) // 3, np.cumsum(draw(shape), axis=1) // 3
    known = np.zeros(committed.shape, bool)
    for one in known:
        first = draw(st.integers(0, EDGES - 1))
        one[first : draw(st.integers(first + 1, EDGES))] = True
    return groups, committed, committed + grown, known


def table(groups: list[str], committed: np.ndarray, ends: np.ndarray, known: np.ndarray) -> pa.Table:
    place, instant = turning_points(committed, ends, known)
    return pa.table(
        {
            "group": [groups[number] for number in place],
            "topic": ["t"] * len(place),
            "partition": pa.array(place, pa.int32()),
            "at": instants(instant * 1_000),
            "committed": committed[place, instant],
            "end": ends[place, instant],
            "lag": (ends - committed)[place, instant],
        }
    )


@given(courses())
def test_the_rows_are_enough_for_the_lag_of_each_group(
    course: tuple[list[str], np.ndarray, np.ndarray, np.ndarray],
) -> None:
    groups, committed, ends, known = course
    rows = table(groups, committed, ends, known)
    shown = sorted({at.timestamp() for at in rows.column("at").to_pylist()})
    wanted = {}
    for place, group in enumerate(groups):
        for at in map(int, shown):
            if known[place, at]:
                key = group, datetime.fromtimestamp(at, UTC)
                wanted[key] = wanted.get(key, 0) + int((ends - committed)[place, at])
    found = {(row["group"], row["at"]): row["lag_sum"] for row in of_groups(rows).to_pylist()}
    assert found == wanted


def test_a_place_where_nothing_changes_is_two_rows() -> None:
    committed, ends = np.full((1, 100), 5), np.full((1, 100), 7)
    committed[0, 60:] = 6
    known = np.ones((1, 100), bool)
    assert turning_points(committed, ends, known)[1].tolist() == [0, 59, 60, 99]
    known[0, :30] = known[0, 90:] = False
    assert turning_points(committed, ends, known)[1].tolist() == [30, 59, 60, 89]
