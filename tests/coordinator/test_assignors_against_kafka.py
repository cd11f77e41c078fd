"""The cases of Kafka's own tests for its assignors, as tables: each member's former and new partitions.

The facts are from RangeAssignorTest, OptimizedUniformAssignmentBuilderTest (now UniformHomogeneous…) and
UniformHeterogeneousAssignmentBuilderTest of Apache Kafka. Each line is a member, its subscription, its former
partitions, and Kafka's assignment. If several choices are equally good, `ours` is kohort's assignment. The test then
checks that the sizes are Kafka's and that at least as many partitions stay.

A topic that does not exist makes Kafka's assignors fail; kohort's leave it out.
"""

from __future__ import annotations

import pytest
from assignor_groups import group_of, owners_of, partitions_of, printed, sizes, with_owned, written

from kohort.coordinator.assignors.range import RangeAssignor
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec
from kohort.coordinator.assignors.uniform import UniformAssignor

UNIFORM = {
    "one member, nothing subscribed": ("t1=3", "A | -> "),
    "a first assignment": ("t1=3 t3=2", "A t1 t3 | -> t1:0 t3:0,1\nB t1 t3 | -> t1:1,2", "t1:0,2 t3:1 / t1:1 t3:0"),
    "more members than partitions": ("t3=2", "A t3 | -> t3:0\nB t3 | -> t3:1\nC t3 | ->"),
    "uneven before": ("t1=3 t2=3", "A t1 t2 | t1:0,1 t2:0,1 -> t1:0,1 t2:0\nB t1 t2 | t1:2 t2:2 -> t1:2 t2:1,2"),
    "partitions added": (
        "t1=6 t2=5",
        "A t1 t2 | t1:0,2 t2:0 -> t1:0,2,3 t2:0,3,4\nB t1 t2 | t1:1 t2:1,2 -> t1:1,4,5 t2:1,2",
        "t1:0,2,3,5 t2:0,4 / t1:1,4 t2:1,2,3",
    ),
    "a member joins": (
        "t1=3 t2=3",
        "A t1 t2 | t1:0,2 t2:0 -> t1:0,2\nB t1 t2 | t1:1 t2:1,2 -> t1:1 t2:1\nC t1 t2 | -> t2:0,2",
        "t1:0 t2:0 / t1:1 t2:1 / t1:2 t2:2",
    ),
    "a member left": (
        "t1=3 t2=3",
        "A t1 t2 | t1:0 t2:0 -> t1:0 t2:0,2\nB t1 t2 | t1:1 t2:1 -> t1:1,2 t2:1",
        "t1:0,2 t2:0 / t1:1 t2:1,2",
    ),
    "all unsubscribe from a topic": ("t1=2 t2=2", "A t2 | t1:0 t2:0 -> t2:0\nB t2 | t1:1 t2:1 -> t2:1"),
    "two members, nothing subscribed": ("t1=3", "A | ->\nB | ->"),
    "different: a first assignment": (
        "t1=3 t3=6",
        "A t1 t3 | -> t1:0,1,2 t3:4\nB t3 | -> t3:0,1,2,3,5",
        "t1:0,1,2 t3:0,1 / t3:2,3,4,5",
    ),
    "different: more members than partitions": ("t3=1 t1=2", "A t3 | -> t3:0\nB t3 | ->\nC t1 | -> t1:0,1"),
    "different: uneven before": (
        "t1=6 t2=4 t3=4",
        "A t1 | t1:0,1,2 -> t1:0,1,2,5\nB t1 t2 | t1:3 t2:0 -> t1:3 t2:0,1,2,3\n"
        "C t1 t2 t3 | t1:4,5 t2:1,2,3 t3:0,1,2,3 -> t1:4 t3:0,1,2,3",
        "t1:0,1,2,4,5 / t1:3 t2:0,2,3 / t2:1 t3:0,1,2,3",
    ),
    "different: partitions added": (
        "t1=6 t2=5 t3=3 t4=3",
        "A t1 t3 | t1:0,1,2,3 t3:0,1 -> t1:0,1,2,3,4,5 t3:0,1,2\n"
        "B t1 t2 t3 t4 | t2:0,1,2 t4:0,1,2 -> t2:0,1,2,3,4 t4:0,1,2",
    ),
    "different: a member joins, partitions added": (
        "t1=6 t2=7",
        "A t1 | t1:0,2 t2:0 -> t1:0,2,3,4,5\nB t1 t2 | t1:1 t2:1,2 -> t1:1 t2:1,2,6\nC t1 t2 | -> t2:0,3,4,5",
        "t1:0,2,3,4,5 / t1:1 t2:0,1,2 / t2:3,4,5,6",
    ),
    "different: a member left": (
        "t1=3 t2=8 t3=3",
        "A t1 t3 | t1:0,1,2 t3:0,1 -> t1:0,1,2 t3:0,1,2\nB t2 | t2:3,4,5,6 -> t2:0,1,2,3,4,5,6,7",
    ),
    "different: a subscription ends": (
        "t1=3 t2=5",
        "A t1 | t1:0,2 t2:1,3 -> t1:0,1,2\nB t1 t2 | t1:1 t2:0,2,4 -> t2:0,1,2,3,4",
    ),
    "different: one has everything": (
        "t1=2 t2=2 t3=2",
        "A t1 t2 t3 | t1:0,1 t2:0,1 t3:0,1 -> t2:0 t3:0,1\nB t1 t2 t3 | -> t1:0,1 t2:1",
        "t1:0 t2:0 t3:0 / t1:1 t2:1 t3:1",
    ),
    "different: one subscribes to nothing": ("t1=3", "A t1 | -> t1:0,1,2\nB | ->"),
}

