"""Properties of all assignors and of each one, over groups that Hypothesis draws and over histories of groups."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import subprocess
import sys
from collections import Counter

import pytest
from assignor_groups import (
    RACKS,
    group_of,
    groups,
    is_near,
    near_ones,
    owners_of,
    partitions_of,
    printed,
    sizes,
    topic,
    topic_id,
    with_owned,
    without,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.assignors.check import checked
from kohort.coordinator.assignors.lag import LagAssignor
from kohort.coordinator.assignors.rack import RackAssignor
from kohort.coordinator.assignors.range import RangeAssignor
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignor, GroupSpec, MemberSpec
from kohort.coordinator.assignors.uniform import UniformAssignor

every_assignor = pytest.mark.parametrize("assignor", BUILT_IN.values(), ids=BUILT_IN)
drawn = settings(derandomize=True, database=None, deadline=None, max_examples=60)
even_assignors = pytest.mark.parametrize("assignor", [UniformAssignor(), RackAssignor()], ids=["uniform", "rack"])


# All of them


@every_assignor
@drawn
@given(group=groups(lag=True))
def test_every_partition_goes_to_one_of_its_subscribers(assignor: Assignor, group: GroupSpec) -> None:
    result = assignor.assign(group)
    assert checked(group, result) == result
    assigned = set().union(*(partitions_of(assignment) for assignment in result.values()))
    wanted = {topic for member in group.members.values() for topic in member.topics}
    there = {(t.topic_id, n) for t in group.topics.values() if t.topic_id in wanted for n in range(t.partitions)}
    assert assigned == there


@every_assignor
@drawn
@given(group=groups(lag=True))
def test_to_assign_again_changes_nothing(assignor: Assignor, group: GroupSpec) -> None:
    result = assignor.assign(group)
    assert assignor.assign(with_owned(group, result)) == result


@every_assignor
@drawn
@given(group=groups(lag=True), random=st.randoms(use_true_random=False))
def test_the_order_of_members_topics_and_claims_means_nothing(assignor: Assignor, group: GroupSpec, random) -> None:
    def shuffled(pairs):
        pairs = list(pairs)
        random.shuffle(pairs)
        return pairs

    members = {
        name: dataclasses.replace(
            member, topics=tuple(shuffled(member.topics)), owned=dict(shuffled(member.owned.items()))
        )
        for name, member in shuffled(group.members.items())
    }
    assert assignor.assign(GroupSpec(members, dict(shuffled(group.topics.items())))) == assignor.assign(group)


@every_assignor
def test_a_group_of_nobody_gets_nothing(assignor: Assignor) -> None:
    assert assignor.assign(GroupSpec({}, {topic_id("t1"): topic("t1", 3)})) == {}


def test_the_hash_seed_means_nothing() -> None:
    script = """
