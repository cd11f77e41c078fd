"""What a share-partition hands out and takes back, one rule at a time (rows SH31 to SH69)."""

from __future__ import annotations

from typing import Any

import pytest
from share_model import KEY, ME, World

from kohort.coordinator.shares.events import RECORD_LIMIT, Initialize, Load, ShareKey, Write
from kohort.coordinator.shares.settings import ShareSettings
from kohort.coordinator.shares.share_partition import careful_size

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
TENS = [(first, first + 9) for first in range(0, 100, 10)]


@pytest.fixture
def world() -> World:
    world = World()
    world.begin()
    return world


@pytest.mark.conformance("SH35")
def test_whole_batches_until_the_limit_and_ranges_of_the_batch_size(world: World) -> None:
    assert world.acquire("a", TENS, most=15, size=10) == [(0, 9, 1), (10, 19, 1)]
    assert world.acquire("a", TENS, most=40, size=20) == [(20, 39, 1), (40, 59, 1)]


@pytest.mark.conformance("SH36")
def test_never_more_than_the_record_limit(world: World) -> None:
    assert world.acquire("a", TENS, most=15, mode=RECORD_LIMIT) == [(0, 14, 1)]
    assert world.acquire("b", TENS, most=3, mode=RECORD_LIMIT) == [(15, 17, 1)]


@pytest.mark.conformance("SH34")
def test_redeliveries_come_first_and_with_new_records(world: World) -> None:
    world.acquire("a", TENS[:2], most=20)
    assert world.ack("a", (0, 1, ACCEPT), (2, 4, RELEASE), (5, 19, ACCEPT)) == 0
    assert world.acquire("b", TENS[:3]) == [(2, 4, 2), (20, 29, 1)]


@pytest.mark.conformance("SH39")
def test_one_bad_record_is_delivered_alone_in_the_end() -> None:
    assert [careful_size(100, count, 5) for count in (3, 4)] == [50, 1]
    assert [careful_size(100, count, 10) for count in (5, 6, 7, 8, 9)] == [50, 25, 12, 6, 1]
    assert careful_size(1, 3, 5) == 1
    assert careful_size(8, 2, 2) == 4


@pytest.mark.conformance("SH53")
def test_aborted_records_longer_than_the_window_do_not_stop_it() -> None:
    """SH53: Kafka's start offset does not move, and its window is full."""
    world = World(ShareSettings(max_locks=20))
    world.begin()
    spans = [(first, first, True) for first in range(250)] + [(250, 259)]
    assert world.acquire("a", spans) == [(250, 259, 1)]
    assert world.start == 250


@pytest.mark.conformance("SH48")
def test_gaps_in_front_are_skipped_and_those_inside_are_acquired(world: World) -> None:
    assert world.acquire("a", [(5, 9)]) == [(5, 9, 1)]
    assert world.start == 5
    assert world.acquire("b", [(12, 14), (15, 20)]) == [(12, 20, 1)], "a span has the gap behind its batch"
    assert world.ack("b", (12, 20, 1, 1, 1, 0, 0, 0, 1, 1, 1)) == 0
    assert world.ack("a", (5, 9, ACCEPT)) == 0
    assert (world.start, world.cells) == (21, [])


@pytest.mark.conformance("SH51")
def test_what_was_compacted_since_is_archived(world: World) -> None:
    world.acquire("a", TENS[:1])
    world.release("a")
    assert world.acquire("b", [(8, 9)]) == [(8, 9, 2)]
    assert world.start == 8


@pytest.mark.conformance("SH46", "SH47")
def test_a_renewed_lock_ends_later(world: World) -> None:
    world.acquire("a", TENS[:1])
    world.pass_time(20_000)
    assert world.ack("a", (3, 4, RENEW)) == 0
    world.pass_time(10_000)
    assert world.acquire("b", TENS[:1]) == [(0, 2, 2), (5, 9, 2)]
    world.pass_time(19_999)
    assert world.ack("a", (3, 3, ACCEPT)) == 0
    world.pass_time(1)
    assert world.ack("a", (4, 4, ACCEPT)) == 121


def test_a_renewed_lock_lasts_as_long_as_the_setting_is_now(world: World) -> None:
    world.settings = ShareSettings(lock_ms=60_000)
    world.acquire("a", TENS[:1])
    world.settings = ShareSettings(lock_ms=15_000)
    assert world.ack("a", (0, 9, RENEW)) == 0
    world.pass_time(15_000)
    assert world.acquire("b", TENS[:1]) == [(0, 9, 2)]


