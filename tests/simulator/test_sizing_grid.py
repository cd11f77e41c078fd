"""Grids, points, and the board that counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.simulator.sizing import BadPoint, Grid, Point, grid_in, grid_of
from kohort.simulator.sizing.board import Board, needed_moves
from kohort.simulator.sizing.point import normal, point_of
from kohort.simulator.world.world import World


def test_settings_that_a_protocol_lacks_make_no_separate_points() -> None:
    grid = Grid(members=(4,), handover=(0, 2), patterns=("rolling", "rolling-hold"))
    points = grid.points()
    assert len(points) == len(set(points))
    assert {point.protocol for point in points if point.pattern == "rolling-hold"} == {"consumer"}
    assert {point.protocol for point in points if point.handover} == {"consumer"}
    # rolling: eager and cooperative once each, consumer with and without; rolling-hold: consumer with and without
    assert len(points) == 2 * (1 + 1 + 2 + 2)


def test_partitions_for_each_member() -> None:
    points = Grid(members=(3, 5), partitions=("4x", 60), protocols=("consumer",), pushed=(True,)).points()
    sizes = {(point.members, point.partitions) for point in points}
    assert sizes == {(3, 12), (3, 60), (5, 20), (5, 60)}


def test_each_protocol_takes_the_assignors_that_it_has() -> None:
    points = Grid(
        members=(3,), assignors=("range", "uniform", "sticky"), patterns=("rolling",), pushed=(True,)
    ).points()
    found = {(point.protocol, point.assignor) for point in points}
    assert found == {("eager", "range"), ("eager", "sticky"), ("consumer", "range"), ("consumer", "uniform")}


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_grid_in_a_file(tmp_path: Path, suffix: str) -> None:
    values: dict[str, Any] = {"members": [3, 9], "protocols": "consumer", "pushed": [True], "settings": {"poll_ms": 50}}
    path = tmp_path / f"grid{suffix}"
    toml = 'members = [3, 9]\nprotocols = "consumer"\npushed = [true]\n[settings]\npoll_ms = 50\n'
    path.write_text(json.dumps(values) if suffix == ".json" else toml)
    points = grid_in(path).points()
    assert grid_in(path) == grid_of(values)
    assert {(point.members, point.protocol, point.poll_ms) for point in points} == {
        (3, "consumer", 50),
        (9, "consumer", 50),
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"member": [3]}, "member: a grid has"),
        ({"members": []}, "members: the list is empty"),
        ({"members": [0]}, "members: 0 is not between"),
        ({"members": ["ten"]}, "members: 'ten' is not a whole number"),
        ({"partitions": ["x"]}, "partitions: 'x' is neither"),
        ({"partitions": [-1]}, "partitions: -1 is neither"),
        ({"protocols": ["raft"]}, "protocols: 'raft' is none of"),
        ({"assignors": ["astrology"]}, "assignors: there is no 'astrology'"),
        ({"assignors": ["sticky"], "protocols": ["consumer"]}, "the grid has no points"),
        ({"patterns": ["explode"]}, "pattern: 'explode' is none of"),
        ({"pushed": ["often"]}, "pushed: 'often' is neither"),
        ({"settings": {"speed": 3}}, "speed: there is no such setting"),
        ({"settings": {"members": 3}}, "settings: members is one of the grid's lists"),
        ({"settings": {"session_ms": 2_000}}, "session_ms: 2000 must be more than heartbeat_ms"),
        ({"settings": {"crashes_per_hour": -1.0}}, "crashes_per_hour: -1.0 is not a number"),
        ({"settings": {"topics": 1_000}, "members": [3]}, "topics: 1000 topics cannot share"),
        ({"patterns": ["zone"], "members": [1]}, "count: 1 of 1 members are too many for zone"),
    ],
)
def test_nonsensical_settings_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadPoint, match=said.replace("(", r"\(")):
        grid_of(values).points()


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text("members = [")
    with pytest.raises(BadPoint, match=r"grid\.toml"):
        grid_in(path)


def test_points_that_mean_the_same_are_the_same() -> None:
    assert normal(Point(protocol="eager", handover=3)) == normal(Point(protocol="eager"))
    assert normal(Point()) == point_of({"heartbeat_ms": 5_000, "assignor": "uniform"})
    assert normal(Point(protocol="eager")).heartbeat_ms == 3_000


# -- the board


def board(partitions: int = 4) -> tuple[World, Board]:
    world = World(1)
    found = Board(world, partitions)
    for place in range(partitions):
        found.starts(place, "a" if place < partitions // 2 else "b")
    world.now = 1_000
    found.begin()
    return world, found


def test_pauses_moves_and_repeated_work() -> None:
    world, found = board()
    found.committed(0, 1_000)
    world.now = 3_000
    found.disturbed()
    for place in (0, 1):
        found.stops(place, "a")
    world.now = 3_500
    found.starts(0, "b")
    world.now = 4_000
    found.starts(1, "a")
    world.now = 9_000
    tally = found.tally({"a", "b"})
    assert (tally.paused_ms, tally.longest_pause_ms, tally.partitions_paused) == (1_500, 1_000, 2)
    assert (tally.moves, tally.resumed, tally.needed_moves) == (1, 1, 0)
    assert tally.repeated_ms == 2_000 + 3_000  # of 0 from the commit on, of 1 from its start
    assert tally.stable_ms == (1_000,)
    assert tally.settled


def test_two_simultaneous_owners_and_a_pause_at_the_end_are_counted() -> None:
    world, found = board()
    world.now = 2_000
    found.starts(0, "b")
    world.now = 5_000
    found.stops(0, "a")
    found.stops(3, "b")
    world.now = 6_000
    tally = found.tally({"a", "b"})
    assert tally.twice_ms == 3_000
    assert tally.paused_ms == 1_000
    assert not tally.settled


@pytest.mark.parametrize(
    ("owners", "members", "needed"),
    [
        ("aabb", "ab", 0),
        ("aabb", "abc", 1),
        ("aabb", "a", 2),
        ("aabb", "cd", 4),
        ("aaab", "ab", 1),
        ("aaabbbccc", "abcd", 2),
    ],
)
def test_how_many_moves_an_even_share_needs(owners: str, members: str, needed: int) -> None:
    assert needed_moves(dict(enumerate(owners)), set(members), len(owners)) == needed
