"""The check of a plug-in's answer, which plug-ins are added, and the moves of a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from assignor_groups import group_of, groups, printed, topic_id
from hypothesis import given

from kohort.coordinator.assignors.check import checked
from kohort.coordinator.assignors.dry_run import DryRun, what_would_move
from kohort.coordinator.assignors.registry import BUILT_IN, with_plugins
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec

T1, T2, T3 = topic_id("t1"), topic_id("t2"), topic_id("t3")
GROUP = group_of("t1=3 t2=2", "A t1 t2 |\nB t1 |")


def test_an_answer_is_tidied() -> None:
    answer = {"A": {T1: [2, 0], T2: ()}}
    assert checked(GROUP, answer) == {"A": {T1: (0, 2)}, "B": {}}
    assert checked(GROUP, {"B": {T1: range(3)}, "A": {T2: {1, 0}}}) == {"A": {T2: (0, 1)}, "B": {T1: (0, 1, 2)}}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "the answer is a NoneType, not a mapping of members to their partitions"),
        ([("A", {})], "the answer is a list, not a mapping of members to their partitions"),
        ({"C": {}}, "unknown member 'C'"),
        ({7: {}}, "unknown member 7"),
        ({"x" * 500: {}}, "unknown member '" + "x" * 78 + "…"),
        ({"A": [T1]}, "member A gets a list, not a mapping of topic ids to partitions"),
        ({"A": {T3: (0,)}}, f"member A gets partitions of an unknown topic, {T3!r}"),
        ({"A": {"t1": (0,)}}, "member A gets partitions of an unknown topic, 't1'"),
        ({"B": {T2: (0,)}}, "member B gets partitions of t2, which it is not subscribed to"),
        ({"A": {T1: (3,)}}, "member A gets partition 3 of t1, which has 3"),
        ({"A": {T1: (-1,)}}, "member A gets partition -1 of t1, which has 3"),
        ({"A": {T1: (True,)}}, "member A gets partition True of t1, which has 3"),
        ({"A": {T1: ("0",)}}, "member A gets partition '0' of t1, which has 3"),
        ({"A": {T1: (0, 0)}}, "member A gets a partition of t1 twice"),
        ({"A": {T1: range(10**9)}}, "member A gets 1000000000 partitions of t1, which has 3"),
        ({"A": {T1: 0}}, "member A gets 0 as partitions of t1"),
        ({"A": {T1: "012"}}, "member A gets '012' as partitions of t1"),
        ({"A": {T1: (0, 1)}, "B": {T1: (1, 2)}}, "partition 1 of t1 goes to A and to B"),
    ],
)
def test_an_answer_is_refused(answer: object, why: str) -> None:
    assert checked(GROUP, answer) == why


class Named:
    def __init__(self, name: object) -> None:
        self.name = name

    def assign(self, group: object) -> Mapping[str, object]:
        return {}


class Shy:
    @property
    def name(self) -> str:
        raise RuntimeError("who asks?")


def test_plugins_stand_beside_the_built_in_assignors() -> None:
    mine = Named("mine")
    assignors, refusals = with_plugins({"mine": mine})
    assert list(assignors) == ["uniform", "range", "rack", "lag", "mine"]
    assert assignors["mine"] is mine
    assert refusals == ()


def test_unfit_plugins_are_left_out() -> None:
    class Idle:
        name = "idle"

    assignors, refusals = with_plugins(
        {"uniform": Named("uniform"), "other": Named("mine"), "idle": Idle(), "shy": Shy(), "none": None}
    )
    assert assignors == BUILT_IN
    assert refusals == (
        "assignor idle: it has no method assign(group)",
        "assignor none: its name is not that of its entry point",
        "assignor other: its name is not that of its entry point",
        "assignor shy: it cannot be asked for its name: RuntimeError: who asks?",
        "assignor uniform: this is the name of a built-in assignor",
    )


# -- a dry run: its moves compared with a plain count, over random groups, and for refused answers


class Answers:
    """An assignor that returns or raises its constructor's argument."""

    def __init__(self, answer: Any) -> None:
        self.name, self.answer = "answers", answer

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def tried(group: GroupSpec, assignor: Assignor) -> DryRun:
    result = what_would_move(group, assignor)
    assert isinstance(result, DryRun), result
    return result


def test_a_newcomer_gets_its_share() -> None:
    group = group_of("t=4", "a t | t:0,1,2,3\nb t")
    result = tried(group, BUILT_IN["uniform"])
    assert [(c.member.member_id, c.before, c.after) for c in result.changes] == [("a", 4, 2), ("b", 0, 2)]
    a, b = result.changes
    assert printed(a.gives_up) == printed(b.gets) != ""
    assert not a.gets
    assert not b.gives_up
    assert (result.partitions, result.moved, result.taken, result.released, result.unassigned) == (4, 2, 0, 0, 0)


def test_partitions_without_an_owner_before_or_after() -> None:
    group = group_of("t=4", "a t | t:0,1\nb t | t:1,7")
    result = tried(group, Answers({"b": {next(iter(group.topics)): [1, 2]}}))
    assert (result.moved, result.taken, result.released, result.unassigned) == (1, 1, 1, 2)
    assert [(c.before, c.after, printed(c.gets), printed(c.gives_up)) for c in result.changes] == [
        (2, 0, "", "t:0,1"),
        (0, 2, "t:1,2", ""),
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"stranger": {}}, "unknown member 'stranger'"),
        (None, "the answer is a NoneType, not a mapping of members to their partitions"),
        (KeyError("rack"), "KeyError: 'rack'"),
    ],
)
def test_a_refusal_is_the_reason(answer: Any, reason: str) -> None:
    assert what_would_move(group_of("t=1", "a t"), Answers(answer)) == reason


@given(groups())
def test_the_sums_fit(group: GroupSpec) -> None:
    for assignor in BUILT_IN.values():
        result = tried(group, assignor)
        gets = sum(len(indexes) for change in result.changes for indexes in change.gets.values())
        gives_up = sum(len(indexes) for change in result.changes for indexes in change.gives_up.values())
        assert gets == result.moved + result.taken
        assert gives_up == result.moved + result.released
        assert sum(change.after for change in result.changes) + result.unassigned == result.partitions
        for change in result.changes:
            assert change.after == change.before + sum(map(len, change.gets.values())) - sum(
                map(len, change.gives_up.values())
            )
