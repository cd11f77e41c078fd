"""SQLite and PostgreSQL against memory: the same random history gives the same answers, over restarts too."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from storage_batches import LOG, OTHER, OWN, commit, make_batch, opened_postgres, own_append, own_records

from kohort.storage import sqlite
from kohort.storage.copying import copy_logs, sums_of
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import (
    ABORT_MARKER,
    COMMIT_MARKER,
    PLAIN,
    TRANSACTIONAL,
    Append,
    CreateLog,
    DeleteLog,
    KeepProducers,
    LogKey,
    Operation,
    Replace,
    Storage,
    StorageError,
    StoredBatch,
    Trim,
)
from kohort.storage.sqlite import SqliteStorage

keys = st.sampled_from([LOG, OTHER])
shapes = st.lists(
    st.tuples(
        st.integers(0, 2),  # gap before the batch
        st.integers(1, 4),  # records
        st.integers(0, 20),  # timestamp
        st.sampled_from([61, 100, 9000]),  # bytes
        st.sampled_from([-1, 3, 4]),  # producer id
        st.sampled_from([PLAIN, TRANSACTIONAL, COMMIT_MARKER, ABORT_MARKER]),
    ),
    min_size=1,
    max_size=5,
)


class Engines(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryStorage()
        self.engine = self.first_engine()
        self.turn: list[Operation] = []
        self.ends: dict[LogKey, int] = {}
        self.open: dict[LogKey, dict[int, int]] = {}

        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sqlite, "PURGED_BATCHES", 2)  # so that purges outlast commits and restarts
        self.patch.setattr(sqlite, "GATHERED_BYTES", 1200)
        self.turn.append(CreateLog(OWN))
        self.own_end = 0

    def first_engine(self) -> Storage:
        """An empty one."""
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)
        self.directory = Path(tempfile.mkdtemp(prefix="kohort-"))
        return self.opened()

    def opened(self) -> Storage:
        return SqliteStorage(self.directory)

    def teardown(self) -> None:
        self.patch.undo()
        self.engine.close()
        shutil.rmtree(self.directory)

    @rule(key=keys, start=st.integers(0, 3))
    def create(self, key: LogKey, start: int) -> None:
        if key not in self.ends:
            self.turn.append(CreateLog(key, start))
            self.ends[key] = start

    @rule(key=keys)
    def delete(self, key: LogKey) -> None:
        self.open.pop(key, None)
        if self.ends.pop(key, None) is not None:
            self.turn.append(DeleteLog(key))

    @rule(key=keys, shape=shapes)
    def append(self, key: LogKey, shape: list[tuple[int, int, int, int, int, int]]) -> None:
        if key not in self.ends:
            return
        end = self.ends[key]
        made = []
        for gap, records, timestamp, size, producer, kind in shape:
            kind, start = self.in_transaction(key, producer, kind, end + gap)
            epoch = timestamp if kind > TRANSACTIONAL else -1
            made.append(
                make_batch(
                    end + gap,
                    records,
                    timestamp=timestamp,
                    size=size,
                    producer_id=producer,
                    kind=kind,
                    transaction_start=start,
                    coordinator_epoch=epoch,
                )
            )
            end = made[-1].last_offset + 1
        self.turn.append(Append(key, tuple(made)))
        self.ends[key] = end

    def in_transaction(self, key: LogKey, producer: int, kind: int, offset: int) -> tuple[int, int]:
        """The kind that a batch may have, and where its transaction begins."""
        begun = self.open.setdefault(key, {})
        if producer < 0:
            return PLAIN, -1
        if kind > TRANSACTIONAL:
            return kind, begun.pop(producer, -1)
        if kind == TRANSACTIONAL or producer in begun:
            return TRANSACTIONAL, begun.setdefault(producer, offset)
        return PLAIN, -1

    @rule(key=keys, data=st.binary(max_size=8))
    def keep(self, key: LogKey, data: bytes) -> None:
        if key in self.ends:
            self.turn.append(KeepProducers(key, data))

    @rule(records=st.integers(1, 4), timestamp=st.integers(0, 20), size=st.sampled_from([-1, 0, 50, 300, 5000]))
    def append_own(self, records: int, timestamp: int, size: int) -> None:
        self.turn.append(own_append(self.own_end, records, timestamp=timestamp, size=size))
        self.own_end += records

    @rule(share=st.floats(0, 1))
    def trim_own(self, share: float) -> None:
        self.turn.append(Trim(OWN, int(self.own_end * share)))

    @precondition(lambda self: not self.turn)
    @rule(begin=st.integers(0, 10), length=st.integers(1, 4))
    def empty_own(self, begin: int, length: int) -> None:
        """Compaction takes whole batches away, of those that the engine has; memory loses the same records."""
        chosen = self.engine.read(OWN, 0, 1 << 30)[begin : begin + length]
        chosen = [batch for batch in chosen if batch.base_offset >= self.start_of_own()]
        if chosen:
            first, last = chosen[0].base_offset, chosen[-1].last_offset
            commit(self.engine, [Replace(OWN, chosen[0].base_offset, chosen[-1].base_offset, ())])
            theirs = [b for b in self.memory.read(OWN, 0, 1 << 30) if first <= b.base_offset <= last]
            if theirs:
                commit(self.memory, [Replace(OWN, theirs[0].base_offset, theirs[-1].base_offset, ())])

    def start_of_own(self) -> int:
        info = self.memory.log_info(OWN)
        return 0 if info is None else info.start_offset

    @rule(key=keys, share=st.floats(0, 1))
    def trim(self, key: LogKey, share: float) -> None:
        if key in self.ends:
            self.turn.append(Trim(key, int(self.ends[key] * share)))

    @rule()
    def commit(self) -> None:
        for engine in (self.memory, self.engine):
            commit(engine, self.turn)
        self.turn.clear()

    @precondition(lambda self: not self.turn)
    @rule(key=keys, begin=st.integers(0, 10), length=st.integers(1, 4), keep=st.lists(st.booleans(), max_size=4))
    def replace(self, key: LogKey, begin: int, length: int, keep: list[bool]) -> None:
        chosen = self.memory.read(key, 0, 1 << 30)[begin : begin + length]
        if chosen:
            kept: list[StoredBatch] = [batch for batch, stays in zip(chosen, keep, strict=False) if stays]
            self.turn.append(Replace(key, chosen[0].base_offset, chosen[-1].base_offset, tuple(kept)))

    @rule()
    def refuse(self) -> None:
        wrong = [*self.turn, Trim(LogKey(bytes(16), 9), 1)]
        for engine in (self.memory.copy(), self.engine):
            with pytest.raises(StorageError):
                commit(engine, wrong)

    @precondition(lambda self: not self.turn)
    @rule()
    def restart(self) -> None:
        self.engine.close()
        self.engine = self.opened()

    @precondition(lambda self: not self.turn)
    @rule()
    def migrate(self) -> None:
        """The history goes on in a copy of the engine."""
        between = MemoryStorage()
        sums = copy_logs(self.engine, between, lambda size: None)
        self.engine.close()
        self.engine = self.first_engine()
        assert copy_logs(between, self.engine, lambda size: None) == sums == sums_of(self.engine, lambda size: None)

    @invariant()
    def they_agree(self) -> None:
        assert [info for info in self.engine.logs() if info.key != OWN] == [
            info for info in self.memory.logs() if info.key != OWN
        ]
        ours, theirs = self.engine.log_info(OWN), self.memory.log_info(OWN)
        if ours is not None and theirs is not None:
            assert (ours.start_offset, ours.end_offset) == (theirs.start_offset, theirs.end_offset)
            assert ours.size == sum(info.size for info in self.engine.batches(OWN))
        else:
            assert ours == theirs
        start = self.start_of_own()
        for offset in (start, start + 3, start + 10):
            assert [record for record in own_records(self.engine, offset) if record.offset >= offset] == [
                record for record in own_records(self.memory, offset) if record.offset >= offset
            ]
        for key in (LOG, OTHER):
            assert list(self.engine.batches(key)) == list(self.memory.batches(key))
            assert self.engine.max_timestamp(key) == self.memory.max_timestamp(key)
            assert self.engine.producers(key) == self.memory.producers(key)
            for timestamp in (0, 5, 10, 15, 20, 21):
                assert self.engine.first_at_or_after(key, timestamp) == self.memory.first_at_or_after(key, timestamp)
            for offset in (0, 3, 10, 1000):
                for limit in (0, 200, 1 << 30):
                    assert self.engine.read(key, offset, limit) == self.memory.read(key, offset, limit)
            assert self.engine.open_transactions(key) == self.memory.open_transactions(key)
            assert self.engine.aborted_transactions(key) == self.memory.aborted_transactions(key)
            assert self.engine.kept_producers(key) == self.memory.kept_producers(key)
            for offset in (0, 3, 10, 1000):
                ours_before = self.engine.producers_ending_before(key, offset)
                assert ours_before == self.memory.producers_ending_before(key, offset)
            for producer in (3, 4):
                assert self.engine.last_of_producer(key, producer) == self.memory.last_of_producer(key, producer)
                for limit in (1, 5):
                    assert self.engine.producer_batches(key, producer, limit) == self.memory.producer_batches(
                        key, producer, limit
                    )


TestEngines = Engines.TestCase
TestEngines.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_postgres(postgres_url: str) -> None:
    class Postgres(Engines):
        def first_engine(self) -> Storage:
            with psycopg.connect(postgres_url) as connection:
                connection.execute("DROP SCHEMA IF EXISTS kohort CASCADE")
            return self.opened()

        def opened(self) -> Storage:
            return opened_postgres(postgres_url)

        def teardown(self) -> None:
            self.patch.undo()
            self.engine.close()

    run_state_machine_as_test(Postgres, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))
