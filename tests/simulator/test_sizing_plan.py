"""A fleet's load from single shards: extrapolated as it says, and near to what a whole small fleet costs."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from kohort.simulator.sizing import BadPoint, Point, run
from kohort.simulator.sizing.plan import Fleet, plan, points_of
from kohort.simulator.sizing.point import normal
from kohort.simulator.sizing.summary import Cost, costs

FLEET = Fleet(1_000, 10, 40, 1.0, 0.0, {})


def cost(point: Point, **values: Any) -> Cost:
    """Of a member in a second: a request, half a heartbeat, ten microseconds; for a restart 20 requests."""
    members, seconds = point.groups * point.members, 60.0
    restarts = 100.0 if point.restarts_per_hour else 0.0
    zero = dict.fromkeys((name for name in Cost.__dataclass_fields__ if name not in ("point", "label")), 0.0)
    given = {
        "requests": members * seconds + 20 * restarts,
        "heartbeats": members * seconds / 2,
        "records": members * seconds * 0.4,
        "record_bytes": members * seconds * 40,
        "cpu_ms": members * seconds * 0.01 + 5 * restarts,
        "state_bytes": members * 2_000.0,
        "disturbances": restarts,
        "measured_s": seconds,
        "settled": True,
    }
    return Cost(**{**zero, "point": point, "label": point.label(), "runs": 1, **given, **values})


def test_shards_add_up_and_restarts_come_on_top() -> None:
    lines = plan(FLEET, [cost(point) for point in points_of(FLEET)], shards=(10, 100))
    assert [line.label for line in lines] == ["eager, polled", "consumer, polled", "consumer, pushed"]
    for line in lines:
        assert line.restart.requests == pytest.approx(20)
        assert line.restart.cpu_s == pytest.approx(0.005)
        for load in line.loads:
            assert load.requests_per_s == pytest.approx(10_000 + 20 * FLEET.restarts_per_s)
            assert load.cores == pytest.approx(0.1 + 0.005 * FLEET.restarts_per_s)
            assert load.shard_share == pytest.approx(load.cores / load.shards)
            assert load.state_bytes == pytest.approx(20e6)
            assert load.members_of_a_shard == 10_000 / load.shards
            assert load.spread == pytest.approx(0)
            assert not load.beyond


def test_between_samples_in_proportion_and_beyond_them_as_in_the_largest() -> None:
    found = [
        cost(point, cpu_ms=point.groups * 10 * 60.0 * (0.02 if point.groups < 200 else 0.01))
        for point in points_of(FLEET)
    ]
    fleet = replace(FLEET, deploys_per_day=0.0)
    [line, *_] = plan(fleet, found, shards=(2, 5, 8, 100))
    beyond, largest, between, small = line.loads
    assert (beyond.beyond, largest.beyond) == (True, False)
    assert beyond.cores == largest.cores == pytest.approx(0.1)
    # 1,250 members: 850 of the 1,600 between the samples of 400 and 2,000
    assert between.cores == pytest.approx(0.2 - 0.1 * 850 / 1_600)
    assert between.spread == pytest.approx(0.5)
    assert small.cores == pytest.approx(0.2)


def test_a_fleet_needs_groups() -> None:
    with pytest.raises(BadPoint, match="groups"):
        points_of(replace(FLEET, groups=0))


@pytest.mark.long
def test_the_extrapolation_is_near_to_a_run_of_all() -> None:
    """40 groups on four shards, by single shards of a few groups: what is asked and written."""
    fleet = Fleet(40, 5, 10, 0.0, 0.0, {"observe_ms": 10_000})
    base = {"members": 5, "partitions": 10, "pattern": "steady", "pushed": False, "observe_ms": 10_000}
    sampled = [
        normal(Point(**base, shards=1, groups=point.groups, restarts_per_hour=point.restarts_per_hour))
        for point in points_of(fleet)
        if (point.protocol, point.pushed) == ("consumer", False) and point.groups <= 20
    ]
    found, _ = costs({**_fields(point), **asdict(run(point, 1)), "error": None} for point in sampled)
    [line] = plan(fleet, found, shards=(4,))
    whole = run(Point(**base, shards=4, groups=40), 2)
    seconds = whole.measured_ms / 1000
    assert line.loads[0].requests_per_s == pytest.approx(whole.requests / seconds, rel=0.1)
    assert line.loads[0].records_per_s == pytest.approx(whole.records / seconds, rel=0.1)
    assert line.loads[0].state_bytes > 0


def _fields(point: Point) -> dict[str, Any]:
    return {name: getattr(point, name) for name in Point.__dataclass_fields__}
