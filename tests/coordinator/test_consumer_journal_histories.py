"""The journal beside the random histories of test_consumer_properties.py: a story lasts as long as its rebalance and
explains it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from history_world import GROUPS, Journaled, histories, play, told_of
from hypothesis import given
from hypothesis import strategies as st
from shard_world import ShardWorld
from test_consumer_properties import CONFIG, World, action
from test_scenarios import SCENARIOS, parse

from kohort.coordinator.classic.group import Phase
from kohort.coordinator.consumer.responses import state_name, stories_of
from kohort.coordinator.events import Event
from kohort.coordinator.journal.journal import Journal
from kohort.coordinator.journal.partition_moves import partitions_of
from kohort.coordinator.journal.story import Steps
from kohort.coordinator.shard import Shard

pytestmark = pytest.mark.pure


class JournalWorld(Journaled, World):
    def check_journal(self) -> None:
        check_journal(self.shard, self.journal, self.now)


class JournalScenario(ShardWorld):
    """A scenario with a journal, which a restart forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal(CONFIG)

    def _step(self, event: Event) -> None:
        nested = "step" in vars(self.shard)
        self.journal.tell(told_of(self.shard, super()._step, event), self.now)
        if not nested:
            check_journal(self.shard, self.journal, self.now)

    def do_restart(self, **settings: str) -> None:
        self.journal = Journal(CONFIG)
        super().do_restart(**settings)


def check_journal(shard: Shard, journal: Journal, now: int) -> None:
    if shard.unavailable:
        return
    for group_id, group in shard.consumers.groups.items():
        running = journal.running(group_id)
        status = shard.rebalance_status(group_id, now)
        assert status is not None
        assert sum(status.counts.values()) == len(group.members) == len(status.members)
        assert status.since_ms <= now
        if state_name(group) == "Assigning":
            assert running is not None
        elif state_name(group) == "Reconciling":
            away = [m for m in group.members if group.state_of(m).member_epoch < 0]
            assert running is not None or away, "who is away has its place, and nobody waits"
        elif not status.held_partitions:
            assert running is None, running
            check_owners(shard, journal, group_id)
        if running is not None:
            assert running.group_type == "consumer"
            assert running.generation_after in (-1, group.epoch)
    for group_id, classic in shard.running.groups.items():
        is_rebalancing = classic.phase in (Phase.PREPARING, Phase.COMPLETING)
        assert (journal.running(group_id) is not None) == is_rebalancing, classic.phase


def check_owners(shard: Shard, journal: Journal, group_id: str) -> None:
    group = shard.consumers.groups[group_id]
    known = journal._groups.get(group_id)
    if known is None or known.owners is None or not group.members:
        return
    members, _ = stories_of(group, shard.consumers.topics, {})
    told = [owner.assignment for owner in known.owners.values() if partitions_of(owner.assignment)]
    assert sorted(told) == sorted(m.assignment for m in members if partitions_of(m.assignment))


@pytest.mark.parametrize(
    "path", [path for path in SCENARIOS if path.stem.startswith("consumer_")], ids=lambda p: p.stem
)
def test_scenarios_with_a_journal(path: Path) -> None:
    _, blocks = parse(path.read_text(encoding="utf-8"))
    world = JournalScenario()
    for commands, _ in blocks:
        for command in commands:
            if not command.startswith("#"):
                world.run(command)


@histories(120)
@given(st.lists(action, min_size=10, max_size=40))
def test_the_journal_tells_what_was_the_case(actions: list[tuple[Any, ...]]) -> None:
    world = JournalWorld()
    play(world, actions)
    world.end_turn()
    for group_id in GROUPS:
        for story in world.stories(group_id):
            if story.outcome in ("Stable", "Empty") and story.group_type:
                assert sum(phase.took_ms or 0 for phase in story.phases) == story.took_ms
                for member in (*story.members, *story.gone):
                    check_steps(member.steps or Steps(), story.took_ms or 0)


def check_steps(steps: Steps, took_ms: int) -> None:
    told, gave_up, waited, got = steps.told_after_ms, steps.revoked_after_ms, steps.waited_after_ms, steps.got_after_ms
    assert (told is None) == (steps.revoked == 0) == (not steps.told_by)
    assert (got is None) == (steps.got == 0) == (not steps.got_by)
    for instant in (told, gave_up, waited, got):
        assert instant is None or 0 <= instant <= took_ms
    assert told is None or gave_up is None or told <= gave_up
    assert (waited is not None) or not steps.waited_for
    assert (gave_up is None) or (steps.gave_up_in_ms is not None and steps.gave_up_in_ms <= took_ms)
    assert steps.waited_ms is None or (waited is not None and steps.waited_ms <= took_ms)
    assert (told is None) == (steps.times == 0)
