"""The load of a whole fleet of groups on its coordinators, extrapolated from runs of single shards.

Shards (partitions of `__consumer_offsets`) share nothing, so the fleet's load is the sum over its shards. Runs of
shards of a few sizes, with groups of the fleet's size, give the cost of a member in a quiet second: requests, records,
processor time, memory. The cost for other sizes is interpolated; beyond the largest size it stays constant. Other runs
measure restarts and crashes: the cost of a run with many of them above a quiet one, divided by their number; it is
added at the fleet's rate.

Each figure has an uncertainty: the difference of a member's processor time between the two nearest sampled sizes.
Processor time is Python's on this machine, one core, without sockets and disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from kohort.simulator.sizing.point import CONSUMER, EAGER, BadPoint, Point, normal, refuse
from kohort.simulator.sizing.summary import Cost

MEMBERS_OF_A_SHARD = (20, 100, 400, 2_000)
"""The sizes of the shards that are simulated, in members, about."""
SHARDS = (50, 200, 1_000, 4_000, 10_000)
"""The numbers of shards for which a plan gives the load."""
WAYS = ((EAGER, False), (CONSUMER, False), (CONSUMER, True))
OWN = ("members", "partitions", "groups", "shards", "protocol", "assignor", "pushed", "pattern", "restarts_per_hour")
OBSERVE_MS = 60_000
RESTARTS_PER_HOUR = 120.0
"""Restarts of each group in the runs that measure restarts."""
RESTARTED_GROUPS = 10
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Fleet:
    groups: int
    members: int
    """Of each group."""
    partitions: int
    """Of each group."""
    deploys_per_day: float
    crashes_per_day: float
    """Of each group."""
    settings: Mapping[str, Any]
    """Other fields of all points."""

    @property
    def all_members(self) -> int:
        return self.groups * self.members

    @property
    def restarts_per_s(self) -> float:
        """Restarts of members per second, over all groups."""
        return self.groups * (self.deploys_per_day * self.members + self.crashes_per_day) / DAY_S


class Rates(NamedTuple):
    """The cost of a member per second, or of one restart."""

    requests: float
    heartbeats: float
    records: float
    record_bytes: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """The load of the whole fleet on a number of shards."""

    shards: int
    members_of_a_shard: float
    requests_per_s: float
    heartbeats_per_s: float
    records_per_s: float
    record_bytes_per_s: float
    cores: float
    shard_share: float
    """The share of one core that one shard needs."""
    state_bytes: float
    spread: float
    """Relative uncertainty of the processor time, from the samples."""
    beyond: bool
    """The shards are larger than all sampled ones."""


@dataclass(frozen=True, slots=True)
class Line:
    """One protocol, pushed or not."""

    label: str
    samples: tuple[tuple[int, Rates], ...]
    """Number of members of each sampled shard, and the cost of one."""
    restart: Rates
    loads: tuple[Load, ...]


def points_of(fleet: Fleet) -> list[Point]:
    """The points to run. Raises BadPoint."""
    refuse(fleet.settings, OWN, "is what is compared")
    if fleet.groups < 1:
        raise BadPoint(f"groups: {fleet.groups} is less than 1")
    if fleet.members < 1:
        raise BadPoint(f"members: {fleet.members} is less than 1")
    return [point for protocol, pushed in WAYS for point in _points(fleet, protocol, pushed)]


def _points(fleet: Fleet, protocol: str, pushed: bool) -> list[Point]:
    common = {
        "observe_ms": OBSERVE_MS,
        **fleet.settings,
        "members": fleet.members,
        "partitions": fleet.partitions,
        "protocol": protocol,
        "pushed": pushed,
        "pattern": "steady",
        "shards": 1,
    }
    sizes = dict.fromkeys(max(1, round(size / fleet.members)) for size in MEMBERS_OF_A_SHARD)
    quiet = [normal(Point(**common, groups=groups)) for groups in sizes]
    restarted = Point(**common, groups=RESTARTED_GROUPS, restarts_per_hour=RESTARTS_PER_HOUR)
    return [*quiet, normal(restarted)]


def plan(fleet: Fleet, costs: Iterable[Cost], shards: Sequence[int] = SHARDS) -> list[Line]:
    """The lines of the plan, from the costs of the points of `points_of`; ways without figures are left out."""
    by_point = {cost.point: cost for cost in costs}
    lines = []
    for protocol, pushed in WAYS:
        *quiet, restarted = (by_point.get(point) for point in _points(fleet, protocol, pushed))
        found = [cost for cost in quiet if cost is not None]
        if found and restarted is not None:
            lines.append(_line(fleet, found, restarted, shards))
    return lines


def _line(fleet: Fleet, quiet: list[Cost], restarted: Cost, shards: Sequence[int]) -> Line:
    samples = tuple((cost.point.groups * cost.point.members, _rates(cost)) for cost in quiet)
    in_quiet = _at(samples, restarted.point.groups * restarted.point.members)
    restart = _restart(restarted, in_quiet)
    last = quiet[-1]
    state = last.state_bytes / (last.point.groups * last.point.members)
    loads = tuple(_load(fleet, number, samples, restart, state) for number in shards)
    label = quiet[0].label if quiet[0].point.pushed else f"{quiet[0].label}, polled"
    return Line(label, samples, restart, loads)


def _rates(cost: Cost) -> Rates:
    seconds = cost.point.groups * cost.point.members * cost.measured_s
    return Rates(*(figure / seconds for figure in _figures(cost)))


def _figures(cost: Cost) -> Rates:
    """The rates over a whole run."""
    return Rates(cost.requests, cost.heartbeats, cost.records, cost.record_bytes, cost.cpu_ms / 1000)


def _restart(cost: Cost, quiet: Rates) -> Rates:
    """The cost of one restart above that of a quiet time."""
    seconds = cost.point.groups * cost.point.members * cost.measured_s
    times = max(1.0, cost.disturbances)
    pairs = zip(_figures(cost), quiet, strict=True)
    return Rates(*(max(0.0, figure - each * seconds) / times for figure, each in pairs))


def _load(fleet: Fleet, shards: int, samples: Sequence[tuple[int, Rates]], restart: Rates, state: float) -> Load:
    members, restarts = fleet.all_members, fleet.restarts_per_s
    rates = _at(samples, members / shards)
    totals = Rates(*(members * each + restarts * of_restart for each, of_restart in zip(rates, restart, strict=True)))
    return Load(
        shards,
        members / shards,
        *totals,
        totals.cpu_s / shards,
        members * state,
        _spread(samples, members / shards),
        members / shards > samples[-1][0],
    )


def _at(samples: Sequence[tuple[int, Rates]], size: float) -> Rates:
    """The cost of a member in a shard of this size."""
    if size <= samples[0][0]:
        return samples[0][1]
    for (low, before), (high, after) in pairwise(samples):
        if size <= high:
            share = (size - low) / (high - low)
            return Rates(*(a + share * (b - a) for a, b in zip(before, after, strict=True)))
    return samples[-1][1]


def _spread(samples: Sequence[tuple[int, Rates]], size: float) -> float:
    """Relative difference of the neighbouring samples' processor time."""
    if len(samples) < 2:
        return 0.0
    upper = next((n for n, (high, _) in enumerate(samples) if size <= high and n > 0), len(samples) - 1)
    one, other = samples[upper - 1][1].cpu_s, samples[upper][1].cpu_s
    return abs(one - other) / max(one, other, 1e-12)
