"""The assignor of share groups (SH21): counts, and who keeps what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.coordinator.share_groups.assignor import assigned
from kohort.coordinator.share_groups.group import Partitions, TopicPartition

T, U = b"t" * 16, b"u" * 16
QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def check(found: dict[str, Partitions], partitions: int) -> None:
    """Each partition has ceil(M / P) members, and the members' numbers differ by one at most."""
    each = -(-len(found) // partitions)
    for index in range(partitions):
        assert sum((T, index) in given for given in found.values()) == each
    counts = {len(given) for given in found.values()}
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


def test_an_assignment_is_read_once_however_many_topics_there_are() -> None:
    class Counted(Partitions):
        reads = 0

        def __iter__(self) -> Iterator[TopicPartition]:
            Counted.reads += 1
            return super().__iter__()

    topics = [index.to_bytes(16, "big") for index in range(20)]
    subscribed = {"a": frozenset(topics[1:]), "b": frozenset(topics[:-1])}
    partitions = {topic: range(3) for topic in topics}
    former = assigned(subscribed, partitions, {})
    again = assigned(subscribed, partitions, {member: Counted(given) for member, given in former.items()})
    assert (again, Counted.reads) == (former, 2)


@pytest.mark.conformance("SH21")
def test_a_member_more_moves_few_partitions() -> None:
    two = assigned({"a": frozenset([T]), "b": frozenset([T])}, {T: range(6)}, {})
    three = assigned({name: frozenset([T]) for name in "abc"}, {T: range(6)}, two)
    check(three, 6)
    assert len(three["a"] & two["a"]) == len(three["b"] & two["b"]) == 2


def test_different_subscriptions_are_divided_topic_by_topic() -> None:
    subscribed = {"a": frozenset([T]), "b": frozenset([T, U]), "c": frozenset([U])}
    found = assigned(subscribed, {T: range(2), U: range(2)}, {})
    assert {topic for topic, _ in found["a"]} == {T}
    assert {topic for topic, _ in found["c"]} == {U}
    assert sorted(one for given in found.values() for one in given) == [(T, 0), (T, 1), (U, 0), (U, 1)]


def test_nothing_to_assign() -> None:
    assert assigned({}, {}, {}) == {}
    assert assigned({"a": frozenset([T])}, {}, {}) == {"a": frozenset()}
