"""The offsets log with transactions: live state = replay of the log = replay of what compaction leaves of it, at every
prefix of random histories, on a real partition with real compaction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import LOG, NOW, OneLog

from kohort.broker.logs.dirty_part import DirtyPart
from kohort.broker.logs.newest_records import newest_records
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.offsets.sizes import group_bytes
from kohort.coordinator.records import offset_record, parse, pending_record
from kohort.simulator.checks.ledger import Fold, Ledger
from kohort.simulator.checks.transaction_ledger import replayed
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import CreateLog
from kohort.wire.errors import ErrorCode
from kohort.wire.markers import Marker
from kohort.wire.schemas.group_records import OffsetCommitValue

DAY = 86_400_000


class OffsetsLog:
    """One shard's log and its live state. Each call is a turn."""

    def __init__(self) -> None:
        self.log = OneLog(cleanup_policy="compact", min_cleanable_dirty_ratio=0, delete_retention_ms=DAY)
        self.live = HardState()
        self.ledger = Ledger()
        self.epochs = {1: 0, 2: 0, 3: 0}
        self.written = 0
        self.now = NOW
        self.clean = 0

    def _value(self, size: int) -> OffsetCommitValue:
        self.written += 1
        return OffsetCommitValue(offset=self.written, metadata="m" * size, commit_timestamp=self.now)

    def _append(self, appended: Any, *records: Any) -> None:
        assert appended.error == ErrorCode.NONE
        self.log.commit(appended.operations)
        self.ledger.commit(appended.operations, LOG.topic_id, self.now)
        for record in records:
            self.live.apply(record)

    def commit(self, group: str, partition: int, size: int) -> None:
        record = offset_record(group, "t", partition, self._value(size))
        self._append(self.log.partition.append_records([record], self.now), record)

    def delete(self, group: str, partition: int) -> None:
        record = offset_record(group, "t", partition, None)
        self._append(self.log.partition.append_records([record], self.now), record)

    def pending(self, producer_id: int, group: str, partitions: tuple[int, ...], size: int) -> None:
        records = [pending_record(producer_id, group, "t", index, self._value(size)) for index in partitions]
        producer = (producer_id, self.epochs[producer_id])
        self._append(self.log.partition.append_records(records, self.now, producer=producer), *records)

    def end(self, producer_id: int, committed: bool, bumps: bool) -> None:
        self.epochs[producer_id] += bumps
        marker = Marker(producer_id, self.epochs[producer_id], committed, 0)
        self._append(self.log.partition.append_marker(marker, self.now, version=2 if bumps else 1), marker)

    def compact(self, days: int) -> None:
        """A whole pass, if one is due. Tombstones and markers go after a day."""
        self.now += days * DAY
        work = DirtyPart(self.clean, self.now).due(self.log.partition, self.log.storage, self.now)
        while work is not None and not work.done:
            self.log.commit(work.step(self.now, 10 * DAY))
            self.clean = work.clean_to

    def restart(self) -> None:
        self.log.restart()
        self.clean = 0

    def check(self) -> None:
        storage = self.log.storage
        newest = HardState()
        order = []
        for record, _ in newest_records(storage, LOG, 0):
            newest.apply(record)
            key_and_value = parse(record)
            assert key_and_value is not None
            order += [key_and_value[1].offset] if key_and_value[1] is not None else []
        assert order == sorted(order), "the order of the log"
        assert newest == self.live, "the replay of the newest records"
        assert replayed(storage, LOG, newest_only=False) == self.live, "the replay of the log"
        assert replayed(storage, LOG, newest_only=True) == self.live, "the ledger's newest records"
        fold: Fold = self.ledger.folds[LOG.partition]
        assert fold.equals(self.live), fold.difference(self.live)
        self.live.pending.check()
        sizes = sum(group_bytes(group, offsets) for group, offsets in self.live.offsets.items())
        assert self.live.total.bytes == sizes + self.live.pending.bytes
        assert self.live.pending.groups.keys() == fold.transactions.pending().keys()


producer, group, partition, size = st.integers(1, 3), st.sampled_from("gh"), st.integers(0, 2), st.integers(0, 3)
partitions = st.lists(partition, min_size=1, max_size=3).map(tuple)
commit = st.tuples(st.just("commit"), group, partition, size)
pending = st.tuples(st.just("pending"), producer, group, partitions, size)
end = st.tuples(st.just("end"), producer, st.booleans(), st.booleans())
action = st.one_of(
    commit,
    *[pending] * 3,
    *[end] * 2,
    st.tuples(st.just("delete"), group, partition),
    st.tuples(st.just("compact"), st.integers(0, 2)),
    st.tuples(st.just("restart")),
)


@given(st.lists(action, max_size=40))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@pytest.mark.conformance("TX52", "TX59")
def test_live_is_replay_at_every_prefix(actions: list[tuple[Any, ...]]) -> None:
    log = OffsetsLog()
    for what, *arguments in actions:
        getattr(log, what)(*arguments)
        log.check()


@pytest.mark.conformance("TX59")
def test_compaction_keeps_what_an_open_transaction_may_hide() -> None:
    """A committed offset, an aborted one behind it, an open one, and a tombstone that a later commit hides."""
    log = OffsetsLog()
    log.commit("g", 0, 0)
    log.pending(1, "g", (0,), 0)
    log.end(1, False, True)
    log.pending(2, "g", (0, 1), 0)
    log.delete("g", 1)
    log.commit("g", 1, 0)
    for _ in range(3):
        log.compact(2)
        log.check()
    assert {place: value.offset for place, value in log.live.offsets["g"].items()} == {("t", 0): 1, ("t", 1): 5}
    assert log.live.pending.places("g") == {("t", 0)}, "the tombstone took the other"
    log.end(2, True, True)
    for _ in range(3):
        log.compact(2)
        log.check()
    assert {place: value.offset for place, value in log.live.offsets["g"].items()} == {("t", 0): 3, ("t", 1): 5}
    left = log.log.storage.read(LOG, 0, 1 << 20)
    assert len(left) < 7, "nothing was compacted"


def test_a_log_of_another_server_may_have_markers_without_transactions() -> None:
    storage = MemoryStorage()
    storage.commit([CreateLog(LOG)], storage.acquire())
    log = OffsetsLog()
    log.end(1, True, False)
    log.end(1, False, True)
    log.check()
    assert log.live == HardState()
    assert list(newest_records(storage, LOG, 0)) == []
