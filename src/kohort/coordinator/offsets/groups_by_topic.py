"""Which groups have offsets of a topic.

A topic that is deleted takes its offsets along, and those of other topics are not searched.
"""

from __future__ import annotations

from collections.abc import Iterable


class GroupsByTopic:
    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        """Of each topic and group, how many partitions have an offset. Neither is here without one."""

    def add(self, topic: str, group: str) -> None:
        groups = self.counts.setdefault(topic, {})
        groups[group] = groups.get(group, 0) + 1

    def remove(self, topic: str, group: str) -> None:
        groups = self.counts[topic]
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
            if not groups:
                del self.counts[topic]

    def count(self, topics: Iterable[str]) -> int:
        """Their partitions with an offset, of all groups."""
        return sum(sum(self.counts.get(topic, {}).values()) for topic in topics)

    def of(self, topics: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(group for topic in topics for group in self.counts.get(topic, ())))
