"""The garbage collector: full collections visit what is new."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kohort.server.memory.collector import EVERYTHING_S, Collector


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    collector = Collector(clock)
    collector.begin()
    yield clock
    collector.end()


class Node:
    other: Node | None = None


def test_what_survives_a_full_collection_is_not_visited_again(clock: Clock) -> None:
    kept = [[number] for number in range(50_000)]
    gc.collect()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects(generation=2)) < 10_000, "all of them are left out"


def test_a_full_collection_comes_before_many_objects_are_new(clock: Clock) -> None:
    gc.collect()
    most = 0
    kept = []
    for number in range(100_000):
        kept.append([number])
        if number % 1_000 == 0:
            most = max(most, sum(len(gc.get_objects(generation)) for generation in range(3)))
    assert most < 20_000 < len(kept)


def test_new_cycles_are_collected(clock: Clock) -> None:
    gc.collect()
    node = Node()
    node.other = node
    del node
    assert gc.collect() > 0


def test_a_cycle_that_was_left_out_is_found_by_the_hourly_collection(clock: Clock) -> None:
    node = Node()
    node.other = node
    gc.collect()
    del node
    assert gc.collect() == 0, "left out"
    clock.now = EVERYTHING_S
    gc.collect()
    assert gc.collect() > 0
    assert gc.get_freeze_count() > 0
