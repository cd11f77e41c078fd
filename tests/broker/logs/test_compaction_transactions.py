"""Compaction of transactions: aborted records go, markers stay while their records do (after Kafka's Cleaner)."""

from __future__ import annotations

from compacted import DAY, KEEP, batches, compacted_log, due, pairs, records, run
from logs import NOW, OneLog, batch

from kohort.broker.logs.compaction import DELETE_HORIZON
from kohort.storage.protocol import ABORT_MARKER, COMMIT_MARKER, PLAIN, TRANSACTIONAL
from kohort.wire.batches import check_crc, read_header
from kohort.wire.errors import ErrorCode
from kohort.wire.markers import read_marker

KEPT_MS = DAY
"""delete.retention.ms, Kafka's default."""


def put(log: OneLog, sequence: int, *keys: bytes, producer: int = 1, epoch: int = 0, now: int = NOW) -> None:
    """A transactional batch; a record's value is its key and the sequence number."""
    data = batch(
        *[(key, key + b"%d" % sequence) for key in keys],
        timestamp=now,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    assert log.produce(data, now).error == 0


def kinds(log: OneLog) -> list[tuple[int, int]]:
    """Offset and kind of each batch."""
    return [(each.base_offset, each.kind) for each in batches(log)]


def test_aborted_records_go_and_hide_nothing() -> None:
    log = compacted_log()
    log.produce(batch((b"a", b"first")))
    put(log, 0, b"a", b"b")
    log.mark(1, 0, commit=False)
    log.produce(batch((b"z", b"z")))
    run(log)
    assert [pair for pair in pairs(log) if pair[0] != 3] == [(0, b"a", b"first"), (4, b"z", b"z")]


def test_committed_records_replace_by_their_offsets() -> None:
    """A plain record after a pending one is newer, although the marker comes later (TX52)."""
    log = compacted_log()
    put(log, 0, b"a", b"b")
    log.produce(batch((b"a", b"plain")))
    log.mark(1, 0, commit=True)
    log.produce(batch((b"z", b"z")))
    run(log)
    assert [(record.key, record.value) for record in log.committed()] == [(b"b", b"b0"), (b"a", b"plain"), (b"z", b"z")]


def test_a_pass_ends_before_an_open_transaction() -> None:
    log = compacted_log()
    for n in range(3):
        log.produce(batch((b"a", b"%d" % n)))
    put(log, 0, b"a")
    for n in range(3):
        log.produce(batch((b"a", b"%d" % (3 + n))))
    assert run(log) == 3
    assert pairs(log) == [(offset, b"a", value) for offset, value in enumerate([b"2", b"a0", b"3", b"4", b"5"], 2)]
    log.mark(1, 0, commit=True)
    log.produce(batch((b"z", b"z")))
    run(log, first_dirty=3)
    assert [offset for offset, key, _ in pairs(log) if key == b"a"] == [6]


def test_a_marker_stays_while_a_batch_of_its_transaction_does() -> None:
    log = compacted_log()
    put(log, 0, b"a", b"b")
    log.mark(1, 0, commit=True)
    put(log, 2, b"a", epoch=0)
    log.mark(1, 0, commit=False)
    log.produce(batch((b"z", b"z")))
    for day in range(20, 40, 5):
        run(log, NOW + day * DAY)
    assert kinds(log)[:2] == [(0, TRANSACTIONAL), (2, COMMIT_MARKER)], "b is the newest record of its key"
    assert [value for _, _, value in pairs(log)[:2]] == [b"a0", b"b0"]
    assert [each.kind for each in batches(log)].count(ABORT_MARKER) == 0


def test_a_marker_without_records_goes_after_its_time() -> None:
    log = compacted_log()
    put(log, 0, b"a")
    log.mark(1, 0, commit=True)
    log.produce(batch((b"a", b"plain")))
    log.produce(batch((b"z", b"z")))
    late = NOW + KEEP + 1
    run(log, late)
    assert kinds(log) == [(1, COMMIT_MARKER), (2, PLAIN), (3, PLAIN)]
    marker = batches(log)[0]
    assert not read_header(marker.data).attributes & DELETE_HORIZON, "the pass has met a batch of the transaction"
    run(log, late)
    marker = batches(log)[0]
    header = read_header(marker.data)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == late + KEPT_MS
    assert check_crc(marker.data, header)
    found = read_marker(marker.data)
    assert found is not None
    assert (found.producer_id, found.committed) == (1, True)
    assert records(log)[0].timestamp == NOW
    run(log, late + KEPT_MS - 1)
    assert kinds(log)[0] == (1, COMMIT_MARKER)
    run(log, late + KEPT_MS)
    assert kinds(log) == [(2, PLAIN), (3, PLAIN)]


def test_a_pass_is_due_when_a_marker_may_go() -> None:
    log = compacted_log()
    log.mark(1, 0, commit=False)
    log.produce(batch((b"z", b"z")))
    work = due(log, now=NOW)
    assert work is not None
    while not work.done:
        log.commit(work.step(NOW, KEEP))
    assert work.tombstones_go_ms == NOW + KEPT_MS


def test_the_last_marker_of_a_producer_that_may_return_stays_for_its_epoch() -> None:
    log = compacted_log()
    put(log, 0, b"a", epoch=4)
    log.mark(1, 5, commit=False, coordinator_epoch=3, version=2)
    log.produce(batch((b"z", b"z")))
    for hours in range(0, 24 * 9, 8):
        run(log, NOW + hours * DAY // 24)
    assert (1, ABORT_MARKER) in kinds(log)
    log.restart()
    late = batch((b"a", b"x"), producer_id=1, producer_epoch=4, base_sequence=1, is_transactional=True)
    assert log.partition.append(late, NOW).error == ErrorCode.INVALID_PRODUCER_EPOCH
    for day in range(11, 30, 2):
        run(log, NOW + day * DAY)
    assert kinds(log) == [(2, PLAIN)]


def test_a_marker_of_nothing_stays_for_the_epoch_of_its_producer() -> None:
    """The server has aborted a transaction that has no records here."""
    log = compacted_log()
    log.mark(1, 5, commit=False, coordinator_epoch=3, version=2)
    log.produce(batch((b"z", b"z")))
    for hours in range(0, 24 * 6, 8):
        run(log, NOW + hours * DAY // 24)
    assert kinds(log) == [(0, ABORT_MARKER), (1, PLAIN)]
    log.restart()
    late = batch((b"a", b"x"), producer_id=1, producer_epoch=4, base_sequence=0, is_transactional=True)
    assert log.partition.append(late, NOW).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_last_records_of_a_producer_that_may_return_stay_empty_for_their_sequence() -> None:
    log = compacted_log()
    put(log, 0, b"a")
    put(log, 1, b"a", b"b")
    log.mark(1, 0, commit=False)
    log.produce(batch((b"z", b"z")))
    for day in range(9):
        run(log, NOW + day * DAY)
    assert kinds(log) == [(1, TRANSACTIONAL), (3, ABORT_MARKER), (4, PLAIN)]
    assert read_header(batches(log)[0].data).record_count == 0
    log.restart()
    data = batch((b"a", b"x"), producer_id=1, producer_epoch=0, base_sequence=3, is_transactional=True)
    assert log.partition.append(data, NOW).error == 0


def test_a_producer_lives_by_its_marker() -> None:
    """Its records are old, and its marker is young (KAFKA-9144)."""
    log = compacted_log()
    put(log, 0, b"a")
    log.mark(1, 0, commit=False, now=NOW + 2 * KEEP)
    log.produce(batch((b"z", b"z")), NOW + 2 * KEEP)
    run(log, NOW + 2 * KEEP)
    assert kinds(log)[0] == (0, TRANSACTIONAL)


def test_dropped_markers_are_forgotten() -> None:
    log = compacted_log()
    for n in range(5):
        put(log, n, b"a")
        log.mark(1, 0, commit=False)
    log.produce(batch((b"z", b"z")))
    assert len(log.partition.aborted_in(0, 100)) == 5
    for day in range(20, 40, 3):
        run(log, NOW + day * DAY)
    assert kinds(log) == [(10, PLAIN)]
    assert log.partition.aborted_in(0, 100) == []
