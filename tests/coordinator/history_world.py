"""The common part of the worlds of random histories: a shard, its log, turns, passing time, and a journal.

Steps are gathered into turns, as the broker does: records become durable and replies leave together, at the turn's end.
A crash loses both, and every parked request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings

from kohort.config import Config
from kohort.coordinator.events import (
    AnswerHeld,
    DeadlineReached,
    Effects,
    Event,
    ExpireOffsets,
    JournalEntry,
    Loaded,
    Record,
    Reply,
    RequestId,
    Unloaded,
)
from kohort.coordinator.journal.journal import Journal
from kohort.coordinator.journal.story import Story
from kohort.coordinator.shard import Shard

GROUPS = ("g", "h")
CLIENTS = ("a", "b", "c", "s", "t")
"""s and t are static members."""


def histories(examples: int) -> settings:
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
    )


class HistoryWorld:
    config: Config

    def __init__(self) -> None:
        self.now = 0
        self.log: list[Record] = []
        self.last_request = 0
        self.turn_records: list[Record] = []
        self.turn_replies: list[Reply] = []
        self.shard = self._started()

    def _started(self) -> Shard:
        shard = self.shard = Shard(0, self.config)
        for record in self.log:
            shard.apply(record, self.now)
        self._load()
        return shard

    def _load(self) -> None:
        self.step(Loaded())

    def step(self, event: Event) -> None:
        effects = self.shard.step(event, self.now)
        for record in effects.records:
            self.shard.apply(record, self.now)
        self.shard.validate()
        self.turn_records.extend(effects.records)
        self.turn_replies.extend(effects.replies)
        assert not self.shard.running.parked or self.shard.next_deadline() is not None
        self.after_step(effects)

    def after_step(self, effects: Effects) -> None:
        pass

    # -- what may happen in any world

    def advance(self, by: int) -> None:
        until = self.now + by
        while (deadline := self.shard.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.step(DeadlineReached())
            assert (later := self.shard.next_deadline()) is None or later > self.now, "it spins"
        self.now = until

    def late(self, by: int) -> None:
        """Time passes while the process is stopped: many deadlines are due at once."""
        self.now += by
        self.step(DeadlineReached())

    def sweep(self) -> None:
        self.step(ExpireOffsets())

    def move(self) -> None:
        self.step(Unloaded())
        self.step(Loaded())

    def answer_held(self, choice: int) -> None:
        """Also of requests that are none: only a held heartbeat is answered."""
        parked = sorted(self.shard.running.parked)
        if parked:
            self.step(AnswerHeld(RequestId(parked[choice % len(parked)])))
        self.step(AnswerHeld(RequestId(0)))


def play(world: Any, actions: list[tuple[Any, ...]]) -> None:
    for what, *arguments in actions:
        getattr(world, what)(*arguments)


def told_of(shard: Shard, step: Callable[[Event], None], event: Event) -> list[JournalEntry]:
    """The entries of a step, and of those that it leads to."""
    told: list[JournalEntry] = []
    if "step" in vars(shard):  # one of those
        step(event)
        return told
    plain = shard.step

    def telling(event: Event, now: int) -> Effects:
        effects = plain(event, now)
        told.extend(effects.journal)
        return effects

    shard.step = telling  # type: ignore[method-assign]
    try:
        step(event)
    finally:
        del shard.step
    return told


class Journaled(HistoryWorld):
    """Before a world: a journal whose topic survives crashes as the log does."""

    def __init__(self) -> None:
        self.journal_topic: dict[bytes, bytes] = {}
        super().__init__()

    def _started(self) -> Shard:
        self.journal = Journal(self.config)
        for value in self.journal_topic.values():
            self.journal.restore(value)
        return super()._started()

    def step(self, event: Event) -> None:
        self.journal.tell(told_of(self.shard, super().step, event), self.now)
        self.check_journal()

    def check_journal(self) -> None:
        raise NotImplementedError

    def end_turn(self) -> None:
        super().end_turn()  # type: ignore[misc]
        for record in self.journal.take_changed():
            assert record.value is not None
            self.journal_topic.pop(record.key, None)
            self.journal_topic[record.key] = record.value

    def stories(self, group: str) -> list[Story]:
        stories = [msgspec.json.decode(data, type=Story) for data in self.journal.stories(group, 1000)]
        numbers = [story.number for story in stories]
        assert numbers == sorted(set(numbers))
        return stories
