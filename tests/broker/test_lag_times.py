"""The age of the first record that a group has not committed."""

from __future__ import annotations

import pytest
from wire_driver import Wire, with_topic

from kohort.broker.lag import lag_times
from kohort.broker.lag.lag_times import IN_BATCH, NEVER, POINTS, SAMPLE_MS, UNKNOWN, Ages, LagTimes, Ring
from kohort.broker.logs.partition import Partition
from kohort.coordinator.events import Record
from kohort.storage.protocol import DamagedBatch


def ring_of(*points: tuple[int, int]) -> Ring:
    ring = Ring()
    for end, now in points:
        ring.add(end, now)
    return ring


def test_a_record_came_in_between_two_points() -> None:
    ring = ring_of((100, 1_000), (200, 2_000), (300, 4_000))
    assert ring.arrival(99) is None, "before the first point"
    assert ring.arrival(100) == 1_000
    assert ring.arrival(150) == 1_500
    assert ring.arrival(200) == 2_000
    assert ring.arrival(299) == 3_980
    assert ring.arrival(300) is None, "not there yet"


def test_of_equal_ends_the_first_and_the_last_are_kept() -> None:
    ring = ring_of((100, 1_000), (100, 2_000), (100, 3_000), (100, 9_000), (200, 10_000))
    assert list(ring.times) == [1_000, 9_000, 10_000]
    assert ring.arrival(150) == 9_500, "no earlier than the last time at which the log ended before it"


def test_time_does_not_go_back() -> None:
    assert list(ring_of((1, 1_000), (2, 1_000), (3, 999), (4, 1_001)).ends) == [1, 4]


def test_a_full_ring_gets_coarser_and_keeps_its_first_point() -> None:
    ring = ring_of(*((n, 1_000 * n) for n in range(1, 2_000)))
    assert POINTS // 2 < len(ring.ends) <= POINTS
    assert ring.ends[0] == 1
    for offset in range(1, 1_999):
        assert ring.arrival(offset) == 1_000 * offset  # the log grew evenly


@pytest.fixture
def wire() -> Wire:
    return with_topic().wire


def partition_of(wire: Wire) -> Partition:
    return wire.partitions("t")[0]


def append(wire: Wire, timestamp: int) -> None:
    """A record with this timestamp."""
    state = wire.broker.state
    state.turn.begin(timestamp)
    state.turn.append_records(partition_of(wire), [Record(b"k", b"v")])
    wire.end(state.end_turn(()))


def test_before_the_ring_the_batch_tells(wire: Wire) -> None:
    times, partition = LagTimes(wire.broker.state.storage), partition_of(wire)
    append(wire, 5_000)
    assert times.lag_ms(partition, 1, partition.end_offset, 9_000) == 0
    assert times.lag_ms(partition, 0, partition.end_offset, 9_000) == IN_BATCH
    assert times.look_up(partition, 0, 9_000) == 4_000
    append(wire, 10_000)
    times.sample(10_500)
    assert times.lag_ms(partition, 1, partition.end_offset, 12_000) == 3_000, (
        "between the points at 9.0 and 10.5 s, so as of the first"
    )


def test_a_timestamp_in_the_future_is_no_newer_than_the_first_point(wire: Wire) -> None:
    times, partition = LagTimes(wire.broker.state.storage), partition_of(wire)
    append(wire, 99_000)
    assert times.lag_ms(partition, 0, partition.end_offset, 9_000) == IN_BATCH
    assert times.look_up(partition, 0, 11_000) == 2_000


def test_limits(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    times, partition = LagTimes(wire.broker.state.storage), partition_of(wire)
    append(wire, 5_000)
    ages = Ages(times, lookups=1)
    assert [ages.look_up(partition, 0, 9_000) for _ in range(2)] == [4_000, UNKNOWN]
    monkeypatch.setattr(lag_times, "MOST_RINGS", 0)
    assert times.lag_ms(partition, 0, partition.end_offset, 9_000) == IN_BATCH
    assert not times.rings
    assert times.look_up(partition, 0, 9_000) == 4_000


def test_a_partition_without_lag_loses_its_ring(wire: Wire) -> None:
    times, partition = LagTimes(wire.broker.state.storage), partition_of(wire)
    append(wire, 5_000)
    times.lag_ms(partition, 0, partition.end_offset, 9_000)
    times.sample(9_000 + lag_times.FORGET_MS)
    assert times.rings
    times.sample(9_001 + lag_times.FORGET_MS)
    assert not times.rings
    assert times.due_ms == NEVER


def test_a_record_of_this_very_turn(wire: Wire) -> None:
    """The ring has a point of this turn from before the record."""
    times, partition = LagTimes(wire.broker.state.storage), partition_of(wire)
    append(wire, 5_000)
    times.lag_ms(partition, 0, partition.end_offset, 5_000)
    append(wire, 5_000)
    assert times.lag_ms(partition, 1, partition.end_offset, 5_000) == 0


def test_points_are_taken_in_pieces(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    wire.connect().create_topic("many", 5)
    times = LagTimes(wire.broker.state.storage)
    for partition in wire.partitions("many"):
        times.lag_ms(partition, 0, 7, 1_000)
    assert times.due_ms == 1_000 + SAMPLE_MS
    monkeypatch.setattr(lag_times, "RINGS_A_TURN", 2)
    due = []
    for now in (2_000, 2_001, 2_002):
        times.sample(now)
        due.append(times.due_ms)
    assert due == [2_001, 2_002, 2_000 + SAMPLE_MS], "the next round is a second after this one began"
    assert sorted(ring.times[-1] for ring in times.rings.values()) == [2_000, 2_000, 2_001, 2_001, 2_002]


def test_a_damaged_batch_is_unknown(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    times, partition = LagTimes(wire.broker.state.storage), partition_of(wire)
    append(wire, 5_000)

    def damaged(*_: object) -> None:
        raise DamagedBatch("a bad checksum")

    monkeypatch.setattr(wire.broker.state.storage, "batches", damaged)
    assert times.look_up(partition, 0, 9_000) == UNKNOWN
