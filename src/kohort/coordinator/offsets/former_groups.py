"""The names of groups that are gone, with their highest generations: how many a shard remembers.

Groups of a name count on from there. The oldest names are forgotten, by their number and by their size; their highest
generation is kept for all of them, and new groups count from there (docs/decisions/0002).
"""

from __future__ import annotations

from itertools import accumulate

from kohort.config import Config
from kohort.coordinator.hard_state import HardState, former_size
from kohort.coordinator.records import generation_record
from kohort.coordinator.soft_state import Running

BYTES_A_NAME = 256
"""Names that take more than this on average are forgotten before there are group.max.former.groups."""


class FormerGroups:
    def __init__(self, config: Config, hard: HardState, running: Running) -> None:
        self._goes_on = config.deviations.numbers_go_on
        self._most = config.group_max_former_groups
        self._hard = hard
        self._running = running
        self._too_large = self._above = 2 * BYTES_A_NAME * (self._most + 1)

    def forget_if_large(self) -> None:
        """A client that creates and deletes groups with long names does not wait for the next expiry of offsets."""
        if self._hard.generations_size > self._above:
            self.forget()

    def forget(self) -> None:
        if not self._goes_on:
            return
        live = (self._running.groups, self._hard.consumers.groups)
        former = [name for name in self._hard.generations if not any(name in groups for groups in live)]
        sizes = accumulate(map(former_size, reversed(former)))
        kept = min(self._most, sum(1 for size in sizes if size <= BYTES_A_NAME * self._most))
        gone = former[: len(former) - kept]
        highest = max((self._hard.generations[name] for name in gone), default=0)
        if highest > self._hard.forgotten:
            self._running.out.records.append(generation_record("", highest))
        self._running.out.records += [generation_record(name, None) for name in gone]
        left = self._hard.generations_size - sum(map(former_size, gone))
        self._above = max(self._too_large, 2 * left)  # names of live groups stay
