"""Which offsets a micro-batch takes and how they are cut into tasks, without Spark."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kohort.spark.source.positions import admit, cut, from_json, to_json

PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))
STARTS = st.dictionaries(PLACES, st.integers(0, 1_000), min_size=1)


@given(STARTS, st.lists(st.integers(0, 5_000), min_size=8, max_size=8), st.integers(1, 10_000))
def test_admission_takes_the_limit_and_no_more(start: dict[tuple[str, int], int], more: list[int], limit: int) -> None:
    end = {place: offset + more[n] for n, (place, offset) in enumerate(start.items())}
    admitted = admit(start, end, limit)
    taken = {place: admitted[place] - start[place] for place in start}
    assert sum(taken.values()) == min(limit, sum(end[p] - start[p] for p in start))
    assert all(0 <= taken[place] <= end[place] - start[place] for place in start)


@given(STARTS, st.lists(st.integers(0, 5_000), min_size=8, max_size=8), st.none() | st.integers(1, 20))
def test_tasks_cover_every_range_once(start: dict[tuple[str, int], int], more: list[int], pieces: int | None) -> None:
    ranges = {place: (offset, offset + more[n]) for n, (place, offset) in enumerate(start.items())}
    tasks = cut(ranges, pieces)
    for place, (first, last) in ranges.items():
        mine = sorted((a, b) for p, a, b in tasks if p == place)
        assert sum(b - a for a, b in mine) == last - first
        assert all(b == c for (_, b), (c, _) in pairwise(mine))
        if mine:
            assert (mine[0][0], mine[-1][1]) == (first, last)


@given(STARTS, st.lists(st.integers(0, 5_000), min_size=8, max_size=8), st.integers(1, 10_000))
def test_nothing_that_waits_is_left_out_if_the_limit_allows_one_each(
    start: dict[tuple[str, int], int], more: list[int], limit: int
) -> None:
    end = {place: offset + more[n] for n, (place, offset) in enumerate(start.items())}
    waiting = [place for place in start if end[place] > start[place]]
    admitted = admit(start, end, limit)
    if limit >= len(waiting):
        assert all(admitted[place] > start[place] for place in waiting)


@given(
    STARTS,
    st.lists(st.integers(0, 5_000), min_size=8, max_size=8),
    st.none() | st.integers(1, 20),
    st.integers(1, 2_000),
)
def test_no_task_has_more_than_it_may(
    start: dict[tuple[str, int], int], more: list[int], pieces: int | None, most: int
) -> None:
    ranges = {place: (offset, offset + more[n]) for n, (place, offset) in enumerate(start.items())}
    tasks = cut(ranges, pieces, most)
    assert all(last - first <= most for _, first, last in tasks)
    assert sum(last - first for _, first, last in tasks) == sum(last - first for first, last in ranges.values())


def test_small_partitions_are_left_whole_and_large_ones_share_the_other_tasks() -> None:
    ranges = {("t", 0): (0, 900), ("t", 1): (0, 10), ("t", 2): (0, 10), ("t", 3): (5, 5)}
    tasks = cut(ranges, 10)
    assert [place for place, _, _ in tasks].count(("t", 0)) == 8
    assert len(tasks) == 10
    assert len(cut(ranges, 3)) == 3


def test_offsets_are_kept_as_sparks_kafka_source_keeps_them() -> None:
    assert to_json({("t", 1): 5, ("t", 0): 3}) == {"t": {"0": 3, "1": 5}}
    assert from_json({"t": {"0": 3, "1": 5}}) == {("t", 0): 3, ("t", 1): 5}