RANGE = {
    "one member, nothing subscribed": ("t1=3", "A | ->"),
    "a first assignment": ("t1=3 t3=2", "A t1 t3 | -> t1:0,1 t3:0\nB t1 t3 | -> t1:2 t3:1"),
    "different subscriptions": (
        "t1=3 t2=3 t3=2",
        "A t1 t2 | -> t1:0,1,2 t2:0,1\nB t3 | -> t3:0\nC t2 t3 | -> t2:2 t3:1",
    ),
    "more members than partitions": ("t1=3 t3=2", "A t1 t3 | -> t1:0 t3:0\nB t1 t3 | -> t1:1 t3:1\nC t1 t3 | -> t1:2"),
    "static members": ("t1=3", "A@instanceA t1 | -> t1:0,1\nB@instanceB t1 | -> t1:2"),
    "a static member under another id": ("t1=3", "A1@instanceA t1 | -> t1:0,1\nB@instanceB t1 | -> t1:2"),
    "static members and one that is not": (
        "t1=5",
        "A@instanceA t1 | -> t1:0,1\nB t1 | -> t1:4\nC@instanceC t1 | -> t1:2,3",
    ),
    "a member joins, nothing to give": (
        "t1=2 t2=2",
        "A t1 t2 | t1:0 t2:0 -> t1:0 t2:0\nB t1 t2 | t1:1 t2:1 -> t1:1 t2:1\nC t1 t2 | ->",
    ),
    "partitions added": ("t1=4 t2=4", "A t1 t2 | t1:0,1 t2:0,1 -> t1:0,1 t2:0,1\nB t1 t2 | t1:2 t2:2 -> t1:2,3 t2:2,3"),
    "a member joins": (
        "t1=3 t2=3",
        "A t1 t2 | t1:0,1 t2:0,1 -> t1:0 t2:0\nB t1 t2 | t1:2 t2:2 -> t1:1 t2:1\nC t1 t2 | -> t1:2 t2:2",
        "t1:0 t2:0 / t1:2 t2:2 / t1:1 t2:1",
    ),
    "a member joins with another subscription, a partition added": (
        "t1=4 t2=3",
        "A t1 t2 | t1:0,1 t2:0,1 -> t1:0,1 t2:0,1\nB t1 t2 | t1:2 t2:2 -> t1:2 t2:2\nC t1 | -> t1:3",
    ),
    "a member left": ("t1=3 t2=3", "B t1 t2 | t1:2 t2:2 -> t1:0,1,2 t2:0,1,2"),
    "all subscriptions change": (
        "t1=3 t2=3 t3=2",
        "A t1 | t1:0,1,2 t2:0 -> t1:0,1\nB t1 t2 t3 | t2:1 -> t1:2 t2:0,1 t3:0,1\nC t2 | t2:2 t3:0,1 -> t2:2",
    ),
}


def read(topics: str, members: str) -> tuple[GroupSpec, dict[str, Assignment]]:
    lines = [line.partition("->") for line in members.splitlines()]
    group = group_of(topics, "\n".join(line for line, _, _ in lines))
    return group, {name: written(line[2]) for name, line in zip(group.members, lines, strict=True)}


def compare(assignor: Assignor, topics: str, members: str, ours: str = "") -> None:
    group, theirs = read(topics, members)
    result = assignor.assign(group)
    if not ours:
        assert {name: printed(got) for name, got in result.items()} == {m: printed(a) for m, a in theirs.items()}
        return
    assert [printed(assignment) for assignment in result.values()] == [line.strip() for line in ours.split("/")]
    assert sorted(sizes(result).values()) == sorted(sizes(theirs).values())
    had = owners_of(group, {m.member_id: m.owned for m in group.members.values()})
    stay = [sum(owners_of(group, a).get(unit) == owner for unit, owner in had.items()) for a in (result, theirs)]
    assert stay[0] >= stay[1]


@pytest.mark.parametrize("case", UNIFORM)
def test_uniform(case: str) -> None:
    compare(UniformAssignor(), *UNIFORM[case])


@pytest.mark.parametrize("case", RANGE)
def test_range(case: str) -> None:
    compare(RangeAssignor(), *RANGE[case])


def test_static_members_that_return_have_what_they_had() -> None:
    """Kafka's mixed case, with a member that returns under another id and its former assignment."""
    group = group_of("t1=5", "A@instanceA t1 |\nB t1 |\nC@instanceC t1 |")
    before = RangeAssignor().assign(group)
    returned = group_of("t1=5", "A1@instanceA t1 |\nB t1 |\nC@instanceC t1 |")
    after = RangeAssignor().assign(with_owned(returned, {**before, "A1": before["A"]}))
    assert (after["A1"], after["B"], after["C"]) == (before["A"], before["B"], before["C"])


@pytest.mark.parametrize("assignor", [UniformAssignor(), RangeAssignor()])
def test_a_topic_that_does_not_exist_is_left_out(assignor: Assignor) -> None:
    result = assignor.assign(group_of("t1=3", "A t1 t2 |\nB t3 |"))
    assert len(partitions_of(result["A"])) == 3
    assert result["B"] == {}


def test_a_hundred_topics_for_fifty_members() -> None:
    topics = {f"t{n}": 3 for n in range(1, 100)}
    names = " ".join(topics)
    group = group_of(" ".join(f"{name}=3" for name in topics), "\n".join(f"m{n} {names} |" for n in range(1, 50)))
    counts = sizes(UniformAssignor().assign(group)).values()
    assert (sum(counts), min(counts), max(counts)) == (297, 6, 7)
