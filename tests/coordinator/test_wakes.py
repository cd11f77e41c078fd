"""A new target wakes the held heartbeats of thousands of members in steps, and all of them at one moment."""

from __future__ import annotations

import pytest

from kohort.config import Config
from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.consumer import members
from kohort.coordinator.events import (
    AssignmentAsked,
    Client,
    DeadlineReached,
    Effects,
    Event,
    GroupRequested,
    Loaded,
    RequestId,
    TopicsChanged,
)
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import topics_of
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions

pytestmark = pytest.mark.pure

CLIENT = Client("client", "/10.0.0.1", "librdkafka", "2.16.0")
MEMBERS = 6


class World:
    """A shard with one group. Targets are made at once."""

    def __init__(self, partitions: int) -> None:
        config = Config(group_consumer_assignment_interval_ms=0, group_initial_rebalance_delay_ms=0)
        self.shard = Shard(0, config)
        self.now = 10_000
        self.requests = 0
        self.held: dict[RequestId, str] = {}
        self.answered: list[str] = []
        """The members of the held heartbeats that were answered in the last step."""
        self.owned: dict[str, dict[bytes, list[int]]] = {}
        self.epochs: dict[str, int] = {}
        self.topics(partitions)
        self.step(Loaded())

    def topics(self, partitions: int) -> None:
        self.step(TopicsChanged(topics_of([TopicSpec(b"t" * 16, "t", partitions)])))

    def step(self, event: Event) -> Effects:
        effects = self.shard.step(event, self.now)
        self.shard.validate()
        self.answered = [self.held.pop(reply.request_id) for reply in effects.replies if reply.request_id in self.held]
        for reply in effects.replies:
            if (answer := reply.body).member_id is not None:
                self.epochs[answer.member_id] = answer.member_epoch
                if answer.assignment is not None:
                    rows = answer.assignment.topic_partitions
                    self.owned[answer.member_id] = {row.topic_id: list(row.partitions) for row in rows}
        for task in effects.tasks:
            assert isinstance(task, AssignmentAsked)
            self.step(task.made(assigned(BUILT_IN[task.assignor], task.spec)))
        return effects

    def beat(self, member_id: str, hold_ms: int = 0) -> None:
        self.requests += 1
        joins = member_id not in self.epochs
        owned = self.owned.get(member_id, {})
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=self.epochs.get(member_id, 0),
            rebalance_timeout_ms=10_000 if joins else -1,
            subscribed_topic_names=("t",) if joins else None,
            topic_partitions=tuple(
                HeartbeatTopicPartitions(topic_id=key, partitions=tuple(of)) for key, of in owned.items()
            ),
        )
        request_id = RequestId(self.requests)
        effects = self.step(GroupRequested(request_id, 1, CLIENT, request, "", hold_ms))
        if all(reply.request_id != request_id for reply in effects.replies):
            self.held[request_id] = member_id

    def settle(self) -> None:
        for _ in range(4):
            self.deadlines()
            for index in range(MEMBERS):
                self.beat(f"m-{index}")

    def deadlines(self) -> list[list[str]]:
        """Serves what is due now. Returns the members that each step answered."""
        steps = []
        while (due := self.shard.next_deadline()) is not None and due <= self.now:
            self.step(DeadlineReached())
            steps.append(self.answered)
        return steps


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """All members have heartbeats that are held."""
    monkeypatch.setattr(members, "WAKES", 2)
    world = World(MEMBERS)
    world.settle()
    assert {name: sum(map(len, of.values())) for name, of in world.owned.items()} == {
        f"m-{index}": 1 for index in range(MEMBERS)
    }
    for index in range(MEMBERS):
        world.beat(f"m-{index}", hold_ms=3_000)
    assert len(world.held) == MEMBERS
    return world


def test_some_are_woken_in_each_step_and_all_at_one_moment(world: World) -> None:
    world.topics(2 * MEMBERS)
    steps = [world.answered, *world.deadlines()]
    assert [len(step) for step in steps if step] == [2, 2, 2]
    assert sorted(name for step in steps for name in step) == [f"m-{index}" for index in range(MEMBERS)]
    assert {sum(map(len, of.values())) for of in world.owned.values()} == {2}


def test_a_wake_while_another_is_under_way_comes_to_all(world: World) -> None:
    """The first members have no heartbeat that waits any more; the others learn of both changes at once."""
    world.topics(2 * MEMBERS)
    first = [world.answered]
    for name in world.answered:
        world.beat(name, hold_ms=3_000)
    world.topics(3 * MEMBERS)
    steps = [*first, world.answered, *world.deadlines()]
    assert {name for step in steps for name in step} == {f"m-{index}" for index in range(MEMBERS)}
    assert max(map(len, steps)) == 2
    assert {sum(map(len, of.values())) for of in world.owned.values()} == {3}
    assert not world.held


def test_a_group_that_is_deleted_meanwhile(world: World) -> None:
    world.topics(2 * MEMBERS)
    for index in range(MEMBERS):
        world.epochs[f"m-{index}"] = -1
        world.beat(f"m-{index}")
    world.deadlines()
    assert not world.held
    assert not world.shard.hard.consumers.groups["g"].members
