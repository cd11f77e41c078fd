"""Compaction: the newest record of each key stays, nothing moves, tombstones and producers are kept long enough."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from compacted import DAY, KEEP, batches, compacted_log, due, finish, looked_at, pairs, records, run
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from logs import LOG, NOW, OneLog, batch
from msgspec.structs import replace

from kohort.broker.logs import compaction, dirty_part
from kohort.broker.logs.compaction import DELETE_HORIZON
from kohort.broker.logs.dirty_part import DirtyPart
from kohort.storage.protocol import Append, StoredBatch
from kohort.wire.batches import NewRecord as New
from kohort.wire.batches import check_crc, encode_batch, read_header
from kohort.wire.errors import ErrorCode


def test_only_the_newest_record_of_a_key_stays() -> None:
    log = compacted_log()
    log.produce(batch((b"a", b"1"), (b"b", b"1")))
    log.produce(batch((b"a", b"2"), (b"c", b"1")))
    log.produce(batch((b"a", b"3")))
    log.produce(batch((b"b", b"2")))
    assert run(log) == 5
    # The last batch is not compacted: b=1 stays beside b=2.
    assert pairs(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"b", b"2")]
    assert log.partition.end_offset == 6
    assert all(check_crc(each.data, read_header(each.data)) for each in batches(log))


@pytest.mark.parametrize("codec", range(5))
def test_kept_records_keep_codec_offsets_timestamps_and_headers(codec: int) -> None:
    log = compacted_log()
    news = [New(b"k%d" % (n % 60), b"v" * n, NOW + n, (("h", b"%d" % n), ("n", None))) for n in range(100)]
    log.produce(encode_batch(news, compression=codec, producer_id=4, producer_epoch=2, base_sequence=10))
    log.produce(batch((b"z", b"z")))
    before = records(log)
    run(log)
    assert records(log) == [*before[40:100], before[100]]
    header = read_header(batches(log)[0].data)
    assert (header.compression, header.base_offset, header.last_offset, header.record_count) == (codec, 0, 99, 60)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 10)
    assert header.max_timestamp == batches(log)[0].max_timestamp == NOW + 99


def test_log_append_time_stays() -> None:
    log = compacted_log(message_timestamp_type="LogAppendTime")
    log.produce(batch((b"a", b"1"), (b"b", b"1")), now=NOW + 7)
    log.produce(batch((b"a", b"2")), now=NOW + 8)
    log.produce(batch((b"z", b"z")), now=NOW + 9)
    run(log)
    times = [(record.key, record.timestamp) for record in records(log)]
    assert times == [(b"b", NOW + 7), (b"a", NOW + 8), (b"z", NOW + 9)]
    assert read_header(batches(log)[0].data).timestamp_type == 1


def test_tombstones_are_removed_after_delete_retention() -> None:
    log = compacted_log(delete_retention_ms=DAY)
    log.produce(batch((b"a", b"1")))
    log.produce(batch((b"a", None), (b"b", b"1"), timestamp=NOW - 100 * DAY))
    log.produce(batch((b"z", b"1")))
    clean = run(log, NOW)
    assert pairs(log) == [(1, b"a", None), (2, b"b", b"1"), (3, b"z", b"1")]
    header = read_header(batches(log)[0].data)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + DAY
    assert records(log)[0].timestamp == NOW - 100 * DAY
    log.produce(batch((b"y", b"1")))
    clean = run(log, NOW + DAY - 1, clean)
    assert pairs(log)[0] == (1, b"a", None)
    log.produce(batch((b"x", b"1")))
    run(log, NOW + DAY, clean)
    assert [key for _, key, _ in pairs(log)] == [b"b", b"z", b"y", b"x"]


def test_an_emptied_batch_stays_for_a_producer_that_may_come_back() -> None:
    log = compacted_log()
    log.produce(batch((b"a", b"1"), (b"a", b"2"), producer_id=5, producer_epoch=0, base_sequence=0, compression=4))
    log.produce(batch((b"a", b"3"), producer_id=6, producer_epoch=0, base_sequence=0))
    log.produce(batch((b"a", b"4"), producer_id=6, producer_epoch=0, base_sequence=1))
    log.produce(batch((b"z", b"z")))
    run(log)
    counts = [(each.producer_id, read_header(each.data).record_count) for each in batches(log)]
    assert counts == [(5, 0), (6, 1), (-1, 1)]
    log.restart()

    def send(sequence: int, count: int) -> ErrorCode:
        data = batch(*[(b"a", b"5")] * count, producer_id=5, producer_epoch=0, base_sequence=sequence)
        return log.produce(data).error

    assert send(0, 2) == 0  # a repeat
    assert log.partition.end_offset == 5
    assert send(3, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(2, 1) == 0
    log.produce(batch((b"y", b"y")))
    run(log, NOW)
    assert 0 not in [each.base_offset for each in batches(log)]


def test_an_emptied_batch_of_an_expired_producer_goes() -> None:
    log = compacted_log()
    log.produce(batch((b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=0))
    log.produce(batch((b"a", b"2")))
    log.produce(batch((b"z", b"z")))
    run(log, NOW + KEEP + 1)
    assert pairs(log) == [(1, b"a", b"2"), (2, b"z", b"z")]


def test_finding_by_time_passes_over_empty_batches() -> None:
    log = compacted_log()
    log.produce(batch((b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=0, timestamp=NOW + 50))
    log.produce(batch((b"a", b"2"), timestamp=NOW + 10))
    log.produce(batch((b"z", b"z"), timestamp=NOW + 5))
    run(log)
    assert log.latest() == (1, NOW + 10)
    assert log.first_since(NOW + 6) == 1


def test_control_batches_of_other_kinds_stay() -> None:
    log = compacted_log()
    control = encode_batch([New(b"\0\0\0\2", b"\0\0\0\0\0\0", NOW)], is_control=True)
    stored = StoredBatch(0, 0, NOW, control)
    log.storage.commit([Append(LOG, (stored,))], log.storage.acquire())
    log.restart()
    log.produce(batch((b"\0\0\0\2", b"x")))
    log.produce(batch((b"z", b"z")))
    run(log)
    assert batches(log)[0] == stored


def test_a_pass_is_due_by_the_dirty_ratio() -> None:
    log = OneLog(cleanup_policy="compact", min_cleanable_dirty_ratio=0.5)
    for n in range(10):
        log.produce(batch((b"k%d" % n, b"v")))
    assert due(log) is not None
    assert due(log, 4) is None  # 5 of 10 batches: not more than half
    assert due(log, 3) is not None
    assert due(OneLog(cleanup_policy="delete")) is None


def test_batches_are_counted_once_and_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirty_part, "BATCHES_A_LOOK", 10)
    log = OneLog(cleanup_policy="compact", min_cleanable_dirty_ratio=0.99)
    looked = looked_at(log, monkeypatch)
    for n in range(25):
        log.produce(batch((b"k%d" % n, b"v")))
    dirty = DirtyPart(0)
    looks = 1
    while dirty.due(log.partition, log.storage, NOW) is None and not dirty.all_counted:
        looks += 1
    assert looks == 3
    for n in range(3):
        log.produce(batch((b"more %d" % n, b"v")))
    assert dirty.due(log.partition, log.storage, NOW) is None
    assert len(looked) <= 28 + looks, "each batch once, and one ahead where a look ended"
    log.partition.configure(replace(log.partition.settings, min_cleanable_dirty_ratio=0.9), 0)
    work = dirty.due(log.partition, log.storage, NOW)
    assert work is not None
    assert work.clean_to == 27


def test_tombstones_go_when_nothing_is_appended_any_more() -> None:
    log = OneLog(cleanup_policy="compact", min_cleanable_dirty_ratio=0.5, delete_retention_ms=1000)
    for n in range(5):
        log.produce(batch((b"k%d" % n, b"v")))
    for n in range(5):
        log.produce(batch((b"k%d" % n, None)))
    log.produce(batch((b"z", b"v")))
    first = due(log)
    assert first is not None
    finish(log, first)
    assert [value for _, _, value in pairs(log)] == [None] * 5 + [b"v"]
    dirty = DirtyPart(first.clean_to, first.tombstones_go_ms)
    assert dirty.due(log.partition, log.storage, NOW + 999) is None
    second = dirty.due(log.partition, log.storage, NOW + 1000)
    assert second is not None
    assert finish(log, second, NOW + 1000) == first.clean_to
    assert pairs(log) == [(10, b"z", b"v")]
    assert DirtyPart(second.clean_to, second.tombstones_go_ms).due(log.partition, log.storage, NOW + DAY) is None


def test_young_records_stay_as_they_are() -> None:
    log = compacted_log(min_compaction_lag_ms=1000)
    for at in (NOW - 3000, NOW - 2000, NOW - 500, NOW - 400, NOW - 2000):
        log.produce(batch((b"a", b"%d" % at), timestamp=at))
    assert run(log, NOW) == 2
    assert [record.offset for record in records(log)] == [1, 2, 3, 4]


def test_a_trim_in_the_same_turn_is_waited_for() -> None:
    log = compacted_log()
    for n in range(6):
        log.produce(batch((b"a", b"%d" % n)))
    work = due(log)
    assert work is not None
    assert work.step(NOW, KEEP) == ()
    trim = log.partition.trim(3, NOW)
    assert trim
    assert work.step(NOW, KEEP) == ()
    log.commit(trim)
    finish(log, work)
    assert pairs(log) == [(4, b"a", b"4"), (5, b"a", b"5")]


def test_too_many_keys_make_the_pass_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_KEY_BYTES", 3 * 150)
    log = compacted_log()
    for n in range(20):
        log.produce(batch((b"key %d" % (n % 10), b"%d" % n)))
    clean, passes = 0, 0
    while clean < 19 and passes < 20:
        clean, passes = run(log, NOW, clean), passes + 1
    assert 1 < passes < 20
    # The last batch, key 9, is not compacted, so the key's older value stays too.
    assert [record.offset for record in records(log)] == list(range(9, 20))


@dataclass(frozen=True)
class Step:
    sends: list[list[tuple[int, int | None]]]
    """Batches of (key, value)."""
    hours: int
    compact: bool
    restart: bool


pair = st.tuples(st.integers(0, 5), st.none() | st.integers(0, 99))
sends = st.lists(st.lists(pair, min_size=1, max_size=4), max_size=4)
steps = st.builds(Step, sends, st.integers(0, 30), st.booleans(), st.booleans())


@given(st.lists(steps, max_size=12), st.integers(1, 400))
@hypothesis_settings(max_examples=150, deadline=None)
def test_the_state_replayed_is_the_state_live(history: list[Step], step_bytes: int) -> None:
    log = compacted_log(delete_retention_ms=DAY)
    live: dict[bytes, bytes | None] = {}
    values: dict[int, tuple[bytes, bytes | None]] = {}
    now, clean = NOW, 0
    for step in history:
        now += step.hours * 3_600_000
        for sent in step.sends:
            news = [(b"%d" % key, None if value is None else b"%d" % value) for key, value in sent]
            base = log.produce(batch(*news, timestamp=now), now).base_offset
            for index, (key, value) in enumerate(news):
                live[key] = value
                values[base + index] = (key, value)
        if step.compact:
            clean = run(log, now, clean, step_bytes)
        if step.restart:
            log.restart()
            clean = 0
        found = records(log)
        replayed: dict[bytes, bytes | None] = {}
        for record in found:
            assert values[record.offset] == (record.key, record.value)
            assert record.key is not None
            replayed[record.key] = record.value
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        present = {key: value for key, value in live.items() if value is not None}
        assert {key: value for key, value in replayed.items() if value is not None} == present
        assert log.partition.size == sum(len(each.data) for each in batches(log))
