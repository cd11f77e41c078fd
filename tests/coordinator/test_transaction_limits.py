"""Limits of a transaction shard: the memory of all ids, the deadlines of one step."""

from __future__ import annotations

from transaction_world import T0, T1, World

from kohort.coordinator.events import DeadlineReached
from kohort.coordinator.transactions.transaction import Place


def test_new_ids_have_a_limit_and_known_ids_go_on() -> None:
    world = World(max_bytes=65_536)
    names = [f"x-{number}" for number in range(200)]
    answers = {name: world.init(name=name) for name in names}
    served = [name for name in names if answers[name].startswith("0 ")]
    assert 60 < len(served) < 80
    assert {answers[name] for name in names if name not in served} == {"15"}
    assert world.add(1_000, 0, T0, name=names[0]) == "0"
    assert world.add(1_000, 0, *(Place("t", index) for index in range(400)), name=names[0]) == "15"
    assert world.add(1_000, 0, T1, name=names[0]) == "0"
    world.advance(world.settings.expiration_ms)
    assert world.shard.ids.keys() == {names[0]}
    assert world.init(name=names[-1]).startswith("0 ")


def test_the_size_is_the_same_after_a_restart() -> None:
    world = World()
    for number in range(5):
        world.init(name=f"x-{number}")
    world.add(1_000, 0, T0, T1, name="x-0")
    before = world.shard.bytes
    world.restart()
    assert world.shard.bytes == before > 5 * 640


def test_a_step_serves_few_deadlines_and_stays_due() -> None:
    world = World()
    for number in range(25):
        world.init(name=f"x-{number}")
        world.add(1_000 + number, 0, name=f"x-{number}")
    world.now += 60_001
    counts = []
    while (due := world.shard.next_deadline()) is not None and due <= world.now:
        world.step(DeadlineReached())
        counts.append(len(world.endings))
    assert counts == [10, 20, 25]
    assert {ending.cause for ending in world.endings} == {"timed out"}
