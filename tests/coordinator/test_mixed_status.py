"""The output of `groups explain` for a consumer group with classic members: awaited members, and conversions."""

from __future__ import annotations

from shard_world import ShardWorld
from test_journal_histories import JournalScenario


def mixed_world(*commands: str) -> JournalScenario:
    world = JournalScenario()
    for command in (
        "config group_initial_rebalance_delay_ms=0 group_consumer_assignment_interval_ms=0",
        "topics t=4",
        "group g a protocols=cooperative:t assign=a:@t:0+1+2+3",
        *commands,
    ):
        world.run(command)
    return world


def states(world: ShardWorld) -> list[tuple[str, str, int | None, int]]:
    status = world.shard.rebalance_status("g", world.now)
    return [(m.client_id, m.state, m.remaining_ms, m.partitions or 0) for m in status.members]


def test_a_classic_member_is_awaited_to_join_to_sync_and_to_give_up() -> None:
    world = mixed_world("beat g x")
    assert states(world) == [("x", "waits for partitions", None, 2), ("a", "on its way", None, 0)]
    world.run("heartbeat g a")
    world.run("advance 5s")
    assert states(world)[0] == ("a", "awaited to join", 25_000, 0)
    world.run("join g a owned=t:0+1+2+3")
    assert states(world)[0] == ("a", "awaited to sync", 30_000, 2)
    world.run("sync g a")
    world.run("advance 1s")
    assert states(world)[0] == ("a", "awaited to revoke", 29_000, 2)
    world.run("join g a owned=t:0+1")
    world.run("sync g a")
    world.run("beat g x")
    assert {state for _, state, _, _ in states(world)} == {"member"}


def test_a_conversion_is_in_the_story_of_the_rebalance_that_it_causes() -> None:
    world = mixed_world("beat g x", "join g a", "sync g a", "beat g x", "beat g x epoch=-1", "join g a")
    upgrade, downgrade = (story.decode() for story in world.journal.stories("g", 2))
    assert '"what":"group upgraded"' in upgrade
    assert '"cause":"a member of the consumer protocol joins"' in upgrade
    assert '"outcome":"Stable"' in upgrade
    assert '"what":"group downgraded"' in downgrade
    assert '"what":"member left"' in downgrade
