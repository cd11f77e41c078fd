"""Random transactions, trims, compactions and restarts: what a partition knows is what a restart would know.

Readers of committed records see what a model of the log says. On both engines."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from logs import NOW, OneLog, committed_records
from msgspec import Struct, field

from kohort.broker.logs import producers
from kohort.broker.logs.dirty_part import DirtyPart
from kohort.broker.logs.partition import Appended, Partition
from kohort.coordinator.events import Record
from kohort.storage import sqlite
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import TRANSACTIONAL, Storage
from kohort.storage.sqlite import SqliteStorage
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.markers import Marker

DAY = 86_400_000
TRANSACTIONAL_IDS = st.integers(1, 3)
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=2)


class Sender(Struct):
    """A producer, which sends what a partition must accept."""

    epoch: int = 0
    sequence: int = 0
    coordinator_epoch: int = 0
    began: int | None = None
    """The first offset of its open transaction."""
    last: tuple[bytes, int] | None = None
    """Its last batch, and the offset that it got."""


class Written(Struct):
    key: bytes
    value: bytes
    state: str
    """open, committed or aborted"""
    producer_id: int = -1


class Model(Struct):
    senders: dict[int, Sender] = field(default_factory=dict)
    records: dict[int, Written] = field(default_factory=dict)
    """By offset; nothing is forgotten."""
    end: int = 0

    def stable(self, start: int) -> int:
        began = [sender.began for sender in self.senders.values() if sender.began is not None]
        return max(min([*began, self.end]), start)


class Partitions(RuleBasedStateMachine):
    """Rules append within a turn; `commit` ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(producers, "REMEMBERED_PRODUCERS", 1)
        self.patch.setattr(producers, "PRODUCERS_A_LOOK", 2)
        self.patch.setattr(sqlite, "PURGED_BATCHES", 2)
        self.now = NOW
        self.model = Model()
        self.values = 0
        self.clean = 0
        """How far the log is known to be clean. A restart forgets it."""
        self.compacted = 0
        """How far it was ever compacted."""
        self.log = OneLog(
            self.engine(), cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0, delete_retention_ms=DAY // 2
        )

    def engine(self) -> Storage:
        return MemoryStorage()

    def teardown(self) -> None:
        self.patch.undo()

    @property
    def partition(self) -> Partition:
        return self.log.partition

    # -- appends

    def new_records(self, keys: list[bytes]) -> list[NewRecord]:
        made = []
        for key in keys:
            self.values += 1
            made.append(NewRecord(key, b"%d" % self.values, self.now))
        return made

    def note(self, made: list[NewRecord], appended: Appended, state: str, producer_id: int = -1) -> None:
        assert appended.error == 0, appended
        assert appended.base_offset == self.model.end
        self.log.pending.extend(appended.operations)
        for index, record in enumerate(made):
            assert record.key is not None
            assert record.value is not None
            self.model.records[self.model.end + index] = Written(record.key, record.value, state, producer_id)
        self.model.end += len(made)

    @rule(keys=KEYS)
    def plain(self, keys: list[bytes]) -> None:
        made = self.new_records(keys)
        self.note(made, self.partition.append(encode_batch(made), self.now), "committed")

    @rule(producer_id=st.integers(7, 8), keys=KEYS)
    def idempotent(self, producer_id: int, keys: list[bytes]) -> None:
        self.send(producer_id, keys, transactional=False)

    @rule(producer_id=TRANSACTIONAL_IDS, keys=KEYS)
    def transactional(self, producer_id: int, keys: list[bytes]) -> None:
        self.send(producer_id, keys, transactional=True)

    def send(self, producer_id: int, keys: list[bytes], *, transactional: bool) -> None:
        sender = self.model.senders.setdefault(producer_id, Sender())
        made = self.new_records(keys)
        data = encode_batch(
            made,
            producer_id=producer_id,
            producer_epoch=sender.epoch,
            base_sequence=sender.sequence,
            is_transactional=transactional,
        )
        base_offset = self.model.end
        self.note(made, self.partition.append(data, self.now), "open" if transactional else "committed", producer_id)
        sender.sequence += len(made)
        sender.last = (data, base_offset)
        if transactional and sender.began is None:
            sender.began = base_offset

    @rule(producer_id=st.integers(11, 12), keys=KEYS)
    def coordinators_own(self, producer_id: int, keys: list[bytes]) -> None:
        sender = self.model.senders.setdefault(producer_id, Sender())
        made = self.new_records(keys)
        records = [Record(record.key or b"", record.value) for record in made]
        base_offset = self.model.end
        appended = self.partition.append_records(records, self.now, producer=(producer_id, sender.epoch))
        self.note(made, appended, "open", producer_id)
        sender.began = base_offset if sender.began is None else sender.began

    @rule(
        producer_id=st.sampled_from([1, 2, 3, 11, 12]),
        commit=st.booleans(),
        bump=st.booleans(),
        newer=st.integers(0, 1),
    )
    def end(self, producer_id: int, commit: bool, bump: bool, newer: int) -> None:
        """A marker of either version, also of a transaction without records."""
        sender = self.model.senders.setdefault(producer_id, Sender())
        if bump:
            sender.epoch += 1
            sender.sequence = 0
            sender.last = None
        sender.coordinator_epoch += newer
        marker = Marker(producer_id, sender.epoch, commit, sender.coordinator_epoch)
        self.note([], self.partition.append_marker(marker, self.now, version=2 if bump else 0), "")
        self.model.end += 1
        for record in self.model.records.values():
            if record.producer_id == producer_id and record.state == "open":
                record.state = "committed" if commit else "aborted"
        sender.began = None

    # -- the rest of a turn's life

    @rule()
    def commit(self) -> None:
        self.log.commit()

    @precondition(lambda self: not self.log.pending)
    @rule()
    def restart(self) -> None:
        self.log.restart()
        self.clean = 0

    @precondition(lambda self: not self.log.pending)
    @rule(share=st.floats(0, 1))
    def trim(self, share: float) -> None:
        offset = self.partition.start_offset + int(
            share * (self.partition.high_watermark - self.partition.start_offset)
        )
        self.log.commit(self.partition.trim(offset, self.now))

    @precondition(lambda self: not self.log.pending)
    @rule(step_bytes=st.sampled_from([1, 300, 1 << 20]), afresh=st.booleans())
    def compact(self, step_bytes: int, afresh: bool) -> None:
        work = DirtyPart(0 if afresh else self.clean).due(self.partition, self.log.storage, self.now)
        while work is not None and not work.done:
            self.log.commit(work.step(self.now, DAY, step_bytes))
            self.clean = work.clean_to
            self.compacted = max(self.compacted, self.clean)

    @rule(later=st.sampled_from([1, DAY // 2, 2 * DAY]))
    def wait(self, later: int) -> None:
        self.now += later

    # -- checks

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        if self.log.pending:
            return
        start, stable = self.partition.start_offset, self.model.stable(self.partition.start_offset)
        assert self.partition.last_stable_offset == self.partition.stable_end == stable
        self.check_reads(self.partition, start, stable)

    def check_reads(self, partition: Partition, start: int, stable: int) -> None:
        committed = {
            offset: record
            for offset, record in self.model.records.items()
            if start <= offset < stable and record.state == "committed"
        }
        newest = {record.key: offset for offset, record in committed.items()}
        for first in sorted({start, (start + stable) // 2, max(start, stable - 2)}):
            found = committed_records(partition, first, 1 if first % 2 else 1 << 20)
            seen = {record.offset: (record.key, record.value) for record in found}
            for offset, (key, value) in seen.items():
                record = committed[offset]
                assert (record.key, record.value) == (key, value)
            for offset in newest.values():
                assert offset < first or offset in seen, f"the newest record of its key, at {offset}"
            whole_from = max(first, self.compacted)
            assert all(offset in seen for offset in committed if offset >= whole_from), "not yet compacted"

    @invariant()
    def a_marker_stays_while_its_records_do(self) -> None:
        if self.log.pending:
            return
        undecided: dict[int, int] = {}
        for info in self.log.storage.batches(self.partition.log):
            if info.kind == TRANSACTIONAL:
                begun = undecided.setdefault(info.producer_id, info.transaction_start)
                assert begun == info.transaction_start, "the marker between two transactions is missing"
            elif info.kind > TRANSACTIONAL:
                undecided.pop(info.producer_id, None)
        assert all(self.model.senders[producer_id].began is not None for producer_id in undecided)

    @invariant()
    def a_restart_knows_the_same(self) -> None:
        if self.log.pending:
            return
        live, rebuilt = self.partition, self.log.opened()
        assert rebuilt.last_stable_offset == live.last_stable_offset
        assert rebuilt.first_open() == live.first_open()
        assert rebuilt.producer_states(self.now) == live.producer_states(self.now)
        self.check_reads(rebuilt, live.start_offset, live.last_stable_offset)
        for producer_id, sender in self.model.senders.items():
            is_open = sender.began is not None
            assert rebuilt.has_open(producer_id, sender.epoch) == live.has_open(producer_id, sender.epoch) == is_open
            if sender.last is not None and live.producer_state(producer_id, self.now) is not None:
                data, base_offset = sender.last
                repeated = rebuilt.append(data, self.now)
                assert (repeated.error, repeated.base_offset, repeated.operations) == (0, base_offset, ())


class PartitionsOnSqlite(Partitions):
    def engine(self) -> Storage:
        self.directory = Path(tempfile.mkdtemp(prefix="kohort-"))
        return SqliteStorage(self.directory)

    @precondition(lambda self: not self.log.pending)
    @rule()
    def restart(self) -> None:
        self.log.storage.close()
        self.log.storage = SqliteStorage(self.directory)
        self.log.restart()
        self.clean = 0

    def teardown(self) -> None:
        super().teardown()
        self.log.storage.close()
        shutil.rmtree(self.directory)


TestPartitions = Partitions.TestCase
TestPartitions.settings = hypothesis_settings(max_examples=250, stateful_step_count=40, deadline=None)
TestPartitionsOnSqlite = PartitionsOnSqlite.TestCase
TestPartitionsOnSqlite.settings = hypothesis_settings(max_examples=25, stateful_step_count=40, deadline=None)
