"""The journal beside random histories and scenarios: a story lasts as long as its rebalance and explains it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import test_consumer_properties as consumer
import test_properties as classic
from history_world import GROUPS, Journaled, histories, play
from hypothesis import given
from hypothesis import strategies as st
from shard_world import ShardWorld
from test_scenarios import SCENARIOS, parse
from test_scenarios import play as play_block

from kohort.coordinator.classic.group import Phase
from kohort.coordinator.classic.status import AWAITED_TO_JOIN, AWAITED_TO_SYNC, ID_GIVEN_OUT
from kohort.coordinator.consumer.responses import state_name, stories_of
from kohort.coordinator.events import Event, JournalEntry
from kohort.coordinator.journal.journal import Journal
from kohort.coordinator.journal.partition_moves import partitions_of
from kohort.coordinator.journal.story import Steps
from kohort.coordinator.shard import Shard

REBALANCING = (Phase.PREPARING, Phase.COMPLETING)


# -- classic groups


class ClassicWorld(Journaled, classic.World):
    def check_journal(self) -> None:
        for group_id, group in self.shard.running.groups.items():
            running = self.journal.running(group_id)
            assert (running is not None) == (group.phase in REBALANCING), group.phase
            if running is not None:
                assert running.phases[-1].phase == group.phase.value
                assert running.started_ms <= self.now
            elif group.phase is Phase.STABLE:
                owners = self.journal._groups[group_id].owners
                assert sorted(owner.member.assignment for owner in owners.values()) == sorted(
                    member.assignment for member in group.members.values()
                )
            self.check_status(group_id)

    def check_status(self, group_id: str) -> None:
        group = self.shard.running.groups[group_id]
        status = self.shard.rebalance_status(group_id, self.now)
        assert sum(status.counts.values()) == len(group.members) + len(group.pending) == len(status.members)
        if group.phase in REBALANCING:
            assert status.ends_ms is not None
        for member in status.members:
            if member.state in (AWAITED_TO_JOIN, AWAITED_TO_SYNC, ID_GIVEN_OUT):
                assert member.remaining_ms is not None, "nobody is awaited for ever"


@histories(150)
@given(st.lists(classic.action, min_size=5, max_size=40))
def test_stories_of_classic_groups(actions: list[tuple[Any, ...]]) -> None:
    world = ClassicWorld()
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


# -- consumer groups


class ConsumerWorld(Journaled, consumer.World):
    def check_journal(self) -> None:
        check_journal(self.shard, self.journal, self.now)


class JournalScenario(ShardWorld):
    """A scenario with a journal, which a restart forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal(consumer.CONFIG)

    def _step(self, event: Event) -> None:
        super()._step(event)
        check_journal(self.shard, self.journal, self.now)

    def _tell(self, entries: Sequence[JournalEntry]) -> None:
        self.journal.tell(entries, self.now)

    def do_restart(self, **settings: str) -> None:
        self.journal = Journal(consumer.CONFIG)
        super().do_restart(**settings)


def check_journal(shard: Shard, journal: Journal, now: int) -> None:
    if shard.unavailable:
        return
    for group_id, group in shard.consumers.groups.items():
        running = journal.running(group_id)
        status = shard.rebalance_status(group_id, now)
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
    for group_id, known in shard.running.groups.items():
        assert (journal.running(group_id) is not None) == (known.phase in REBALANCING), known.phase


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
        play_block(world, commands)


@histories(120)
@given(st.lists(consumer.action, min_size=10, max_size=40))
def test_stories_of_consumer_groups(actions: list[tuple[Any, ...]]) -> None:
    world = ConsumerWorld()
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