import hashlib
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import GroupSpec, MemberSpec, TopicSpec
racks = ["east", "north", "west"]
topics = {}
for t in range(12):
    where = tuple(frozenset({racks[p % 3], racks[(p // 3) % 3]}) for p in range(17))
    topics[bytes([t]) * 16] = TopicSpec(bytes([t]) * 16, f"t{t}", 17, where, (), tuple(997 * p * t for p in range(17)))
names = list(topics)
members = {f"m{m}": MemberSpec(f"m{m}", None, racks[m % 3], tuple(names[m % 5 :: 1 + m % 3])) for m in range(20)}
for assignor in BUILT_IN.values():
    print(hashlib.sha256(repr(sorted(assignor.assign(GroupSpec(members, topics)).items())).encode()).hexdigest())
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


# uniform and rack


@even_assignors
@drawn
@given(group=groups(alike=True))
def test_equal_subscriptions_differ_by_at_most_one_partition(assignor: Assignor, group: GroupSpec) -> None:
    counts = sizes(assignor.assign(group)).values()
    assert max(counts) - min(counts) <= 1


@even_assignors
@drawn
@given(group=groups(alike=False))
def test_no_partition_could_move_to_a_member_with_two_fewer(assignor: Assignor, group: GroupSpec) -> None:
    result = assignor.assign(group)
    counts = sizes(result)
    for member_id in group.members:
        reached, queue = {member_id}, [member_id]
        for giver in queue:
            for other, spec in group.members.items():
                if other not in reached and any(topic in spec.topics for topic in result[giver]):
                    reached.add(other)
                    queue.append(other)
        assert counts[member_id] - min(counts[other] for other in reached) < 2


@drawn
@given(group=groups(alike=True))
def test_with_equal_subscriptions_no_more_moves_than_balance_needs(group: GroupSpec) -> None:
    before = owners_of(group, {m.member_id: m.owned for m in group.members.values()})
    after = owners_of(group, UniformAssignor().assign(group))
    had = Counter(before.values())
    least, extras = divmod(len(after), len(group.members))
    may_stay = sum(min(had[m], least) for m in group.members) + min(extras, sum(had[m] > least for m in group.members))
    assert sum(after[unit] == owner for unit, owner in before.items()) == may_stay


@even_assignors
@drawn
@given(group=groups(), data=st.data())
def test_members_that_stay_keep_their_partitions(assignor: Assignor, group: GroupSpec, data: st.DataObject) -> None:
    """With equal subscriptions and racks a departure moves the departed member's partitions only."""
    some = next(iter(group.members.values()))
    group = GroupSpec(
        {m.member_id: dataclasses.replace(m, topics=some.topics, rack=some.rack) for m in group.members.values()},
        group.topics,
    )
    before = assignor.assign(group)
    left = without(group, data.draw(st.sampled_from(sorted(group.members))))
    after = assignor.assign(with_owned(left, before))
    for member_id in left.members:
        assert partitions_of(before[member_id]) <= partitions_of(after[member_id])


@drawn
@given(group=groups(alike=False), data=st.data())
def test_no_move_could_be_taken_back(group: GroupSpec, data: st.DataObject) -> None:
    """If subscriptions differ: no partition moved from a remaining member to a member that has more partitions in the
    end."""
    before = UniformAssignor().assign(group)
    left = without(group, data.draw(st.sampled_from(["nobody", *sorted(group.members)])))
    result = UniformAssignor().assign(with_owned(left, before))
    had, counts = owners_of(left, before), sizes(result)
    for unit, owner in owners_of(left, result).items():
        if had.get(unit, owner) != owner:
            assert counts[had[unit]] >= counts[owner], f"{unit} went from {had[unit]} to {owner}"


def test_a_newcomer_gets_partitions_of_many_topics() -> None:
    """Three partitions of three topics move from twelve members that have one partition of each topic."""
    names = " ".join(f"t{n}" for n in range(1, 5))
    topics = " ".join(f"t{n}=12" for n in range(1, 5))
    group = group_of(topics, "\n".join(f"{member} {names}" for member in "ABCDEFGHIJKL"))
    before = UniformAssignor().assign(group)
    assert all([len(numbers) for numbers in assignment.values()] == [1, 1, 1, 1] for assignment in before.values())
    joined = group_of(topics, "\n".join(f"{member} {names}" for member in "ABCDEFGHIJKLM"))
    result = UniformAssignor().assign(with_owned(joined, before))
    assert [len(numbers) for numbers in result["M"].values()] == [1, 1, 1]


# rack


@drawn
@given(group=groups(members=3, topics=1, partitions=6, alike=True))
def test_of_the_even_assignments_one_with_most_near(group: GroupSpec) -> None:
    result = RackAssignor().assign(group)
    units = sorted(owners_of(group, result))
    best = 0
    for owners in itertools.product(group.members, repeat=len(units)):
        counts = Counter(dict.fromkeys(group.members, 0)) + Counter(owners)
        of_each = [counts[member_id] for member_id in group.members]
        if max(of_each) - min(of_each) <= 1:
            best = max(best, sum(is_near(group, owner, *unit) for owner, unit in zip(owners, units, strict=True)))
    assert near_ones(group, result) == best


@drawn
@given(group=groups())
def test_racks_cost_no_balance_and_help(group: GroupSpec) -> None:
    uniform, rack = UniformAssignor().assign(group), RackAssignor().assign(group)
    assert sorted(sizes(rack).values()) == sorted(sizes(uniform).values())


@drawn
@given(group=groups())
def test_no_exchange_between_two_members_brings_more_near(group: GroupSpec) -> None:
    result = RackAssignor().assign(group)
    owners = owners_of(group, result)
    for (one, here), (other, there) in itertools.combinations(owners.items(), 2):
        if here != there and one[0] in group.members[there].topics and other[0] in group.members[here].topics:
            now = is_near(group, here, *one) + is_near(group, there, *other)
            swapped = is_near(group, there, *one) + is_near(group, here, *other)
            assert swapped <= now, (one, here, other, there)


@drawn
@given(group=groups())
def test_without_racks_rack_is_uniform(group: GroupSpec) -> None:
    members = {name: dataclasses.replace(member, rack=None) for name, member in group.members.items()}
    group = GroupSpec(members, group.topics)
    assert RackAssignor().assign(group) == UniformAssignor().assign(group)


# range


@drawn
@given(group=groups())
def test_a_member_has_a_run_of_each_topic(group: GroupSpec) -> None:
    result = RangeAssignor().assign(group)
    for spec in group.topics.values():
        subscribers = sum(spec.topic_id in member.topics for member in group.members.values())
        runs = [assignment[spec.topic_id] for assignment in result.values() if spec.topic_id in assignment]
        for run in runs:
            assert run == tuple(range(run[0], run[-1] + 1))
        if subscribers and spec.partitions:
            lengths = [len(run) for run in runs] + [0] * (subscribers - len(runs))
            assert max(lengths) - min(lengths) <= 1


@drawn
@given(group=groups())
def test_equal_topics_with_the_same_subscribers_are_co_partitioned(group: GroupSpec) -> None:
    result = RangeAssignor().assign(group)

    def subscribers(topic_id: bytes) -> list[str]:
        return [name for name, member in group.members.items() if topic_id in member.topics]

    for one, other in itertools.combinations(group.topics.values(), 2):
        if one.partitions == other.partitions and subscribers(one.topic_id) == subscribers(other.topic_id):
            for assignment in result.values():
                assert assignment.get(one.topic_id) == assignment.get(other.topic_id)


@drawn
@given(group=groups())
def test_static_members_have_the_first_runs_in_the_order_of_their_instances(group: GroupSpec) -> None:
    result = RangeAssignor().assign(group)
    for spec in group.topics.values():
        subscribed = [member for member in group.members.values() if spec.topic_id in member.topics]
        by_run = sorted(subscribed, key=lambda m: result[m.member_id].get(spec.topic_id, (spec.partitions,)))
        static = [m.instance_id for m in by_run if m.instance_id is not None and spec.topic_id in result[m.member_id]]
        assert static == sorted(m.instance_id for m in subscribed if m.instance_id is not None)[: len(static)]
        have_some = [m for m in by_run if spec.topic_id in result[m.member_id]]
        assert [m.instance_id for m in have_some[: len(static)]] == static


def test_the_last_runs_owner_takes_the_place_of_one_that_left() -> None:
    group = group_of("t1=8 t2=8", "A t1 t2\nB t1 t2\nC t1 t2\nD t1 t2")
    before = RangeAssignor().assign(group)
    after = RangeAssignor().assign(with_owned(without(group, "B"), before))
    assert {name: printed(assignment) for name, assignment in after.items()} == {
        "A": "t1:0,1,2 t2:0,1,2",
        "C": "t1:3,4,5 t2:3,4,5",
        "D": "t1:6,7 t2:6,7",
    }


# lag


def backlog(*lags: int, members: str = "AB", owned: dict[str, tuple[int, ...]] | None = None) -> GroupSpec:
    spec = topic("t1", len(lags), lag=lags)
    return GroupSpec(
        {
            m: MemberSpec(m, None, None, (spec.topic_id,), {spec.topic_id: (owned or {}).get(m, ())} if owned else {})
            for m in members
        },
        {spec.topic_id: spec},
    )


def sums(group: GroupSpec, result) -> dict[str, int]:
    return {
        name: sum((group.topics[topic].lag or {})[number] for topic, number in partitions_of(assignment))
        for name, assignment in result.items()
    }


@drawn
@given(group=groups(lag=True))
def test_without_lag_it_is_uniform(group: GroupSpec) -> None:
    topics = {name: dataclasses.replace(spec, lag=None) for name, spec in group.topics.items()}
    group = GroupSpec(group.members, topics)
    assert LagAssignor().assign(group) == UniformAssignor().assign(group)


def test_the_sums_of_lag_are_even_and_then_the_numbers() -> None:
    group = backlog(60_000, 30_000, 30_000, 0, 0, 0, 0, 0)
    result = LagAssignor().assign(group)
    assert sums(group, result) == {"A": 60_000, "B": 60_000}
    assert sizes(result) == {"A": 4, "B": 4}


def test_a_gain_that_is_not_noticeable_moves_nothing() -> None:
    """A is 7,500 ahead. One of its smaller partitions would bring both nearer, but by less than 4,875."""
    owned = {"A": (0, 1, 2, 3), "B": (4, 5, 6)}
    group = backlog(45_000, 2_500, 2_500, 2_500, 45_000, 0, 0, owned=owned)
    assert LagAssignor().assign(group) == {name: {topic_id("t1"): numbers} for name, numbers in owned.items()}


def test_a_group_that_keeps_up_is_divided_by_number() -> None:
    group = backlog(500, 0, 400, 0)
    assert LagAssignor().assign(group) == UniformAssignor().assign(group)


def test_a_large_difference_moves_what_evens_it_out() -> None:
    group = backlog(50_000, 20_000, 30_000, 0, owned={"A": (0, 1, 2), "B": (3,)})
    result = LagAssignor().assign(group)
    assert sums(group, result) == {"A": 50_000, "B": 50_000}


@drawn
@given(lags=st.lists(st.integers(0, 100_000), min_size=1, max_size=30), members=st.integers(1, 6))
def test_nobody_has_much_more_than_the_average_and_one_partition(lags: list[int], members: int) -> None:
    group = backlog(*lags, members="ABCDEF"[:members])
    share = sum(lags) / members
    assert max(sums(group, LagAssignor().assign(group)).values()) <= share + max(lags) + max(1000, share / 10)


@drawn
@given(group=groups(lag=True))
def test_no_single_move_gains_noticeably(group: GroupSpec) -> None:
    topics = {n: dataclasses.replace(spec, lag=spec.lag or (0,) * spec.partitions) for n, spec in group.topics.items()}
    group = GroupSpec(group.members, topics)
    result = LagAssignor().assign(group)
    lags = sums(group, result)
    noticeable = max(1000, int(sum(lag for t in topics.values() for lag in t.lag or ()) / len(group.members) / 10))
    for (unit_topic, number), owner in owners_of(group, result).items():
        lag = (topics[unit_topic].lag or ())[number]
        for other, spec in group.members.items():
            if other != owner and unit_topic in spec.topics:
                # Light partitions count as zero; all of them together are below the noticeable difference.
                assert lags[owner] - lags[other] - lag < 3 * noticeable or lag <= noticeable


# Groups with different subscriptions that change step by step, each assignment made from the one before. Most seeds
# were found by a search for rare steps of the algorithms: an undone move, a second search for a near owner, a second
# pass over the sums of lag.


SEEDS = [*range(12), 161, 274, 937, 3142]


def first_group(chance: random.Random) -> GroupSpec:
    topics = []
    for number in range(chance.randint(1, 5)):
        count, most = chance.randint(0, 10), chance.randint(1, 3)
        racks = tuple(frozenset(chance.sample(RACKS, chance.randint(0, most))) for _ in range(count))
        lag = tuple(chance.choice([0, chance.randint(0, 100), chance.randint(0, 20_000)]) for _ in range(count))
        topics.append(topic(f"t{number}", count, racks=racks, lag=lag))
    group = GroupSpec({}, {spec.topic_id: spec for spec in topics})
    members = [newcomer(chance, group, f"m{number}") for number in range(chance.randint(1, 9))]
    return GroupSpec({member.member_id: member for member in members}, group.topics)


def newcomer(chance: random.Random, group: GroupSpec, member_id: str) -> MemberSpec:
    subscribed = tuple(topic_id for topic_id in group.topics if chance.random() < 0.5)
    return MemberSpec(member_id, None, chance.choice([None, *RACKS]), subscribed)


def changed(chance: random.Random, group: GroupSpec, step: int) -> GroupSpec:
    members = dict(group.members)
    someone = chance.choice(sorted(members))
    match chance.choice(["leaves", "joins", "subscribes"]):
        case "leaves" if len(members) > 1:
            del members[someone]
        case "joins":
            members[f"n{step}"] = newcomer(chance, group, f"n{step}")
        case _:
            members[someone] = dataclasses.replace(members[someone], topics=newcomer(chance, group, someone).topics)
    return GroupSpec(members, group.topics)


def hold(assignor: Assignor, group: GroupSpec) -> GroupSpec:
    """Checks after each step. Returns the group as assigned."""
    result = assignor.assign(group)
    after = with_owned(group, result)
    assert assignor.assign(after) == result, "assigned again, something moved"
    had = owners_of(group, {member.member_id: member.owned for member in group.members.values()})
    now, counts = owners_of(group, result), sizes(result)
    moves = {(had[unit], owner) for unit, owner in now.items() if had.get(unit, owner) != owner}
    if assignor.name == "uniform":
        for giver, receiver in moves:
            assert counts[giver] >= counts[receiver], f"{giver} gave to {receiver}, for nothing"
            assert (receiver, giver) not in moves, f"{giver} and {receiver} exchanged partitions, for nothing"
    if assignor.name == "rack":
        for unit, owner in now.items():
            for other, spec in group.members.items():
                if unit[0] in spec.topics and counts[owner] > counts[other]:
                    assert is_near(group, owner, *unit) or not is_near(group, other, *unit), "near for free, not taken"
    return after


@pytest.mark.parametrize("assignor", BUILT_IN.values(), ids=BUILT_IN)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_history(assignor: Assignor, seed: int) -> None:
    chance = random.Random(seed)
    group = hold(assignor, first_group(chance))
    for step in range(3):
        group = hold(assignor, changed(chance, group, step))
