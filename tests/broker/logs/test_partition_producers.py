"""Idempotent producers: repeats, gaps, epochs, restarts, expiry (Kafka's ProducerAppendInfo and ProducerStateEntry)."""

from __future__ import annotations

import gc

import pytest
from logs import NOW, OneLog, batch

from kohort.broker.logs import producers
from kohort.broker.logs.partition import Appended
from kohort.broker.logs.producers import FEW_PRODUCERS, MAX_SEQUENCE, REMEMBERED_PRODUCERS
from kohort.wire.errors import ErrorCode

DAY = 86_400_000


def send(log: OneLog, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 9, now: int = NOW) -> Appended:
    data = batch(*[b"x"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return log.produce(data, now)


def test_a_repeat_gets_its_first_offset_and_is_not_appended() -> None:
    log = OneLog()
    assert [send(log, n).base_offset for n in range(5)] == [0, 1, 2, 3, 4]
    assert [send(log, n).base_offset for n in range(5)] == [0, 1, 2, 3, 4]
    assert log.partition.end_offset == 5
    assert send(log, 5).base_offset == 5
    assert send(log, 0).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # no longer among the last five


def test_a_repeat_within_the_same_turn() -> None:
    log = OneLog()
    data = batch(b"a", b"b", producer_id=9, producer_epoch=0, base_sequence=0)
    assert log.append(data).base_offset == 0
    repeat = log.append(data)
    assert (repeat.error, repeat.base_offset, repeat.operations) == (0, 0, ())
    assert log.partition.end_offset == 2


def test_only_the_same_batch_is_a_repeat_and_a_gap_is_out_of_order() -> None:
    log = OneLog()
    send(log, 0, 3)
    for sequence, count in ((0, 2), (1, 2), (4, 1)):
        assert send(log, sequence, count).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, 3).base_offset == 0
    assert send(log, 3).base_offset == 3


def test_an_unknown_producer_begins_anywhere() -> None:
    log = OneLog()
    assert send(log, 77).error == 0
    assert send(log, 78).error == 0
    assert send(log, 5, producer=10).error == 0


def test_epochs_go_up_and_begin_with_zero() -> None:
    log = OneLog()
    send(log, 0, epoch=3)
    assert send(log, 1, epoch=2).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 1, epoch=4).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=4).base_offset == 1
    assert send(log, 0, epoch=4).base_offset == 1
    assert send(log, 1, epoch=3).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_epoch_below_none_is_refused_as_in_kafka() -> None:
    assert send(OneLog(), 0, epoch=-2).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(OneLog(), 0, epoch=-1).error == ErrorCode.NONE


def test_sequence_numbers_wrap() -> None:
    log = OneLog()
    send(log, MAX_SEQUENCE - 1, 4)  # the last two numbers, then 0 and 1
    assert send(log, MAX_SEQUENCE - 1, 4).base_offset == 0
    assert send(log, 2).base_offset == 4
    other = OneLog()
    send(other, MAX_SEQUENCE)
    assert send(other, 0).base_offset == 1


def test_a_restart_remembers() -> None:
    log = OneLog()
    for n in range(7):
        send(log, n)
    log.restart()
    assert send(log, 6).base_offset == 6
    assert send(log, 2).base_offset == 2
    assert send(log, 1).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 7).base_offset == 7
    log.restart()
    assert send(log, 0, epoch=1).base_offset == 8
    log.restart()
    assert send(log, 8).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 1, epoch=1).base_offset == 9


def test_a_silent_producer_is_forgotten() -> None:
    log = OneLog()
    send(log, 0)
    assert send(log, 5, now=NOW + DAY - 1).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 5, now=NOW + DAY).base_offset == 1
    assert send(log, 6, now=NOW + DAY).base_offset == 2
    assert send(log, 0, now=NOW + DAY).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_repeats_get_the_log_append_time_of_the_first() -> None:
    log = OneLog(message_timestamp_type="LogAppendTime")
    assert send(log, 0, now=NOW).log_append_time_ms == NOW
    assert send(log, 0, now=NOW + 5).log_append_time_ms == NOW
    log.restart()
    assert send(log, 0, now=NOW + 9).log_append_time_ms == NOW


def test_many_producers_are_remembered_by_the_log() -> None:
    log = OneLog()
    count = REMEMBERED_PRODUCERS + 20
    for producer in range(count):
        send(log, 0, producer=producer)
    assert [send(log, 0, producer=producer).base_offset for producer in range(20)] == list(range(20))
    assert log.partition.end_offset == count


def test_all_partitions_together_remember_a_limited_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers._InAll, "remembered", 0)
    monkeypatch.setattr(producers, "REMEMBERED_IN_ALL", 100)
    logs = [OneLog() for _ in range(5)]
    for log in logs:
        for producer in range(60):
            send(log, 0, producer=producer)
    assert producers._InAll.remembered <= 100 + len(logs) * FEW_PRODUCERS
    assert [send(logs[4], 0, producer=producer).base_offset for producer in range(60)] == list(range(60))
    logs.clear()
    del log
    gc.collect()
    assert producers._InAll.remembered <= 0, "those of partitions that are gone do not count"
