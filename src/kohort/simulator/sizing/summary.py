"""A summary of the runs of one point: means over the seeds, and their ranges.

Times are in seconds here; the rows of runs have milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.simulator.sizing.point import FIELDS, Point

MEANS = (
    *("partitions_paused", "moves", "needed_moves", "resumed", "disturbances", "rebalances"),
    *("requests", "heartbeats", "records", "record_bytes", "cpu_ms", "state_bytes"),
)
"""Figures that a cost has under their names in the rows."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs of one point: means over its runs, unless a field says otherwise."""

    point: Point
    label: str
    runs: int
    paused_s: float
    """Partition-seconds without a member that works on the partition."""
    paused_low_s: float
    paused_high_s: float
    """The least and the most of the runs."""
    longest_pause_s: float
    """The longest pause of one partition in any run."""
    partitions_paused: float
    twice_s: float
    repeated_s: float
    """Partition-seconds of repeated work."""
    moves: float
    needed_moves: float
    resumed: float
    disturbances: float
    stable_s: float
    """Time from a disturbance to its last change."""
    stable_max_s: float
    """The longest such time in any run."""
    rebalances: float
    requests: float
    heartbeats: float
    records: float
    record_bytes: float
    cpu_ms: float
    """Processor time of the coordinator, real."""
    state_bytes: float
    """Real memory of its durable state; 0 except for the pattern `steady`."""
    measured_s: float
    """Virtual."""
    settled: bool
    """Every run ended with a member at work on every partition."""

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.measured_s

    @property
    def cpu_share(self) -> float:
        """The share of one core while the run was measured."""
        return self.cpu_ms / 1000 / self.measured_s


def costs(rows: Iterable[Mapping[str, Any]]) -> tuple[list[Cost], list[str]]:
    """One summary for each point, in the order of the rows; and the reasons of runs without figures, each once."""
    runs: dict[Point, list[Mapping[str, Any]]] = {}
    errors: dict[str, None] = {}
    for row in rows:
        if row["error"] is not None:
            errors[row["error"]] = None
            continue
        runs.setdefault(Point(**{name: row[name] for name in FIELDS}), []).append(row)
    return [_cost(point, found) for point, found in runs.items()], list(errors)


def _cost(point: Point, runs: list[Mapping[str, Any]]) -> Cost:
    def mean(name: str) -> float:
        return float(sum(run[name] for run in runs)) / len(runs)

    def seconds(name: str) -> list[float]:
        return [run[name] / 1000 for run in runs]

    return Cost(
        point=point,
        label=point.label(),
        runs=len(runs),
        paused_s=mean("paused_ms") / 1000,
        paused_low_s=min(seconds("paused_ms")),
        paused_high_s=max(seconds("paused_ms")),
        longest_pause_s=max(seconds("longest_pause_ms")),
        twice_s=mean("twice_ms") / 1000,
        repeated_s=mean("repeated_ms") / 1000,
        stable_s=mean("stable_ms") / 1000,
        stable_max_s=max(seconds("stable_max_ms")),
        measured_s=mean("measured_ms") / 1000,
        settled=all(run["settled"] for run in runs),
        **{name: mean(name) for name in MEANS},
    )
