"""The moves of a dry run: counted by hand, over random groups, and for refused answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from assignor_groups import group_of, groups, printed
from hypothesis import given

from kohort.coordinator.assignors.dry_run import DryRun, what_would_move
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec


class Answers:
    """An assignor that answers what it was made with; or raises it."""

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