@pytest.mark.conformance("SH44")
def test_a_late_acknowledgement_counts_if_the_member_has_the_record_again(world: World) -> None:
    """SH44: only the member id is compared."""
    world.acquire("a", TENS[:1])
    world.pass_time(30_000)
    assert world.ack("a", (0, 9, ACCEPT)) == 121
    assert world.acquire("a", TENS[:1]) == [(0, 9, 2)]
    assert world.ack("a", (0, 9, ACCEPT)) == 0


@pytest.mark.conformance("SH31")
def test_limits_count_when_a_record_becomes_available() -> None:
    world = World(ShareSettings(delivery_limit=5))
    world.begin()
    for _ in range(3):
        world.acquire("a", [(0, 0)])
        world.release("a")
    world.settings = ShareSettings(delivery_limit=3)
    assert world.acquire("a", [(0, 0)]) == [(0, 0, 4)], "it was available already (SH31)"
    world.release("a")
    assert world.start == 1


@pytest.mark.conformance("SH69")
def test_holes_between_stored_ranges_are_fetched_again(world: World) -> None:
    """SH69."""
    world.acquire("a", TENS[:3])
    assert world.ack("a", (0, 4, ACCEPT), (10, 14, RELEASE), (20, 29, ACCEPT)) == 0
    world.restart()
    assert world.acquire("b", TENS[:3]) == [(5, 9, 1), (10, 14, 2), (15, 19, 1)]


@pytest.mark.conformance("SH59")
def test_another_leader_frees_all_and_keeps_what_is_stored(world: World) -> None:
    world.acquire("a", TENS[:2])
    world.ack("a", (0, 9, ACCEPT))
    world.load(leader_epoch=1)
    assert world.ack("a", (10, 19, ACCEPT)) != 0
    assert world.acquire("b", TENS[:2]) == [(10, 19, 1)]
    assert world.shard.states[KEY].leader_epoch == 1


@pytest.mark.conformance("SH68")
def test_a_new_state_epoch_sets_the_start_back_and_an_older_one_is_fenced(world: World) -> None:
    world.acquire("a", TENS[:2])
    world.ack("a", (0, 19, ACCEPT))
    world.ask(Initialize((KEY,), 2, 5))
    assert (world.start, world.shard.states[KEY].state_epoch) == (5, 2)
    assert world.ack("a", (5, 9, ACCEPT)) == 121
    world.ask(Initialize((KEY,), 1, 0))
    assert world.start == 5
    assert world.acquire("b", TENS[:2]) == [(5, 19, 1)]


@pytest.mark.conformance("SH65")
def test_a_late_write_takes_nothing_back(world: World) -> None:
    world.acquire("a", TENS[:2])
    world.ack("a", (0, 9, ACCEPT))
    world.ask(Write(KEY, 1, 0, 3, 0, ((3, 5, 0, 1),)))
    assert world.start == 10
    assert world.replayed().states == world.shard.states


@pytest.mark.parametrize(
    ("start", "cell"),
    [(0, (0, 3, 0, 32_767)), (2**63 - 1, (2**63 - 1, 2**63 - 1, 2, 1)), (2**63 - 1, None), (0, (5, 2**63 - 1, 2, 1))],
)
def test_a_write_from_outside_leaves_room_for_what_follows(world: World, start: int, cell: Any) -> None:
    """One more delivery, and the offset behind the last one, must fit into their fields."""
    assert world.ask(Write(KEY, 1, 0, start, 0, (cell,) if cell else (), ME)) == 42
    assert world.acquire("a", TENS[:1]) == [(0, 9, 1)]


def test_many_changes_are_a_snapshot(world: World) -> None:
    """The broker keeps one of a turn's large records of a key, so an update must not be large."""
    spans = [(0, 2_000)]
    world.acquire("a", spans, most=2_001)
    kinds = [ACCEPT if offset % 2 else RELEASE for offset in range(2_001)]
    assert world.ack("a", (0, 2_000, *kinds)) == 0
    assert world.log[-1].key[:2] == b"\0\0"
    assert len(world.cells) == 2_001
    assert world.replayed().states == world.shard.states


def test_groups_do_not_touch_each_other(world: World) -> None:
    other = ShareKey("other", KEY.topic_id, KEY.partition)
    world.ask(Initialize((other,), 1))
    world.ask(Load(other, 0, 0, 7))
    world.acquire("a", TENS[:1])
    assert world.ack("a", (0, 9, ACCEPT)) == 0
    assert (world.start, world.shard.states[other].start) == (10, 7)
