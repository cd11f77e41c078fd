"""Transactions of a partition: what is accepted, where readers end, what a restart knows (rows TX26-TX43)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from logs import NOW, OneLog, batch

from kohort.broker.logs import producers
from kohort.broker.logs.partition import Appended
from kohort.broker.logs.producers import ProducerState
from kohort.coordinator.events import Record
from kohort.storage.protocol import ABORT_MARKER, COMMIT_MARKER, PLAIN, TRANSACTIONAL
from kohort.wire.errors import ErrorCode
from kohort.wire.markers import Marker, read_marker

DAY = 86_400_000


def data_of(
    sequence: int,
    count: int = 1,
    *,
    producer: int = 1,
    epoch: int = 0,
    transactional: bool = True,
    value: bytes = b"x",
    timestamp: int = NOW,
) -> bytes:
    return batch(
        *[value] * count,
        timestamp=timestamp,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def send(log: OneLog, sequence: int, count: int = 1, *, now: int = NOW, **fields: object) -> Appended:
    return log.produce(data_of(sequence, count, **fields), now)  # type: ignore[arg-type]


def values(log: OneLog, offset: int = 0) -> list[bytes | None]:
    return [record.value for record in log.committed(offset)]


def aborted(log: OneLog, first: int, end: int) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in log.partition.aborted_in(first, end)]


def both_lives(log: OneLog) -> Sequence[str]:
    """Call the loop's body twice: for the partition as it is, and restarted."""

    def lives() -> object:
        yield "live"
        log.restart()
        yield "restarted"

    return lives()  # type: ignore[return-value]


@pytest.mark.conformance("TX32", "TX34")
def test_readers_of_committed_records_end_before_an_open_transaction() -> None:
    log = OneLog()
    log.produce(batch(b"a"))
    send(log, 0, 2, value=b"t")
    log.produce(batch(b"b"))
    for _ in both_lives(log):
        assert (log.partition.last_stable_offset, log.partition.high_watermark) == (1, 4)
        assert log.partition.first_open() == (1, 1)
        assert values(log) == [b"a"]
        assert log.partition.read(1, 1 << 20, committed=True) == ()
        assert len(log.partition.read(0, 1 << 20, committed=True)) == 1, "it ends inside a run of batches"
        assert len(log.partition.read(0, 1 << 20)) == 3
    log.mark(1, 0, commit=True)
    for _ in both_lives(log):
        assert log.partition.last_stable_offset == log.partition.high_watermark == 5
        assert log.partition.first_open() is None
        assert values(log) == [b"a", b"t", b"t", b"b"]
        assert aborted(log, 0, 5) == []


@pytest.mark.conformance("TX32")
def test_the_last_stable_offset_moves_when_the_turn_is_durable() -> None:
    log = OneLog()
    send(log, 0)
    log.append(batch(b"b"))
    log.mark(1, 0, commit=True, decide_only=True)
    assert log.partition.last_stable_offset == 0
    assert log.partition.stable_end == 3
    assert log.partition.read(0, 1 << 20, committed=True) == ()
    log.commit()
    assert log.partition.last_stable_offset == 3


def test_a_transaction_that_begins_and_ends_in_one_turn() -> None:
    log = OneLog()
    log.append(data_of(0, value=b"t"))
    log.mark(1, 0, commit=False, decide_only=True)
    log.append(data_of(1, value=b"u"))
    log.commit()
    for _ in both_lives(log):
        assert (log.partition.last_stable_offset, aborted(log, 0, 9)) == (2, [(1, 0)])
        assert values(log) == []


@pytest.mark.conformance("TX33")
def test_aborted_records_are_listed_for_the_fetches_that_see_them() -> None:
    log = OneLog()
    send(log, 0, 2, producer=1)  # 0, 1
    send(log, 0, producer=2)  # 2
    log.mark(1, 0, commit=False)  # 3
    send(log, 2, producer=1, value=b"kept")  # 4
    log.mark(2, 0, commit=False)  # 5
    log.mark(1, 0, commit=True)  # 6
    for _ in both_lives(log):
        assert aborted(log, 0, 7) == [(1, 0), (2, 2)], "in the order of their markers"
        assert aborted(log, 0, 2) == [(1, 0)]
        assert aborted(log, 3, 7) == [(1, 0), (2, 2)]
        assert aborted(log, 4, 5) == [(2, 2)]
        assert aborted(log, 6, 7) == []
        assert values(log) == [b"kept"]
        assert [values(log, offset) for offset in range(3, 7)] == [[b"kept"], [b"kept"], [], []]


