"""The expected pauses of a group per deployment and per day, by protocol and setting, with a recommendation.

A day has a number of deployments, each of which restarts every member once, and a number of crashes of a member, whose
process starts again. The simulation runs both for each way to run the group: protocol, pushed or not, dynamic or static
members. The cost of a day is the sum. Scaling and coordinator failovers need grids of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kohort.simulator.sizing.point import CONSUMER, EAGER, PROTOCOLS, Point, normal, refuse
from kohort.simulator.sizing.summary import Cost

CRASHES = {"rolling": "crash", "rolling-static": "crash-static"}
"""A deployment, and a crash in the same group."""
OWN = ("members", "partitions", "protocol", "assignor", "pushed", "pattern", "count")
CLOSE = 1.25
"""Ways that cost at most this many times the least count as equal; among them the advice is the simplest."""


@dataclass(frozen=True, slots=True)
class Ask:
    members: int
    partitions: int
    deploys_per_day: float
    crashes_per_day: float
    settings: Mapping[str, Any]
    """Other fields of all points."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the group."""

    protocol: str
    pushed: bool
    static: bool
    deploy: Cost
    crash: Cost
    ask: Ask

    @property
    def label(self) -> str:
        polled = "" if self.pushed else ", polled"
        return f"{self.deploy.label}{polled}, {'static' if self.static else 'dynamic'} members"

    @property
    def paused_per_deploy_s(self) -> float:
        return self.deploy.paused_s

    @property
    def paused_per_day_s(self) -> float:
        ask = self.ask
        return ask.deploys_per_day * self.deploy.paused_s + ask.crashes_per_day * self.crash.paused_s

    @property
    def unread_share(self) -> float:
        """The share of a partition's day without a member that works on it."""
        return self.paused_per_day_s / self.ask.partitions / 86_400


@dataclass(frozen=True, slots=True)
class Advice:
    ask: Ask
    ways: tuple[Way, ...]
    """The shortest pause a day first."""
    best: Way
    lines: tuple[str, ...]
    """The recommendation, in sentences."""


def points_of(ask: Ask) -> list[Point]:
    """The points to run. Raises BadPoint."""
    refuse(ask.settings, OWN, "is what is compared")
    common = {**ask.settings, "members": ask.members, "partitions": ask.partitions}
    found = []
    for protocol in PROTOCOLS:
        for pushed in (False, True):
            for pattern in (*CRASHES, *CRASHES.values()):
                count = 1 if pattern in CRASHES.values() else 0
                found.append(normal(Point(**common, protocol=protocol, pushed=pushed, pattern=pattern, count=count)))
    return found


def advise(ask: Ask, costs: Iterable[Cost]) -> Advice:
    """From the costs of the points of `points_of`."""
    by_point = {cost.point: cost for cost in costs}
    ways = []
    for point in points_of(ask):
        if point.pattern not in CRASHES:
            continue
        crash = normal(replace(point, pattern=CRASHES[point.pattern], count=1))
        deploy = by_point.get(point)
        if deploy is not None and crash in by_point:
            ways.append(Way(point.protocol, point.pushed, point.static, deploy, by_point[crash], ask))
    ways.sort(key=lambda way: (way.paused_per_day_s, way.label))
    best = _best(ways)
    return Advice(ask, tuple(ways), best, tuple(_words(ask, ways, best)))


def _best(ways: list[Way]) -> Way:
    """Among the cheapest ways: dynamic members before static ones, then fewer requests."""
    bound = ways[0].paused_per_day_s * CLOSE
    close = [way for way in ways if way.paused_per_day_s <= bound]
    return min(close, key=lambda way: (way.static, way.deploy.requests, way.label))


def _words(ask: Ask, ways: list[Way], best: Way) -> Iterable[str]:
    deploys, crashes = ask.deploys_per_day, ask.crashes_per_day
    yield (
        f"{ask.members} members, {ask.partitions} partitions, {deploys:g} deployments and {crashes:g} crashes a day: "
        f"run it as {best.label}."
    )
    yield (
        f"A deployment then costs {best.paused_per_deploy_s:.1f} partition-seconds, "
        f"{best.paused_per_deploy_s / ask.partitions:.2f} s for a partition in the mean and "
        f"{best.deploy.longest_pause_s:.1f} s for the worst; a crash {best.crash.paused_s:.1f}. Over a day nobody "
        f"works on a partition for {best.paused_per_day_s / ask.partitions:.1f} s "
        f"({best.unread_share:.4%} of the time)."
    )
    barrier = next((way for way in ways if way.protocol == EAGER and not way.pushed and not way.static), None)
    if barrier is not None and barrier is not best and best.paused_per_day_s > 0:
        yield (
            f"The classic eager protocol, polled, dynamic members, would cost {barrier.paused_per_deploy_s:.1f} a "
            f"deployment and {barrier.crash.paused_s:.1f} a crash: "
            f"{barrier.paused_per_day_s / best.paused_per_day_s:.0f} times as much a day."
        )
    yield from _hints(ask, ways, best)


def _hints(ask: Ask, ways: list[Way], best: Way) -> Iterable[str]:
    crashes = ask.crashes_per_day * best.crash.paused_s
    if best.paused_per_day_s > 0 and crashes > best.paused_per_day_s / 2:
        yield (
            "Most of it is crashes, and most of a crash is waiting for the session "
            f"({best.crash.point.session_ms / 1000:g} s) to end: a shorter session costs less, but it "
            "must be longer than any pause of a live member."
        )
    restart_s = best.deploy.point.restart_ms / 1000
    if best.static:
        yield (
            f"Static members keep their partitions while they are away ({restart_s:g} s): it is the process's start "
            "that the group waits for. Where that takes longer than a hand-over, dynamic members cost less."
        )
    else:
        static = next((w for w in ways if w.static and (w.protocol, w.pushed) == (best.protocol, best.pushed)), None)
        if static is not None and static.paused_per_deploy_s > best.paused_per_deploy_s:
            yield (
                f"Static members would cost {static.paused_per_deploy_s:.1f} a deployment: their partitions wait "
                f"{restart_s:g} s for the process to come back, dynamic members' go to others meanwhile. They move "
                f"nothing, though ({best.deploy.moves:.0f} moves a deployment otherwise); where a move is dear, caches "
                "cold and state to be loaded, set start_ms and compare again."
            )
    if best.protocol == CONSUMER and best.pushed:
        polled = next((w for w in ways if w.protocol == CONSUMER and not w.pushed and w.static == best.static), None)
        if polled is not None and polled.deploy.requests:
            yield (
                f"Pushing costs requests: {best.deploy.requests_per_s:.1f} a second during a deployment, where polling "
                f"takes {polled.deploy.requests_per_s:.1f}."
            )
