"""The records that retention deletes, by age and by size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from logs import NOW, OneLog, batch, settings

from kohort.broker.logs import retention
from kohort.broker.logs.retention import Retained, retained
from kohort.storage.protocol import BatchInfo

HOUR = 3_600_000


def log_of(*timestamps: int, size: int = 100) -> list[BatchInfo]:
    """Batches of two records each."""
    return [BatchInfo(2 * n, 2 * n + 1, at, size, -1, 0) for n, at in enumerate(timestamps)]


def start(batches: list[BatchInfo], **configs: Any) -> int:
    found = retained(batches, 0, sum(each.size for each in batches), settings(**configs), NOW)
    assert found.complete
    return found.start_offset


def test_old_batches_at_the_start_are_deleted() -> None:
    old, new = NOW - HOUR - 1, NOW - HOUR
    assert start(log_of(old, old, new, old), retention_ms=HOUR) == 4
    assert start(log_of(new, old), retention_ms=HOUR) == 0
    assert start(log_of(old, old), retention_ms=HOUR) == 4
    assert start(log_of(old), retention_ms=-1) == 0
    assert start([], retention_ms=HOUR) == 0


def test_batches_without_timestamps_have_no_age() -> None:
    assert start(log_of(-1, 0), retention_ms=HOUR) == 0
    assert start(log_of(0, -1), retention_ms=HOUR) == 2


@pytest.mark.parametrize(("limit", "offset"), [(-1, 0), (0, 8), (99, 6), (100, 6), (101, 4), (399, 0), (400, 0)])
def test_the_log_keeps_at_least_its_bytes(limit: int, offset: int) -> None:
    assert start(log_of(NOW, NOW, NOW, NOW), retention_bytes=limit, retention_ms=-1) == offset


def test_only_the_policy_delete_lets_go_by_age() -> None:
    assert start(log_of(0, 0), retention_ms=HOUR, cleanup_policy="compact") == 0
    assert start(log_of(0, 0), retention_ms=HOUR, cleanup_policy="compact,delete") == 4


def test_a_call_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_BATCHES", 3)
    batches = log_of(*[0] * 7)
    conf = settings(retention_ms=HOUR)
    assert retained(batches, 0, 700, conf, NOW) == Retained(6, False)
    assert retained(batches[3:], 6, 400, conf, NOW) == Retained(12, False)
    assert retained(batches[6:], 12, 100, conf, NOW) == Retained(14, True)


def test_no_more_is_read_than_needed() -> None:
    def batches() -> Iterator[BatchInfo]:
        yield from log_of(0, NOW)
        pytest.fail("read on behind the first batch that stays")

    assert retained(batches(), 0, 200, settings(retention_ms=HOUR), NOW) == Retained(2, True)


def test_on_a_log() -> None:
    log = OneLog(retention_ms=HOUR)
    for age in (3, 2, 0):
        log.produce(batch(b"x", timestamp=NOW - age * HOUR))
    infos = log.storage.batches(log.partition.log)
    log.trim(retained(infos, log.partition.start_offset, log.partition.size, log.settings, NOW).start_offset)
    assert (log.partition.start_offset, log.partition.end_offset) == (2, 3)
    assert log.partition.size == sum(map(len, log.partition.read(2, 10_000)))
