"""One partition's log: accepted batches and their offsets, reads, searches and deletion."""

from __future__ import annotations

import random
from contextlib import suppress
from struct import pack_into
from unittest import mock

import google_crc32c
import pytest
from logs import LOG, NOW, OneLog, batch, settings

from kohort.broker.logs.time_search import Search
from kohort.coordinator.events import Record
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import StorageError
from kohort.wire.batches import decode_records, read_header, split_batches
from kohort.wire.errors import ErrorCode


def changed(data: bytes, form: str, position: int, value: int) -> bytes:
    """The batch with a field set and its CRC put right."""
    edited = bytearray(data)
    pack_into(form, edited, position, value)
    pack_into(">I", edited, 17, google_crc32c.value(bytes(edited[21:])))
    return bytes(edited)


def read(log: OneLog, offset: int, max_bytes: int, *, whole_first: bool = True) -> bytes:
    return b"".join(log.partition.read(offset, max_bytes, whole_first=whole_first))


def values(data: bytes) -> list[bytes | None]:
    return [record.value for _, each in split_batches(data) for record in decode_records(each)]


def test_batches_get_consecutive_offsets_and_the_leader_epoch() -> None:
    log = OneLog()
    log.restart(leader_epoch=3)
    assert log.produce(batch(b"a", b"b")).base_offset == 0
    assert log.produce(batch(b"c")).base_offset == 2
    stored = log.storage.read(LOG, 0, 1 << 20)
    assert [read_header(each.data)[:3:2] for each in stored] == [(0, 3), (2, 3)]
    assert values(read(log, 0, 1 << 20)) == [b"a", b"b", b"c"]
    assert (log.partition.start_offset, log.partition.end_offset) == (0, 3)
    assert log.partition.size == sum(len(each.data) for each in stored)


def test_reads_end_at_what_is_durable() -> None:
    log = OneLog()
    log.append(batch(b"a"))
    assert (log.partition.end_offset, log.partition.high_watermark, log.partition.has_pending) == (1, 0, True)
    assert read(log, 0, 1000) == b""
    log.append(batch(b"b"))
    log.commit()
    assert (log.partition.high_watermark, log.partition.has_pending) == (2, False)
    assert values(read(log, 0, 1000)) == [b"a", b"b"]


def test_a_read_gives_whole_batches_and_the_first_one_whole() -> None:
    log = OneLog()
    for value in (b"a" * 500, b"b" * 500):
        log.produce(batch(value))
    size = len(read(log, 0, 1))
    assert values(read(log, 0, 1)) == [b"a" * 500]
    assert read(log, 0, size - 1, whole_first=False) == b""
    assert len(read(log, 0, 2 * size - 1)) == size
    assert len(read(log, 0, 2 * size)) == 2 * size
    assert read(log, 2, 100) == read(log, -1, 100) == read(log, 3, 100) == b""


