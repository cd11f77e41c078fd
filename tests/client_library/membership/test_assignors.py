"""The standard assignors: their promises, and the same bytes and assignments as other implementations."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from kohort.client.assignors import (
    ASSIGNORS,
    COOPERATIVE_STICKY,
    RANGE,
    ROUNDROBIN,
    STICKY,
    Assignor,
    Claim,
    Consumer,
    assignments,
    consumer_of,
    subscription_bytes,
)
from kohort.wire.embedded import assignment_in, subscription_of
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription

TOPICS = ("a", "b", "c", "d")
Divided = dict[str, list[tuple[str, int]]]
History = tuple[dict[str, int], list[Consumer]]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), max_size=4)


@st.composite
def groups(draw: st.DrawFn, *, same: bool | None = None) -> list[Consumer]:
    size = draw(st.integers(1, 6))
    same = draw(st.booleans()) if same is None else same
    topics = st.frozensets(st.sampled_from(TOPICS))
    common = draw(topics)
    return [
        Consumer(f"m{n}", common if same else draw(topics), draw(st.sampled_from((None, None, f"i{9 - n}"))))
        for n in range(size)
    ]


@st.composite
def histories(draw: st.DrawFn, *, same: bool | None = None) -> History:
    """Members with claims: true ones of the last generation, older ones, and nonsense."""
    partitions = draw(counts)
    every = [(topic, index) for topic in TOPICS for index in range(8)]
    members = []
    for member in draw(groups(same=same)):
        owned = tuple(draw(st.lists(st.sampled_from(every), max_size=12)))
        generation = draw(st.sampled_from((None, 3, 4)))
        members.append(Consumer(member.member_id, member.topics, member.instance_id, owned, Claim(owned, generation)))
    return partitions, members


def all_of(divided: Divided) -> list[tuple[str, int]]:
    return sorted(itertools.chain.from_iterable(divided.values()))


def wanted(partitions: dict[str, int], members: list[Consumer]) -> list[tuple[str, int]]:
    topics = {topic for member in members for topic in member.topics}
    return sorted((topic, index) for topic in topics for index in range(partitions.get(topic, 0)))


def spread(divided: Divided) -> list[int]:
    return sorted(len(mine) for mine in divided.values())


# -- what all promise


@pytest.mark.parametrize("assignor", [RANGE, ROUNDROBIN, STICKY], ids=lambda a: a.name)
@given(history=histories())
def test_every_partition_to_one_member_that_wants_it(assignor: Assignor, history: History) -> None:
    partitions, members = history
    divided = assignor.divide(partitions, members)
    assert set(divided) == {member.member_id for member in members}
    assert all_of(divided) == wanted(partitions, members)
    topics = {member.member_id: member.topics for member in members}
    assert all(topic in topics[member_id] for member_id, mine in divided.items() for topic, _ in mine)
    again = assignor.divide(partitions, members[::-1])
    assert {k: sorted(v) for k, v in again.items()} == {k: sorted(v) for k, v in divided.items()}


# -- range and roundrobin, as others divide


def by_kafka_python(assignor: Any, partitions: dict[str, int], members: list[Consumer]) -> Divided:
    joined = []
    for member in sorted(members, key=lambda member: member.rank):  # static members in a row
        topics = sorted(member.topics)
        metadata = SimpleNamespace(topics=topics, subscription=topics)
        joined.append(
            SimpleNamespace(member_id=member.member_id, group_instance_id=member.instance_id, metadata=metadata)
        )
    numbers = {topic: set(range(count)) for topic, count in partitions.items()}
    answered = assignor.assign(SimpleNamespace(partitions_for_topic=numbers.get), joined)
    return {
        member_id: sorted((topic, index) for topic, indexes in _rows(answer) for index in indexes)
        for member_id, answer in answered.items()
    }


def _rows(answer: Any) -> list[tuple[str, list[int]]]:
    return [row if isinstance(row, tuple) else (row.topic, row.partitions) for row in answer.assigned_partitions]


def in_order(divided: Divided) -> Divided:
    return {member_id: sorted(mine) for member_id, mine in divided.items() if mine}


@given(partitions=counts, members=groups())
def test_range_divides_as_kafka_python_does(partitions: dict[str, int], members: list[Consumer]) -> None:
    theirs = by_kafka_python(RangePartitionAssignor, partitions, members)
    assert in_order(RANGE.divide(partitions, members)) == in_order(theirs)


@given(partitions=counts, members=groups(same=True))
def test_roundrobin_divides_as_kafka_python_does(partitions: dict[str, int], members: list[Consumer]) -> None:
    """Where subscriptions differ, kafka-python 3.0 raises KeyError."""
    theirs = by_kafka_python(RoundRobinPartitionAssignor, partitions, members)
    assert in_order(ROUNDROBIN.divide(partitions, members)) == in_order(theirs)


def test_roundrobin_skips_members_without_a_subscription() -> None:
    """The example of RoundRobinAssignor.java."""
    members = [Consumer(f"C{n}", frozenset(("t0", "t1", "t2")[: n + 1])) for n in range(3)]
    assert ROUNDROBIN.divide({"t0": 1, "t1": 2, "t2": 3}, members) == {
        "C0": [("t0", 0)],
        "C1": [("t1", 0)],
        "C2": [("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)],
    }


# -- even


@given(history=histories(same=True))
def test_equal_members_differ_by_one_at_most(history: History) -> None:
    loads = spread(STICKY.divide(*history))
    assert loads[-1] - loads[0] <= 1


def most_even(partitions: dict[str, int], members: list[Consumer]) -> list[int]:
    """By trying everything: loads as a sum of squares, which only the most even division has so small."""
    states = {tuple(0 for _ in members)}
    for topic, _ in wanted(partitions, members):
        readers = [n for n, member in enumerate(members) if topic in member.topics]
        states = {(*loads[:n], loads[n] + 1, *loads[n + 1 :]) for loads in states for n in readers}
    return sorted(min(states, key=lambda loads: sum(load * load for load in loads)))


@settings(max_examples=200)
@given(history=histories(same=False))
def test_no_division_is_more_even(history: History) -> None:
    partitions, members = history
    partitions = {topic: min(count, 3) for topic, count in partitions.items()}
    members = members[:4]
    assert spread(STICKY.divide(partitions, members)) == most_even(partitions, members)


def test_a_member_is_relieved_over_others() -> None:
    """x cannot give to z, but to y, which gives to z."""
    had = {"x": (("a", 0), ("a", 1), ("a", 2)), "y": (("b", 0), ("b", 1)), "z": (("b", 2),)}
    topics = {"x": "a", "y": "ab", "z": "b"}
    members = [Consumer(name, frozenset(topics[name]), None, (), Claim(had[name], 3)) for name in "xyz"]
    divided = STICKY.divide({"a": 3, "b": 3}, members)
    assert spread(divided) == [2, 2, 2]
    assert set(divided["x"]) < set(had["x"])
    assert set(divided["z"]) > set(had["z"])


# -- sticky


def settled(divided: Divided, members: list[Consumer], generation: int = 5) -> list[Consumer]:
    """The members after they were given this."""
    given_out = {member_id: tuple(mine) for member_id, mine in divided.items()}
    return [
        dataclasses.replace(m, owned=given_out[m.member_id], claim=Claim(given_out[m.member_id], generation))
        for m in members
    ]


@given(history=histories())
def test_nothing_moves_without_a_reason(history: History) -> None:
    partitions, members = history
    divided = STICKY.divide(partitions, members)
    again = STICKY.divide(partitions, settled(divided, members))
    assert {k: sorted(v) for k, v in again.items()} == {k: sorted(v) for k, v in divided.items()}


@given(history=histories(same=True), gone=st.integers(0, 5))
def test_members_that_stay_keep_all_that_they_had(history: History, gone: int) -> None:
    partitions, members = history
    before = STICKY.divide(partitions, members)
    left = settled(before, members)
    del left[gone % len(left)]
    if left:
        after = STICKY.divide(partitions, left)
        assert all(set(before[m.member_id]) <= set(after[m.member_id]) for m in left)


@given(history=histories(same=True))
def test_a_newcomer_costs_its_own_share(history: History) -> None:
    partitions, members = history
    before = STICKY.divide(partitions, members)
    after = STICKY.divide(partitions, [*settled(before, members), Consumer("new", members[0].topics)])
    moved = sum(len(set(before[m.member_id]) - set(after[m.member_id])) for m in members)
    assert moved == len(after["new"])


def test_of_two_claims_the_later_generation_counts() -> None:
    mine = (("a", 0), ("a", 1))
    for generations, owner in (((3, 4), "y"), ((4, 3), "x"), ((None, 3), "y")):
        members = [
            Consumer(member_id, frozenset("a"), None, (), Claim(mine, generation))
            for member_id, generation in zip("xy", generations, strict=True)
        ]
        divided = STICKY.divide({"a": 4}, members)
        assert divided[owner][:2] == list(mine)


# -- cooperative


@given(history=histories())
def test_nobody_gets_what_another_still_reads(history: History) -> None:
    partitions, members = history
    divided = COOPERATIVE_STICKY.divide(partitions, members)
    owned = {member.member_id: set(member.owned) for member in members}
    for member_id, mine in divided.items():
        for partition in set(mine) - owned[member_id]:
            assert not any(partition in others for others in owned.values())


@given(history=histories(), newcomer=st.booleans())
def test_two_rebalances_reach_what_one_would(history: History, newcomer: bool) -> None:
    partitions, members = history
    before = settled(STICKY.divide(partitions, members), members)
    group = [*before, Consumer("new", members[0].topics)] if newcomer else before[1:]
    if not group:
        return
    aim = STICKY.divide(partitions, group)
    first = COOPERATIVE_STICKY.divide(partitions, group)
    second = COOPERATIVE_STICKY.divide(partitions, settled(first, group, 6))
    assert all_of(second) == wanted(partitions, group)
    assert spread(second) == spread(aim)
    for member in group:  # it reads on what it keeps
        assert set(first[member.member_id]) & set(member.owned) <= set(second[member.member_id])


# -- bytes


def test_sticky_user_data_byte_by_byte() -> None:
    """As StickyAssignor.java lays them out, in its newer version."""
    had = Claim((("b", 1), ("a", 2), ("b", 0)), 7)
    data = subscription_of(subscription_bytes(STICKY, ["a"], remembered=had))
    assert data is not None
    assert data.user_data == bytes.fromhex(
        "00000002" "000161" "00000001" "00000002" "000162" "00000002" "00000000" "00000001" "00000007"
    )  # fmt: skip
    assert STICKY.claim(data) == Claim(tuple(sorted(had.partitions)), 7)


def test_subscriptions_byte_by_byte() -> None:
    """As ConsumerProtocol.java and CooperativeStickyAssignor.java lay them out."""
    data = subscription_bytes(
        COOPERATIVE_STICKY, ["b", "a"], [("b", 1), ("a", 2), ("b", 0)], 7, remembered=Claim((), 7), rack="r"
    )
    assert data == bytes.fromhex(
        "0003"  # version
        "00000002" "000161" "000162"  # topics
        "00000004" "00000007"  # user data: the generation
        "00000002" "000161" "00000001" "00000002" "000162" "00000002" "00000000" "00000001"  # owned partitions
        "00000007"  # generation
        "000172"  # rack
    )  # fmt: skip
    assert subscription_bytes(RANGE, ["a"]) == bytes.fromhex(
        "0003" "00000001" "000161" "ffffffff" "00000000" "ffffffff" "ffff"
    )  # fmt: skip
    assert subscription_bytes(STICKY, ["a"]) == subscription_bytes(RANGE, ["a"])  # it never had an assignment


def test_sticky_user_data_of_old_members() -> None:
    """Before KAFKA-7026 they held no generation."""
    old = bytes.fromhex("00000001" "000161" "00000002" "00000000" "00000001")  # fmt: skip
    data = ConsumerProtocolSubscription(topics=("a",), user_data=old)
    assert STICKY.claim(data) == Claim((("a", 0), ("a", 1)), None)


def test_cooperative_claims_of_old_members() -> None:
    """Version 1 of a subscription has no generation: it stands in the user data."""
    data = bytes.fromhex(
        "0001" "00000001" "000161" "00000004" "00000009" "00000001" "000161" "00000001" "00000000"
    )  # fmt: skip
    consumer = consumer_of(COOPERATIVE_STICKY, "m", None, data)
    assert consumer.owned == (("a", 0),)
    assert consumer.claim == Claim((("a", 0),), 9)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(garbage=st.binary(max_size=40))
def test_garbage_does_not_stop_other_members(assignor: Assignor, garbage: bytes) -> None:
    good = subscription_bytes(assignor, ["a"])
    divided = assignments(assignor, {"a": 3}, [("good", None, good), ("bad", "i", garbage)])
    assert set(divided) == {"good", "bad"}
    shares = [assignment_in(divided[member_id]) or {} for member_id in ("good", "bad")]
    assert sorted(index for share in shares for index in share.get("a", ())) == [0, 1, 2]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_assignment_has_the_version_of_its_member(version: int) -> None:
    metadata = version.to_bytes(2, "big") + subscription_bytes(RANGE, ["a"])[2:]
    assert assignments(RANGE, {"a": 1}, [("m", None, metadata)])["m"][:2] == version.to_bytes(2, "big")