def test_a_marker_is_kafkas_batch_and_its_row_says_what_it_ended() -> None:
    log = OneLog()
    log.mark(7, 2, commit=False, coordinator_epoch=4)
    send(log, 0, producer=7, epoch=2)
    log.mark(7, 2, commit=True, coordinator_epoch=5)
    log.produce(batch(b"x"))
    found = log.storage.read(log.partition.log, 0, 1 << 20)
    assert [(row.kind, row.transaction_start, row.coordinator_epoch) for row in found] == [
        (ABORT_MARKER, -1, 4),
        (TRANSACTIONAL, 1, 4),
        (COMMIT_MARKER, 1, 5),
        (PLAIN, -1, -1),
    ]
    assert read_marker(found[0].data) == Marker(7, 2, False, 4)
    assert read_marker(found[2].data) == Marker(7, 2, True, 5)
    assert [row.base_offset for row in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.conformance("TX33", "TX42")
def test_a_marker_without_records_aborts_nothing(known: bool) -> None:
    """TX42: it is written, and no reader is told of it."""
    log = OneLog()
    if known:
        send(log, 0)
        log.mark(1, 0, commit=False)
    before = log.partition.end_offset
    assert log.mark(1, 0, commit=False).base_offset == before
    for _ in both_lives(log):
        assert aborted(log, 0, 100) == ([(1, 0)] if known else [])
        assert log.partition.last_stable_offset == before + 1


@pytest.mark.conformance("TX26", "TX27")
def test_what_a_producer_may_append() -> None:
    """TX26, TX27."""
    log = OneLog()
    send(log, 0, epoch=1)
    for _ in both_lives(log):
        for fields, error in (
            ({"sequence": 5, "epoch": 0}, ErrorCode.INVALID_PRODUCER_EPOCH),
            ({"sequence": 1, "epoch": 2}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            ({"sequence": 2, "epoch": 1}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            ({"sequence": 1, "epoch": 1, "transactional": False}, ErrorCode.INVALID_TXN_STATE),
        ):
            refused = log.partition.append(data_of(**fields), NOW)  # type: ignore[arg-type]
            assert (refused.error, refused.operations) == (error, ())
            assert refused.message
    log.mark(1, 1, commit=True)
    assert send(log, 1, epoch=1, transactional=False).error == 0
    assert log.partition.first_open() is None
    no_producer = log.partition.append(batch(b"x", is_transactional=True), NOW)
    assert no_producer.error == ErrorCode.INVALID_TXN_STATE


@pytest.mark.conformance("TX26")
def test_an_unknown_producer_begins_with_zero_if_each_transaction_has_an_epoch() -> None:
    log = OneLog()
    late = data_of(3)
    assert log.partition.append(late, NOW, new_epochs=True).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.partition.append(data_of(3, transactional=False), NOW, new_epochs=True).error == 0
    assert OneLog().partition.append(late, NOW).error == 0
    assert OneLog().partition.append(data_of(0), NOW, new_epochs=True).error == 0


@pytest.mark.conformance("TX30")
def test_sequences_go_on_over_commits_and_a_higher_epoch_begins_again() -> None:
    """TX30."""
    log = OneLog()
    for n in range(3):
        assert send(log, n).error == 0
        log.mark(1, 0, commit=True)
    for _ in both_lives(log):
        assert log.partition.append(data_of(2), NOW).base_offset == 4, "a repeat, also after its marker"
        assert log.partition.append(data_of(0), NOW).base_offset == 0
    log.mark(1, 1, commit=False)
    for _ in both_lives(log):
        assert log.partition.append(data_of(3), NOW).error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.partition.append(data_of(2), NOW).error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.partition.append(data_of(3, epoch=1), NOW).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1).error == 0


@pytest.mark.conformance("TX28")
def test_has_open() -> None:
    """TX28."""
    log = OneLog()
    log.append(data_of(0, epoch=3))
    assert log.partition.has_open(1, 3), "it began in this turn"
    log.commit()
    for _ in both_lives(log):
        assert log.partition.has_open(1, 3)
        assert not log.partition.has_open(1, 2)
        assert not log.partition.has_open(1, 4)
        assert not log.partition.has_open(2, 3)
    log.mark(1, 4, commit=True, version=2)
    for _ in both_lives(log):
        assert not log.partition.has_open(1, 3)
        assert not log.partition.has_open(1, 4)


@pytest.mark.conformance("TX40")
def test_epochs_of_markers() -> None:
    """TX40: an older epoch is refused. In version 2 the marker of an open transaction has a higher one."""
    log = OneLog()
    send(log, 0, epoch=5)
    for _ in both_lives(log):
        for epoch, version in ((4, 0), (4, 2), (5, 2)):
            refused = log.partition.append_marker(Marker(1, epoch, True, 0), NOW, version=version)
            assert (refused.error, refused.operations) == (ErrorCode.INVALID_PRODUCER_EPOCH, ())
    assert log.mark(1, 6, commit=True, version=2).error == 0
    for _ in both_lives(log):
        assert log.mark(1, 6, commit=True, version=2).error == 0, "a repeated marker is written again"
        assert log.mark(1, 5, commit=True, version=2).error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.mark(1, 5, commit=True).error == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.conformance("TX40")
def test_the_last_epoch_has_no_higher_one() -> None:
    log = OneLog()
    send(log, 0, epoch=32767)
    assert log.mark(1, 32767, commit=False, version=2).error == 0
    assert log.partition.last_stable_offset == 2


@pytest.mark.conformance("TX41")
def test_coordinator_epochs_of_markers() -> None:
    """TX41."""
    log = OneLog()
    send(log, 0)
    log.mark(1, 0, commit=True, coordinator_epoch=7)
    send(log, 1)
    for _ in both_lives(log):
        refused = log.partition.append_marker(Marker(1, 0, True, 6), NOW)
        assert refused.error == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert log.partition.first_open() == (1, 2)
    assert log.mark(1, 0, commit=True, coordinator_epoch=7).error == 0
    assert log.mark(2, 0, commit=True, coordinator_epoch=1).error == 0, "of another producer"


@pytest.mark.conformance("TX43")
def test_an_administrator_aborts_a_hanging_transaction() -> None:
    """TX43: with the producer's epoch, and version 0."""
    log = OneLog()
    send(log, 0, epoch=5)
    [state] = log.partition.producer_states(NOW)
    assert log.mark(1, state.epoch, commit=False, version=0).error == 0
    assert log.partition.last_stable_offset == 2


def test_the_coordinators_own_records_have_no_sequence() -> None:
    log = OneLog()
    records = [Record(b"k", b"v"), Record(b"l", None)]

    def write(epoch: int) -> Appended:
        appended = log.partition.append_records(records, NOW, producer=(1, epoch))
        log.commit(appended.operations)
        return appended

    assert write(2).base_offset == 0
    for n, _ in enumerate(both_lives(log)):
        assert write(1).error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert write(2).base_offset == 2 + 2 * n
        assert log.partition.has_open(1, 2)
        assert log.partition.last_stable_offset == 0
        [state] = log.partition.producer_states(NOW)
        assert state == ProducerState(1, 2, -1, NOW, -1, 0)
    log.mark(1, 3, commit=True, version=2)
    assert log.partition.last_stable_offset == 7
    assert [(record.key, record.value) for record in log.committed()][:2] == [(b"k", b"v"), (b"l", None)]


@pytest.mark.conformance("TX44")
def test_producer_states() -> None:
    """TX44."""
    log = OneLog()
    send(log, 4, 3, producer=3, transactional=False)
    send(log, 0, 2, producer=1, epoch=2)
    send(log, 0, producer=2)
    log.mark(2, 1, commit=True, coordinator_epoch=9, version=2, now=NOW + 5)
    for _ in both_lives(log):
        assert log.partition.producer_states(NOW + 10) == [
            ProducerState(1, 2, 1, NOW + 1, -1, 3),
            ProducerState(2, 1, -1, NOW + 5, 9, -1),
            ProducerState(3, 0, 6, NOW + 2, -1, -1),
        ]
        later = log.partition.producer_states(NOW + 2 * DAY)
        assert [state.producer_id for state in later] == [1], "one with an open transaction does not expire"


def test_a_producer_with_an_open_transaction_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "REMEMBERED_PRODUCERS", 3)
    log = OneLog()
    send(log, 0, epoch=1)
    for n in range(20):
        send(log, 0, producer=100 + n, transactional=False)
    assert log.partition.has_open(1, 1)
    late = log.partition.append(data_of(7, epoch=0), NOW + 5 * DAY)
    assert late.error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.partition.append(data_of(0, epoch=1), NOW + 5 * DAY).base_offset == 0, "a repeat"


def test_a_marker_keeps_a_producer_with_old_records() -> None:
    """KAFKA-9144: its records have old timestamps, and its transaction ends long after them. The epochs of producer and
    coordinator are known for a day from the marker on."""
    log = OneLog()
    send(log, 0, timestamp=NOW - 3 * DAY)
    marked = NOW + 2 * DAY
    log.mark(1, 1, commit=False, coordinator_epoch=7, now=marked)
    late = marked + DAY - 1
    for _ in both_lives(log):
        refused = log.partition.append_marker(Marker(1, 1, False, 6), late)
        assert refused.error == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert log.partition.append(data_of(1), late).error == ErrorCode.INVALID_PRODUCER_EPOCH


# -- trims


@pytest.mark.conformance("TX32")
def test_a_trim_may_pass_an_open_transaction() -> None:
    log = OneLog()
    send(log, 0, 2, epoch=1)
    log.produce(batch(b"a"))
    log.trim(1)
    for _ in both_lives(log):
        assert log.partition.last_stable_offset == 1
    log.trim(3)
    for _ in both_lives(log):
        assert (log.partition.last_stable_offset, log.partition.first_open()) == (3, (1, 0))
        assert log.partition.has_open(1, 1)
    log.produce(batch(b"b"))
    for _ in both_lives(log):
        assert log.partition.last_stable_offset == 3
        assert values(log) == []
    log.mark(1, 1, commit=False)
    for _ in both_lives(log):
        assert log.partition.last_stable_offset == 5
        assert log.partition.first_open() is None
        assert values(log) == [b"b"]


def test_a_restart_knows_producers_whose_batches_are_all_trimmed() -> None:
    log = OneLog()
    for n in range(7):
        send(log, n, producer=5, epoch=1, transactional=False)
    send(log, 0, producer=6)
    log.mark(6, 3, commit=True, coordinator_epoch=8, version=2)
    send(log, 0, producer=7, transactional=False)
    states = log.partition.producer_states(NOW)
    log.trim(9)
    for _ in both_lives(log):
        assert log.partition.producer_states(NOW) == states
        assert log.partition.append(data_of(6, producer=5, epoch=1, transactional=False), NOW).base_offset == 6
        assert log.partition.append(data_of(2, producer=5, epoch=1, transactional=False), NOW).base_offset == 2
        gap = log.partition.append(data_of(9, producer=5, epoch=1, transactional=False), NOW)
        assert gap.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        old = log.partition.append(data_of(1, producer=6, epoch=2), NOW)
        assert old.error == ErrorCode.INVALID_PRODUCER_EPOCH
        stale = log.partition.append_marker(Marker(6, 3, True, 7), NOW)
        assert stale.error == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert send(log, 7, producer=5, epoch=1, transactional=False).error == 0
    log.trim(11)
    for _ in both_lives(log):
        assert log.partition.append(data_of(7, producer=5, epoch=1, transactional=False), NOW).base_offset == 10


def test_what_is_kept_of_producers_expires() -> None:
    log = OneLog()
    send(log, 0, producer=5, transactional=False)
    send(log, 0, producer=6)
    log.trim(2)
    assert log.storage.kept_producers(log.partition.log)
    log.restart()
    late = NOW + 2 * DAY
    assert [state.producer_id for state in log.partition.producer_states(late)] == [6]
    assert send(log, 77, producer=5, transactional=False, now=late).error == 0
    log.mark(6, 0, commit=False, now=late)
    log.trim(4, late)
    log.restart()
    assert [state.producer_id for state in log.partition.producer_states(late)] == [5, 6]
    log.produce(batch(b"x"))
    log.trim(5, late + 2 * DAY)
    assert log.storage.kept_producers(log.partition.log) == b""


def test_producers_that_have_expired_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "REMEMBERED_PRODUCERS", 0)
    log = OneLog()
    for n in range(5):
        send(log, 0, producer=n, transactional=False)
    log.trim(5, NOW + 2 * DAY)
    assert log.storage.kept_producers(log.partition.log) == b""
