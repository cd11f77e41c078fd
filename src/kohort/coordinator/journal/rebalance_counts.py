"""How many rebalances there were, of which groups, for which causes, and how long they took: for the metrics.

Counted where the journal begins and ends its stories, so the numbers agree with `kohort groups explain`. Soft state: a
restart begins anew. At most `most` groups, and pairs of group and cause, are kept apart; the others are counted under
the group "".
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the durations, in seconds."""
OTHER_GROUPS = ""


class RebalanceCounts:
    def __init__(self, most: int) -> None:
        self.began: dict[tuple[str, str], int] = {}
        """By group, and by what began the rebalance."""
        self.took: dict[str, list[int]] = {}
        """By protocol, classic or consumer: how many took up to each of BOUNDS_S, and one more for longer ones."""
        self.took_ms: dict[str, int] = {}
        """By protocol: the sum of the durations."""
        self.waited_ms: dict[str, int] = {}
        """By group: the same sum."""
        self.events: dict[str, int] = {}
        """How many entries of each kind the journal got."""
        self._most = most

    def note(self, what: str) -> None:
        self.events[what] = self.events.get(what, 0) + 1

    def begin(self, group: str, cause: str) -> None:
        key = group, cause
        if key not in self.began and len(self.began) >= self._most:
            key = OTHER_GROUPS, cause
        self.began[key] = self.began.get(key, 0) + 1

    def end(self, group: str, protocol: str, took_ms: int) -> None:
        """A rebalance that ended in a stable group."""
        if group not in self.waited_ms and len(self.waited_ms) >= self._most:
            group = OTHER_GROUPS
        self.waited_ms[group] = self.waited_ms.get(group, 0) + took_ms
        if protocol not in self.took:
            self.took[protocol], self.took_ms[protocol] = [0] * (len(BOUNDS_S) + 1), 0
        self.took[protocol][bisect_left(BOUNDS_S, took_ms / 1000)] += 1
        self.took_ms[protocol] += took_ms
