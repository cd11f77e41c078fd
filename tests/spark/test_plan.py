"""Which offsets a micro-batch takes and how they are cut into tasks, without Spark."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kohort.spark.source.positions import Positions, admit, cut, from_json, to_json

PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))
STARTS = st.dictionaries(PLACES, st.integers(0, 1_000), min_size=1)
MORE = st.lists(st.integers(0, 5_000), min_size=8, max_size=8)


@given(STARTS, MORE, st.integers(1, 10_000))
def test_admission_takes_the_limit_and_one_of_each_that_waits(start: Positions, more: list[int], limit: int) -> None:
    end = {place: offset + more[n] for n, (place, offset) in enumerate(start.items())}
    admitted = admit(start, end, limit)
    taken = {place: admitted[place] - start[place] for place in start}
    waiting = {place: end[place] - start[place] for place in start}
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= taken[place] <= waiting[place] for place in start)
    if limit >= sum(map(bool, waiting.values())):
        assert all(taken[place] for place in start if waiting[place])


@given(STARTS, MORE, st.none() | st.integers(1, 20), st.none() | st.integers(1, 2_000))
def test_tasks_cover_every_range_once_and_none_has_more_than_it_may(
    start: Positions, more: list[int], pieces: int | None, most: int | None
) -> None:
    ranges = {place: (offset, offset + more[n]) for n, (place, offset) in enumerate(start.items())}
    tasks = cut(ranges, pieces, most)
    assert most is None or all(last - first <= most for _, first, last in tasks)
    for place, (first, last) in ranges.items():
        mine = sorted((a, b) for p, a, b in tasks if p == place)
        assert sum(b - a for a, b in mine) == last - first
        assert all(b == c for (_, b), (c, _) in pairwise(mine))
        if mine:
            assert (mine[0][0], mine[-1][1]) == (first, last)


def test_small_partitions_are_left_whole_and_large_ones_share_the_other_tasks() -> None:
    ranges = {("t", 0): (0, 900), ("t", 1): (0, 10), ("t", 2): (0, 10), ("t", 3): (5, 5)}
    tasks = cut(ranges, 10)
    assert [place for place, _, _ in tasks].count(("t", 0)) == 8
    assert len(tasks) == 10
    assert len(cut(ranges, 3)) == 3


def test_offsets_are_kept_as_sparks_kafka_source_keeps_them() -> None:
    assert to_json({("t", 1): 5, ("t", 0): 3}) == {"t": {"0": 3, "1": 5}}
    assert from_json({"t": {"0": 3, "1": 5}}) == {("t", 0): 3, ("t", 1): 5}
