"""Records that are given up await their dead letters (KIP-1191): state 3, then 4."""

from __future__ import annotations

import pytest
from share_model import KEY, ME, World

from kohort.coordinator.shares.cells import ACKNOWLEDGED, ARCHIVED, ARCHIVING
from kohort.coordinator.shares.events import (
    AckBatch,
    Acknowledge,
    DeadLettered,
    Redeliver,
    Release,
    ShareKey,
)
from kohort.coordinator.shares.settings import ShareSettings
from kohort.coordinator.shares.shard import ShareShard

GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
TEN = [(0, 9)]


@pytest.fixture
def world() -> World:
    world = World(ShareSettings(delivery_limit=2, dead_letters=True))
    world.begin()
    return world


def test_a_rejected_record_holds_the_start_until_its_dead_letter_is_written(world: World) -> None:
    world.acquire("a", TEN)
    assert world.ack("a", (0, 0, ACCEPT), (1, 3, REJECT), (4, 4, GAP), (5, 9, ACCEPT)) == 0
    assert world.cells == [(1, 3, ARCHIVING, 1), (4, 4, ARCHIVED, 1), (5, 9, ACKNOWLEDGED, 1)]
    assert (world.start, world.shard.states[KEY].complete) == (1, 6)
    assert world.acquire("b", TEN) == [], "nobody gets it"
    world.ask(DeadLettered(KEY, ((1, 1), (3, 3)), "dlq.t"))
    assert (world.start, world.cells[0]) == (2, (2, 2, ARCHIVING, 1))
    world.ask(DeadLettered(KEY, ((0, 9),), ""))
    assert (world.start, world.cells) == (10, [])


def test_the_limit_of_deliveries_and_the_end_of_a_session(world: World) -> None:
    for times in (1, 2):
        assert world.acquire("a", TEN) == [(0, 9, times)]
        world.release("a")
    assert (world.start, world.cells) == (0, [(0, 9, ARCHIVING, 2)])


def test_the_effects_say_that_dead_letters_are_awaited(world: World) -> None:
    world.acquire("a", TEN)
    acked = world.shard.step(Acknowledge(KEY, "a", (AckBatch(0, 1, (REJECT,)),), ME), world.now)
    assert [(one.archived[0].why, one.await_dead_letters) for one in acked.shares[:1]] == [("rejected", True)]
    world.settings = ShareSettings()
    world.acquire("a", [(10, 19)])
    released = world.shard.step(Release((KEY,), "a"), world.now)
    assert not any(getattr(one, "await_dead_letters", False) for one in released.shares)


def test_a_restart_finds_what_is_awaited(world: World) -> None:
    world.acquire("a", TEN)
    assert world.ack("a", (0, 9, REJECT)) == 0
    other = ShareKey("g", b"0123456789abcdef", 1)
    awaiting: dict[ShareKey, None] = {other: None}
    again = ShareShard(0, lambda group: world.settings, 500, awaiting=awaiting)
    for record in world.log:
        again.apply(record, world.now)
    assert list(awaiting) == [other, KEY]
    assert again.states == world.shard.states
    for record in again.step(DeadLettered(KEY, ((0, 9),), "dlq.t"), world.now).records:
        again.apply(record, world.now)  # type: ignore[arg-type]
    assert list(awaiting) == [other]
    assert again.states[KEY].start == 10


def test_what_is_awaited_is_not_delivered_again_by_an_operator(world: World) -> None:
    world.acquire("a", TEN)
    assert world.ack("a", (0, 4, REJECT), (5, 9, ACCEPT)) == 0
    assert world.ask(Redeliver(KEY, ((0, 9),), 0, ME)) == 5
    assert world.cells[0] == (0, 4, ARCHIVING, 1)
    assert world.acquire("b", TEN) == [(5, 9, 1)]


def test_what_is_not_awaited_is_left_alone(world: World) -> None:
    world.acquire("a", TEN)
    assert world.ack("a", (0, 4, ACCEPT)) == 0
    before = list(world.log)
    world.ask(DeadLettered(KEY, ((0, 9),), "dlq.t"))
    world.ask(DeadLettered(ShareKey("nobody", KEY.topic_id, 0), ((0, 9),), "dlq.t"))
    assert world.log == before
