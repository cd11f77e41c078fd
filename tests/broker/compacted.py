"""A compacted partition, passes over it, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from logs import LOG, NOW, OneLog

from kohort.broker.logs.compaction import Compaction
from kohort.broker.logs.dirty_part import DirtyPart
from kohort.storage.protocol import BatchInfo, LogKey, StoredBatch
from kohort.wire.batches import Record, decode_records

DAY = 86_400_000
KEEP = 10 * DAY
"""producer.id.expiration.ms of these tests."""


def compacted_log(**configs: object) -> OneLog:
    return OneLog(cleanup_policy="compact", min_cleanable_dirty_ratio=0, **configs)


def due(log: OneLog, first_dirty: int = 0, now: int = NOW) -> Compaction | None:
    return DirtyPart(first_dirty).due(log.partition, log.storage, now)


def run(log: OneLog, now: int = NOW, first_dirty: int = 0, step_bytes: int = 1 << 20) -> int:
    """A pass to its end, if one is due. Returns how far the log is clean."""
    work = due(log, first_dirty, now)
    return first_dirty if work is None else finish(log, work, now, step_bytes)


def finish(log: OneLog, work: Compaction | None, now: int = NOW, step_bytes: int = 1 << 20) -> int:
    """Returns how far the log is clean."""
    assert work is not None
    for _ in range(10_000):
        log.commit(work.step(now, KEEP, step_bytes))
        if work.done:
            return work.clean_to
    pytest.fail("the pass does not end")


def batches(log: OneLog) -> list[StoredBatch]:
    return log.storage.read(LOG, 0, 1 << 30)


def records(log: OneLog) -> list[Record]:
    return [record for each in batches(log) for record in decode_records(each.data)]


def pairs(log: OneLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]


def looked_at(log: OneLog, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the batches that storage lists from now on."""
    looked: list[int] = []
    batches_of = log.storage.batches

    def watched(key: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        for info in batches_of(key, offset):
            looked.append(info.base_offset)
            yield info

    monkeypatch.setattr(log.storage, "batches", watched)
    return looked