GOOD = batch((b"k", b"v"), (b"l", b"w"))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (GOOD[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:16] + b"\x01" + GOOD[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (changed(GOOD, ">q", 0, 5), ErrorCode.INVALID_RECORD),
        (changed(GOOD, ">i", 8, 3), ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, ">h", 21, 0x20), ErrorCode.INVALID_RECORD),
        (changed(GOOD, ">h", 21, 0x10), ErrorCode.INVALID_TXN_STATE),
        (changed(GOOD, ">h", 21, 0x08), ErrorCode.INVALID_TIMESTAMP),
        (changed(GOOD, ">h", 21, 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(GOOD, ">h", 21, 1), ErrorCode.INVALID_RECORD),
        (changed(GOOD, ">i", 23, 2), ErrorCode.INVALID_RECORD),
        (changed(GOOD, ">i", 57, 1), ErrorCode.INVALID_RECORD),
        (changed(GOOD, ">i", 57, -1), ErrorCode.INVALID_RECORD),
        (changed(changed(GOOD, ">i", 57, 3), ">i", 23, 2), ErrorCode.INVALID_RECORD),
        (changed(GOOD, ">B", 61, 0x01), ErrorCode.INVALID_RECORD),
        (changed(GOOD, ">q", 43, 7), ErrorCode.INVALID_RECORD),
        (batch(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_an_invalid_append_is_refused_and_changes_nothing(data: bytes, error: ErrorCode) -> None:
    log = OneLog(max_message_bytes=1000)
    appended = log.produce(data)
    assert appended.error == error
    assert appended.message
    assert appended.operations == ()
    assert log.partition.end_offset == 0
    assert log.produce(GOOD).base_offset == 0
    log.partition.configure(settings(max_message_bytes=10), 0)
    assert log.produce(GOOD).error == ErrorCode.MESSAGE_TOO_LARGE, "settings apply at once"


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_every_codec_is_stored_unchanged(codec: int, policy: str) -> None:
    log = OneLog(cleanup_policy=policy)
    data = batch(*((b"key %d" % n, b"v" * n) for n in range(300)), compression=codec)
    assert log.produce(data).error == 0
    assert read(log, 0, 1 << 20)[21:] == data[21:]


def test_a_compacted_topic_takes_only_keyed_records() -> None:
    log = OneLog(cleanup_policy="compact")
    assert log.produce(batch((b"k", b"v"), (None, b"v"))).error == ErrorCode.INVALID_RECORD
    assert log.produce(batch((b"k", b"v"), (b"", None))).error == 0


def test_timestamps_are_bounded_where_the_topic_says_so() -> None:
    log = OneLog(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    assert log.produce(batch(b"a", timestamp=NOW - 1001)).error == ErrorCode.INVALID_TIMESTAMP
    assert log.produce(batch(b"a", timestamp=NOW + 1001)).error == ErrorCode.INVALID_TIMESTAMP
    assert log.produce(batch(b"a", timestamp=NOW - 1000)).error == 0
    assert log.produce(batch(b"a", timestamp=NOW + 1000)).error == 0
    assert log.produce(batch(b"a", timestamp=-1)).error == 0


def test_log_append_time_is_the_brokers() -> None:
    log = OneLog(message_timestamp_type="LogAppendTime")
    appended = log.produce(batch(b"a", b"b", timestamp=5), now=NOW)
    assert appended.log_append_time_ms == NOW
    [(header, data)] = split_batches(read(log, 0, 1000))
    assert header.timestamp_type == 1
    assert [record.timestamp for record in decode_records(data)] == [NOW, NOW]
    assert OneLog().produce(batch(b"a")).log_append_time_ms == -1


def test_records_of_the_broker_are_one_batch() -> None:
    log = OneLog()
    appended = log.partition.append_records([Record(b"k", b"v"), Record(b"l", None)], NOW)
    log.commit(appended.operations)
    [(header, data)] = split_batches(read(log, 0, 1000))
    assert (header.base_offset, header.record_count, header.max_timestamp) == (0, 2, NOW)
    assert [(record.key, record.value) for record in decode_records(data)] == [(b"k", b"v"), (b"l", None)]


# -- finding by time


def test_finding_records_by_time() -> None:
    log = OneLog()
    log.restart(leader_epoch=2)
    log.produce(batch(b"a", b"b", b"c", timestamp=100))
    log.produce(batch(b"d", timestamp=50))
    log.produce(batch(b"e", b"f", timestamp=200))
    assert [log.first_since(at) for at in (0, 100, 101, 102, 103, 200, 201, 202)] == [0, 0, 1, 2, 4, 4, 5, None]
    found = log.partition.first_record(101, Search())
    assert found is not None
    assert (found.timestamp, found.leader_epoch) == (101, 2)
    assert log.latest() == (5, 201)


def test_finding_by_time_passes_over_trimmed_records() -> None:
    log = OneLog()
    log.produce(batch(b"a", b"b", b"c", timestamp=900))
    log.produce(batch(b"d", timestamp=50))
    log.trim(2)
    assert log.first_since(0) == 2
    assert log.latest() == (2, 902)
    log.trim(4)
    assert (log.first_since(0), log.latest()) == (None, None)


def test_the_newest_record_is_found_without_reading_all_after_a_trim_into_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = OneLog()
    log.produce(batch(b"a", b"b", b"c", timestamp=NOW))
    log.produce(batch(b"the newest", b"x", timestamp=NOW + 5000))
    for n in range(50):
        log.produce(batch(b"later", timestamp=NOW + 1000 + n % 7))
    log.trim(4)
    reads = mock.Mock(wraps=log.storage.read)
    monkeypatch.setattr(log.storage, "read", reads)
    assert log.latest() == (4, NOW + 5001)
    log.trim(5)
    assert log.latest() == (5 + 6, NOW + 1006)
    assert reads.call_count <= 4
    assert log.partition.trim(55, NOW)
    assert log.latest() is None, "all of it goes in this turn"


# -- trimming


def test_trimming_never_moves_the_start_back() -> None:
    log = OneLog()
    log.produce(batch(b"a", b"b"))
    log.produce(batch(b"c"))
    log.trim(2)
    assert (log.partition.start_offset, log.partition.end_offset) == (2, 3)
    assert read(log, 1, 100) == b""
    assert log.partition.trim(1, NOW) == ()
    log.restart()
    assert (log.partition.start_offset, log.partition.end_offset) == (2, 3)


# -- epochs


def test_the_end_of_each_epoch() -> None:
    log = OneLog()
    assert log.partition.end_of_epoch(0) == (0, 0)
    log.produce(batch(b"a", b"b"))
    log.partition.configure(log.settings, 3)
    log.produce(batch(b"c"))
    log.produce(batch(b"d"))
    log.partition.configure(log.settings, 4)
    log.partition.configure(log.settings, 7)
    log.produce(batch(b"e"))
    for _ in ("live", "restarted"):
        ends = [log.partition.end_of_epoch(epoch) for epoch in range(9)]
        assert ends == [(0, 2), (0, 2), (0, 2), (3, 4), (3, 4), (3, 4), (3, 4), (7, 5), (-1, -1)]
        assert [log.partition.epoch_at(offset) for offset in range(5)] == [0, 0, 3, 3, 7]
        log.restart(leader_epoch=7)


def test_an_epoch_without_records_ends_where_it_began() -> None:
    log = OneLog()
    log.produce(batch(b"a"))
    log.restart(leader_epoch=5)
    assert log.partition.end_of_epoch(5) == (5, 1)
    assert log.partition.end_of_epoch(4) == (0, 1)
    log.trim(1)
    for _ in ("live", "restarted"):
        assert log.partition.end_of_epoch(4) == (4, 1)
        log.restart(leader_epoch=5)


def test_epochs_found_by_bisection_are_those_of_the_batches() -> None:
    chance = random.Random(5)
    log = OneLog()
    epoch, starts = 0, {0: 0}
    for _ in range(200):
        if chance.random() < 0.1:
            epoch += chance.randint(1, 3)
            starts[epoch] = log.partition.end_offset
            log.partition.configure(log.settings, epoch)
        log.produce(batch(*[b"x"] * chance.randint(1, 5)))
    live = [log.partition.end_of_epoch(each) for each in range(epoch + 1)]
    log.restart(leader_epoch=epoch)
    assert [log.partition.end_of_epoch(each) for each in range(epoch + 1)] == live
    assert all(log.partition.epoch_at(start) == each for each, start in starts.items())


# -- crashes


def test_a_crash_at_any_commit_leaves_what_was_committed() -> None:
    for fail_at in range(2, 12):
        storage = MemoryStorage(fail_at_commit=fail_at)
        log = OneLog(storage)
        acknowledged = 0
        with suppress(StorageError):
            while True:
                log.append(batch(b"%d" % acknowledged, producer_id=1, producer_epoch=0, base_sequence=acknowledged))
                log.commit()
                acknowledged += 1
        assert acknowledged == fail_at - 2
        after = OneLog(storage.copy())
        assert values(read(after, 0, 1 << 20)) == [b"%d" % n for n in range(acknowledged)]
        # The producer repeats the unacknowledged batch and continues.
        repeat = after.produce(batch(b"again", producer_id=1, producer_epoch=0, base_sequence=acknowledged))
        assert repeat.base_offset == acknowledged
