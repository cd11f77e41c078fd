"""A target that was prepared outside of its shard is the one that the shard would have made from the same result."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.config import Config
from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.consumer.target import AT_ONCE
from kohort.coordinator.events import (
    AssignmentAsked,
    AssignmentMade,
    Client,
    DeadlineReached,
    Effects,
    Event,
    GroupRequested,
    Loaded,
    Record,
    RequestId,
    TargetRecords,
    TopicsChanged,
)
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import topics_of
from kohort.wire.batches import batch_around, decode_records
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

TOPIC = TopicSpec(b"t" * 16, "t", AT_ONCE + 500)
CLIENT = Client("client", "/10.0.0.1")


class World:
    """A shard with one group, whose target is made outside."""

    def __init__(self, **settings: Any) -> None:
        config = Config(group_consumer_assignment_interval_ms=1_000, group_initial_rebalance_delay_ms=0, **settings)
        self.shard = Shard(0, config)
        self.now = 10_000
        self.log: list[Record] = []
        self.made_together = 0
        self.asked: list[AssignmentAsked] = []
        self.step(TopicsChanged(topics_of([TOPIC])))
        self.step(Loaded())

    def step(self, event: Event) -> Effects:
        effects = self.shard.step(event, self.now)
        for record in effects.records:
            self.shard.apply(record, self.now)
            if isinstance(record, TargetRecords):
                self.made_together += len(record.targets)
                batch = batch_around(record.encoded, len(record.targets), 1, base_offset=0, leader_epoch=0)
                self.log += [Record(one.key or b"", one.value) for one in decode_records(batch)]
            else:
                self.log.append(record)
        self.asked += [task for task in effects.tasks if isinstance(task, AssignmentAsked)]
        self.shard.validate()
        return effects

    def beat(self, member_id: str, epoch: int = 0, *, instance: str | None = None) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
        self.step(GroupRequested(RequestId(len(self.log) + 1), 1, CLIENT, request))

    def later(self) -> AssignmentAsked:
        """The next target is asked for."""
        while not self.asked:
            deadline = self.shard.next_deadline()
            assert deadline is not None
            self.now = max(self.now, deadline)
            self.step(DeadlineReached())
        return self.asked.pop()

    def take(self, task: AssignmentAsked, *, prepared: bool) -> None:
        result = assigned(BUILT_IN[task.assignor], task.spec)
        self.step(task.made(result) if prepared else AssignmentMade("g", task.epoch, task.assignor, result))

    @property
    def targets(self) -> dict[str, frozenset[tuple[bytes, int]]]:
        return {m: target for m, target in self.shard.hard.consumers.groups["g"].targets.items() if target}

    def replayed(self) -> Shard:
        shard = Shard(0, Config())
        for record in self.log:
            shard.apply(Record(record.key, record.value), self.now)
        return shard


def history(*, prepared: bool, **settings: Any) -> World:
    """Members come, leave and return under another id, also while a target is being made."""
    world = World(**settings)
    for index in range(6):
        world.beat(f"m-{index}")
    world.beat("static", instance="s")
    world.take(world.later(), prepared=prepared)
    world.beat("m-6")
    task = world.later()
    world.beat("m-7")
    world.beat("m-2", -1)
    world.beat("static", -2, instance="s")
    world.beat("again", instance="s")
    world.take(task, prepared=prepared)
    world.take(world.later(), prepared=prepared)
    return world


@pytest.mark.parametrize("settings", [{}, {"group_consumer_handover_max_partitions": 100}])
def test_a_prepared_target_is_the_same(settings: dict[str, Any]) -> None:
    here, prepared = history(prepared=False, **settings), history(prepared=True, **settings)
    assert here.targets == prepared.targets
    assert sum(map(len, here.targets.values())) == TOPIC.partitions
    assert here.made_together == 0
    assert (prepared.made_together > 0) is not bool(settings), "a gradual hand-over changes what was prepared"
    assert here.shard.hard.consumers.groups["g"].epoch == prepared.shard.hard.consumers.groups["g"].epoch
    assert prepared.replayed().hard == prepared.shard.hard


def test_members_that_keep_their_target_get_no_record() -> None:
    world = World()
    for index in range(4):
        world.beat(f"m-{index}")
        world.take(world.later(), prepared=True)
    changed, before = world.made_together, world.targets
    assert len(before) == 4
    world.beat("m-4")
    world.take(world.later(), prepared=True)
    moved = {member_id for member_id, target in world.targets.items() if target is not before.get(member_id)}
    assert world.made_together - changed == len(moved)
