"""The journal beside the random histories of test_properties.py: its stories are what happened."""

from __future__ import annotations

from typing import Any

import pytest
from history_world import Journaled, histories, play
from hypothesis import given
from hypothesis import strategies as st
from test_properties import World, action

from kohort.coordinator.classic.group import Phase
from kohort.coordinator.classic.status import AWAITED_TO_JOIN, AWAITED_TO_SYNC, ID_GIVEN_OUT

pytestmark = pytest.mark.pure

REBALANCING = (Phase.PREPARING, Phase.COMPLETING)


class JournalWorld(Journaled, World):
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


@histories(150)
@given(st.lists(action, min_size=5, max_size=40))
def test_the_journal_tells_what_was_the_case(actions: list[tuple[Any, ...]]) -> None:
    world = JournalWorld()
    play(world, actions)
    world.end_turn()
    world.advance(400_000)
    world.end_turn()
    for group in world.shard.running.groups:
        stories = world.stories(group)
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
