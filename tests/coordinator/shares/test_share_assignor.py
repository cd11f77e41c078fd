"""The assignor of share groups (SH21): counts, and who keeps what."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.coordinator.share_groups.assignor import assigned
from kohort.coordinator.share_groups.group import Partitions

T, U = b"t" * 16, b"u" * 16
QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def operations(call: Callable[[], object]) -> int:
    """Bytecode instructions."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def indexes(given: Partitions, topic: bytes = T) -> set[int]:
    return {index for one in given if one.topic_id == topic for index in one.partitions}


def check(found: dict[str, Partitions], partitions: int) -> None:
    """Each partition has ceil(M / P) members, and the members' numbers differ by one at most."""
    each = -(-len(found) // partitions)
    for index in range(partitions):
        assert sum(index in indexes(given) for given in found.values()) == each
    counts = {len(indexes(given)) for given in found.values()}
    assert max(counts) - min(counts) <= 1


@QUICK
@given(st.integers(1, 12), st.lists(st.integers(1, 14), min_size=1, max_size=5))
def test_members_are_spread_over_partitions(partitions: int, sizes: list[int]) -> None:
    former: dict[str, Partitions] = {}
    for size in sizes:
        subscribed = {f"m{index}": frozenset([T]) for index in range(size)}
        found = assigned(subscribed, {T: range(partitions)}, former)
        check(found, partitions)
        assert assigned(subscribed, {T: range(partitions)}, found) == found, "what is balanced stays"
        former = found


def test_thousands_of_partitions_are_divided_quickly() -> None:
    topics = [index.to_bytes(16, "big") for index in range(4)]
    partitions = {topic: range(5_000) for topic in topics}
    members = {f"m{index}": frozenset(topics) for index in range(7)}
    former = assigned({"m0": frozenset(topics)}, partitions, {})
    assert operations(lambda: assigned(members, partitions, former)) < 50 * 20_000, (
        "some passes over them all, and none for each member"
    )


@pytest.mark.conformance("SH21")
def test_a_member_more_moves_few_partitions() -> None:
    two = assigned({"a": frozenset([T]), "b": frozenset([T])}, {T: range(6)}, {})
    three = assigned({name: frozenset([T]) for name in "abc"}, {T: range(6)}, two)
    check(three, 6)
    assert all(len(indexes(three[name]) & indexes(two[name])) == 2 for name in "ab")


def test_different_subscriptions_are_divided_topic_by_topic() -> None:
    subscribed = {"a": frozenset([T]), "b": frozenset([T, U]), "c": frozenset([U])}
    found = assigned(subscribed, {T: range(2), U: range(2)}, {})
    assert [one.topic_id for one in found["a"]] == [T]
    assert [one.topic_id for one in found["c"]] == [U]
    for topic in (T, U):
        assert sorted(index for given in found.values() for index in indexes(given, topic)) == [0, 1]


def test_nothing_to_assign() -> None:
    assert assigned({}, {}, {}) == {}
    assert assigned({"a": frozenset([T])}, {}, {}) == {"a": ()}
