"""The counts of rebalances for the metrics."""

from __future__ import annotations

from kohort.coordinator.journal.rebalance_counts import BOUNDS_S, OTHER_GROUPS, RebalanceCounts


def test_further_groups_are_counted_together() -> None:
    counts = RebalanceCounts(most=2)
    for group in ("a", "b", "c", "d", "a"):
        counts.begin(group, "member joined")
    assert counts.began == {("a", "member joined"): 2, ("b", "member joined"): 1, (OTHER_GROUPS, "member joined"): 2}


def test_durations() -> None:
    counts = RebalanceCounts(most=1)
    for took_ms in (0, 10, 11, 600_001):
        counts.end("billing", "classic", took_ms)
    assert counts.took["classic"][:2] == [2, 1]
    assert counts.took["classic"][len(BOUNDS_S)] == 1
    assert counts.took_ms["classic"] == 600_022
    counts.end("orders", "classic", 3)
    assert counts.waited_ms == {"billing": 600_022, OTHER_GROUPS: 3}
