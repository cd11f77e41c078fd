"""A histogram: how many values are up to each of its bounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from kohort.broker.metrics.families import Family
from kohort.broker.metrics.samples import Samples, labels_text, number

BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    def __init__(self, bounds: Sequence[float] = BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Values up to each bound and above the bound before; the last one: above all."""
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


def add_histogram(
    samples: Samples, family: Family, bounds: Sequence[float], counts: Sequence[int], total: float, *labels: str
) -> None:
    """All lines of a histogram, or none if they do not fit. `total`: the sum of the values."""
    lines, below = [], 0
    for bound, count in zip((*map(number, map(float, bounds)), "+Inf"), counts, strict=True):
        below += count
        lines.append(f"{family.name}_bucket{labels_text((*family.labels, 'le'), (*labels, _le(bound)))} {below}")
    own = labels_text(family.labels, labels)
    lines += [f"{family.name}_sum{own} {number(float(total))}", f"{family.name}_count{own} {below}"]
    samples.add_lines(family, lines)


def _le(bound: str) -> str:
    """OpenMetrics wants `1.0`, not `1`."""
    return bound if "." in bound or "Inf" in bound or "e" in bound else f"{bound}.0"
