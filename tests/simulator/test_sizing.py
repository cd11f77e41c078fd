"""Measured groups: properties that must hold, whatever the figures are; the same seed gives the same figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kohort.simulator.sizing import Point, run
from kohort.simulator.sizing.point import ASSIGNORS, PATTERNS
from kohort.simulator.sizing.replay import Change, replay

SRC = Path(__file__).parents[2] / "src"
SEEDS = range(2)


def total(field: str, **point: Any) -> float:
    return sum(getattr(run(Point(**point), seed), field) for seed in SEEDS)


@pytest.mark.parametrize(
    ("protocol", "pattern"),
    # A rollout hold is for the consumer protocol only.
    [(p, q) for p in ASSIGNORS for q in PATTERNS if p == "consumer" or q != "rolling-hold"],
)
def test_every_pattern_ends_with_every_partition_at_work(protocol: str, pattern: str) -> None:
    measures = run(Point(members=6, partitions=18, protocol=protocol, pattern=pattern), 1)
    assert measures.settled
    assert measures.moves >= measures.needed_moves
    assert measures.cpu_ms > 0
    assert measures.requests > measures.heartbeats > 0
    assert (measures.disturbances > 0) == (pattern != "steady")


@pytest.mark.parametrize("assignor", [(p, a) for p, names in ASSIGNORS.items() for a in names])
def test_every_assignor(assignor: tuple[str, str]) -> None:
    protocol, name = assignor
    point = Point(members=5, partitions=20, topics=2, protocol=protocol, assignor=name, pattern="scale-out")
    assert run(point, 2).settled


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_a_barrier_pauses_what_a_hand_over_does_not(client: str) -> None:
    """One newcomer: eager stops everything, the others what moves."""
    point: dict[str, Any] = {"members": 10, "partitions": 60, "pattern": "scale-out", "count": 1, "client": client}
    paused = {protocol: run(Point(protocol=protocol, **point), 3) for protocol in ASSIGNORS}
    assert paused["eager"].partitions_paused == 60
    for protocol in ("cooperative", "consumer"):
        assert paused[protocol].partitions_paused == paused[protocol].needed_moves == 5
        assert paused[protocol].paused_ms < paused["eager"].paused_ms
    assert paused["consumer"].moves == 5


def test_a_rolling_restart_pauses_least_where_the_server_hands_over() -> None:
    paused = {
        protocol: total("paused_ms", members=6, partitions=36, protocol=protocol, pattern="rolling")
        for protocol in ASSIGNORS
    }
    assert paused["consumer"] < paused["cooperative"] < paused["eager"]


def test_pushed_rebalances_are_faster_than_polled_ones() -> None:
    point: dict[str, Any] = {"members": 6, "partitions": 36, "pattern": "rolling"}
    pushed, polled = ([run(Point(pushed=pushed, **point), seed) for seed in SEEDS] for pushed in (True, False))
    assert sum(each.stable_ms for each in pushed) < sum(each.stable_ms for each in polled) / 2
    assert sum(each.paused_ms for each in pushed) < sum(each.paused_ms for each in polled)


@pytest.mark.parametrize("protocol", ASSIGNORS)
def test_static_members_come_back_within_their_session_without_a_rebalance(protocol: str) -> None:
    point = Point(members=8, partitions=40, protocol=protocol, pattern="rolling-static")
    assert point.restart_ms < point.session_ms
    measures = run(point, 1)
    assert measures.moves == 0
    assert measures.partitions_paused == 40
    assert measures.resumed == 40
    if protocol != "consumer":  # whose epoch a static member's return raises
        assert measures.rebalances == 0
    crashed = run(replace(point, pattern="crash-static", count=2), 1)
    if protocol != "consumer":
        assert crashed.moves == 0
        assert crashed.longest_pause_ms < 2 * point.restart_ms
    else:  # KIP-848 gives an instance id away only when its holder has left or its session is over (error 111)
        assert crashed.longest_pause_ms > point.session_ms / 2
    beyond = run(replace(point, session_ms=6_000, restart_ms=9_000), 1)
    assert beyond.moves > 0


@pytest.mark.parametrize("at_most", [1, 2])
def test_a_gradual_hand_over_moves_so_many_at_a_time(at_most: int) -> None:
    interval_ms = 2_000
    point = Point(members=3, partitions=24, pattern="scale-out", count=1, pause_ms=60_000)
    gradual = replace(point, handover=at_most, handover_interval_ms=interval_ms)
    whole, slow = run(point, 1), run(gradual, 1)
    assert slow.moves == whole.moves == 6
    assert slow.stable_ms >= (6 // at_most - 1) * interval_ms > whole.stable_ms
    # Partitions move in steps, and the others do not pause while one moves.
    assert slow.longest_pause_ms < slow.stable_ms / 2


def test_a_dead_member_stops_all_members_only_with_a_barrier() -> None:
    """It starts again before its session is over: the eager group waits for the dead one, with everything stopped."""
    paused = {
        protocol: run(Point(members=10, partitions=60, protocol=protocol, pattern="crash", count=1), 1)
        for protocol in ASSIGNORS
    }
    assert paused["eager"].partitions_paused == 60
    for protocol in ("cooperative", "consumer"):
        assert paused[protocol].paused_ms < paused["eager"].paused_ms / 5
    for measures in paused.values():
        assert measures.repeated_ms > 0  # what it had not committed


def test_a_shorter_session_shortens_the_pause_after_a_crash() -> None:
    crash = Point(members=10, partitions=60, pattern="crash", count=1)
    dies = run(crash, 1)
    assert dies.longest_pause_ms > crash.session_ms / 2
    short = run(replace(crash, session_ms=10_000), 1)
    assert short.longest_pause_ms < dies.longest_pause_ms


def test_a_coordinator_that_fails_over_pauses_nothing() -> None:
    for protocol in ASSIGNORS:
        measures = run(Point(members=10, partitions=60, protocol=protocol, pattern="failover"), 1)
        assert (measures.paused_ms, measures.moves, measures.rebalances) == (0, 0, 0), protocol


def test_slow_members_hold_up_a_hand_over() -> None:
    point = Point(members=6, partitions=36, pattern="scale-out", count=1)
    quick, slow = run(point, 1), run(replace(point, poll_ms=8_000), 1)
    assert slow.stable_ms > quick.stable_ms
    revoke = run(replace(point, revoke_ms=4_000), 1)
    assert revoke.paused_ms > quick.paused_ms + 3_000 * revoke.needed_moves


@pytest.mark.long
def test_failures_by_the_hour() -> None:
    calm = Point(members=5, partitions=20, pattern="steady", pushed=False, observe_ms=600_000)
    assert run(calm, 1).paused_ms == 0
    failing = run(replace(calm, crashes_per_hour=30.0), 1)
    assert 1 <= failing.disturbances <= 15
    assert failing.paused_ms > 0
    assert failing.settled


def test_groups_share_the_coordinator_and_nothing_else() -> None:
    one = run(Point(members=4, partitions=8, pattern="scale-out", count=1), 1)
    many = run(Point(members=4, partitions=8, groups=5, pattern="scale-out", count=1), 1)
    assert many.settled
    assert many.moves == 5 * one.moves
    assert many.disturbances == 5
    assert many.requests > 3 * one.requests


@pytest.mark.long
def test_the_figures_depend_on_the_point_and_the_seed_alone() -> None:
    program = (
        "import dataclasses, json, sys\n"
        "from kohort.simulator.sizing import Point, run\n"
        "for protocol in ('eager', 'cooperative', 'consumer'):\n"
        "    for seed in range(2):\n"
        "        point = Point(members=4, partitions=12, protocol=protocol, crashes_per_hour=60.0)\n"
        "        row = dataclasses.asdict(run(point, seed))\n"
        "        del row['cpu_ms'], row['state_bytes']\n"
        "        print(json.dumps(row))\n"
    )
    seen = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SRC)}
        found = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        seen.append([json.loads(line) for line in found.stdout.splitlines()])
    here = [
        asdict(run(Point(members=4, partitions=12, protocol=protocol, crashes_per_hour=60.0), seed))
        for protocol in ("eager", "cooperative", "consumer")
        for seed in range(2)
    ]
    for row in here:
        del row["cpu_ms"], row["state_bytes"]  # the seed does not decide them
    assert seen[0] == seen[1] == here
    assert len({row["digest"] for row in here}) == len(here)


# -- changes of a real group


RESTART = (Change(1_000, "leaves", 0), Change(5_000, "joins", 0))


@pytest.mark.parametrize("protocol", list(ASSIGNORS))
def test_a_replayed_restart(protocol: str) -> None:
    point = Point(members=4, partitions=12, protocol=protocol)
    dynamic = replay(point, RESTART, {})
    static = replay(replace(point, pattern="rolling-static"), RESTART, {})
    assert dynamic.settled
    assert static.settled
    assert dynamic.rebalances > static.rebalances == 0
    assert dynamic.moves > static.moves == 0
    assert static.longest_pause_ms >= 5_000, "its partitions wait for it"


def test_a_slow_member_stops_all_only_where_there_is_a_barrier() -> None:
    points = {protocol: Point(members=4, partitions=12, protocol=protocol) for protocol in ASSIGNORS}
    paused = {protocol: replay(point, RESTART, {1: 20_000}).paused_ms for protocol, point in points.items()}
    assert paused["consumer"] < paused["eager"]
    assert replay(points["eager"], RESTART, {}).paused_ms < paused["eager"]


def test_replayed_newcomers_and_deaths() -> None:
    point = Point(members=2, partitions=6, session_ms=10_000)
    grown = replay(point, [Change(1_000, "joins", 3), Change(1_000, "joins", 2)], {3: 1_000})
    assert grown.settled
    assert grown.moves >= grown.needed_moves > 0
    died = replay(point, [Change(1_000, "dies", 1)], {})
    assert died.settled
    assert died.longest_pause_ms >= 10_000
    assert asdict(replace(died, cpu_ms=0)) == asdict(replace(replay(point, [Change(1_000, "dies", 1)], {}), cpu_ms=0))
