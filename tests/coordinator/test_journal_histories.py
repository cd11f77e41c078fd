"""The journal beside real shards, through the random histories of test_properties.py: it tells what was the case."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_properties import CONFIG, World, action, play

from kohort.coordinator.classic.group import Phase
from kohort.coordinator.classic.status import AWAITED_TO_JOIN, AWAITED_TO_SYNC, ID_GIVEN_OUT
from kohort.coordinator.events import Event, Loaded
from kohort.coordinator.journal.journal import Journal
from kohort.coordinator.journal.story import Story
from kohort.coordinator.shard import Shard

pytestmark = pytest.mark.pure

REBALANCING = (Phase.PREPARING, Phase.COMPLETING)


class JournalWorld(World):
    """A world with a journal, whose topic survives crashes as the log does."""

    def __init__(self) -> None:
        self.topic: dict[bytes, bytes] = {}
        self.journal = Journal(CONFIG)
        super().__init__()

    def _started(self) -> Shard:
        self.journal = Journal(CONFIG)
        for value in self.topic.values():
            self.journal.restore(value)
        shard = Shard(0, CONFIG)
        for record in self.log:
            shard.apply(record, self.now)
        self.journal.tell(shard.step(Loaded(), self.now).journal, self.now)
        return shard

    def step(self, event: Event) -> None:
        shard, told = self.shard, []
        step = shard.step

        def telling(event: Event, now: int) -> Any:
            effects = step(event, now)
            told.extend(effects.journal)
            return effects

        shard.step = telling  # type: ignore[method-assign]
        try:
            super().step(event)
        finally:
            del shard.step
        self.journal.tell(told, self.now)
        self.check_journal()

    def end_turn(self) -> None:
        super().end_turn()
        for record in self.journal.take_changed():
            assert record.value is not None
            self.topic.pop(record.key, None)
            self.topic[record.key] = record.value

    def stories(self, group: str) -> list[Story]:
        return [msgspec.json.decode(data, type=Story) for data in self.journal.stories(group, 1000)]

    def check_journal(self) -> None:
        for group_id, group in self.shard.running.groups.items():
            running = self.journal.running(group_id)
            assert (running is not None) == (group.phase in REBALANCING), group.phase
            if running is not None:
                assert running.phases[-1].phase == group.phase.value
                assert running.started_ms <= self.now
            elif group.phase is Phase.STABLE:
                owners = self.journal._groups[group_id].owners
                assert owners is not None
                assert sorted(owner.member.assignment for owner in owners.values()) == sorted(
                    member.assignment for member in group.members.values()
                )
            self.check_status(group_id)

    def check_status(self, group_id: str) -> None:
        group = self.shard.running.groups[group_id]
        status = self.shard.rebalance_status(group_id, self.now)
        assert status is not None
        assert sum(status.counts.values()) == len(group.members) + len(group.pending) == len(status.members)
        if group.phase in REBALANCING:
            assert status.ends_ms is not None
        for member in status.members:
            if member.state in (AWAITED_TO_JOIN, AWAITED_TO_SYNC, ID_GIVEN_OUT):
                assert member.remaining_ms is not None, "nobody is awaited for ever"


@settings(derandomize=True, database=None, deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.lists(action, min_size=5, max_size=40))
def test_the_journal_tells_what_was_the_case(actions: list[tuple[Any, ...]]) -> None:
    world = JournalWorld()
    play(world, actions)
    world.end_turn()
    world.advance(400_000)
    world.end_turn()
    for group in world.shard.running.groups:
        stories = world.stories(group)
        numbers = [story.number for story in stories]
        assert numbers == sorted(set(numbers))
        rebalances = [story for story in stories if story.outcome != "noted"]
        assert all(story.outcome in ("Stable", "Empty", "superseded", "interrupted") for story in rebalances)
        for story in stories:
            cut_off = story.outcome == "interrupted" and story.took_ms is None  # by a crash: nobody knows when
            assert cut_off or (story.took_ms is not None and story.took_ms >= 0)
        if rebalances:
            assert rebalances[-1].outcome in ("Empty", "interrupted"), "in the end all sessions have ended"
        for story in rebalances:
            if story.took_ms is not None:
                assert sum(phase.took_ms or 0 for phase in story.phases) == story.took_ms
            assert (story.moved is None) == (story.outcome not in ("Stable", "Empty")), "it is known who had what"
