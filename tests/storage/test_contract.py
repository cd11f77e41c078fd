"""The contract of all engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from storage_batches import LOG, OTHER, OWN, commit, make_batch, opened_postgres, own_append, own_records

from kohort.storage import sqlite
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import (
    ABORT_MARKER,
    COMMIT_MARKER,
    TRANSACTIONAL,
    Append,
    BatchInfo,
    CreateLog,
    DeleteLog,
    Fenced,
    KeepProducers,
    LogInfo,
    LogKey,
    Operation,
    Replace,
    Storage,
    StorageError,
    StoredBatch,
    Trim,
    info_of,
    of_producer,
)
from kohort.storage.sqlite import SqliteStorage

Reopen = Callable[..., Storage]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Start a new engine, or restart the one before with its data."""
    with ExitStack() as opened:

        def start(former: Storage | None = None) -> Storage:
            if former is not None:
                former.close()
            if request.param == "postgres":
                return opened.enter_context(closing(opened_postgres(request.getfixturevalue("postgres_url"))))
            if request.param == "sqlite":
                return opened.enter_context(closing(SqliteStorage(tmp_path)))
            return former.copy() if isinstance(former, MemoryStorage) else MemoryStorage()

        yield start


@pytest.fixture
def storage(reopen: Reopen) -> Storage:
    return reopen()


def both_lives(storage: Storage, reopen: Reopen) -> Iterator[Storage]:
    """The engine as it is, then restarted."""
    yield storage
    yield reopen(storage)


def bases(storage: Storage, offset: int = 0, max_bytes: int = 1 << 30, log: LogKey = LOG) -> list[int]:
    return [batch.base_offset for batch in storage.read(log, offset, max_bytes)]


def test_an_unknown_log_is_empty(storage: Storage) -> None:
    assert storage.logs() == []
    assert storage.read(LOG, 0, 100) == []
    assert list(storage.batches(LOG)) == []
    assert storage.first_at_or_after(LOG, 0) is None
    assert storage.max_timestamp(LOG) is None
    assert storage.producers(LOG) == []
    assert storage.producer_batches(LOG, 1, 5) == []
    assert storage.last_of_producer(LOG, 1) is None
    assert storage.producers_ending_before(LOG, 100) == []
    assert storage.open_transactions(LOG) == []
    assert storage.aborted_transactions(LOG) == []
    assert storage.kept_producers(LOG) == b""


def test_a_new_log_is_empty_at_its_start_offset(storage: Storage, reopen: Reopen) -> None:
    commit(storage, [CreateLog(LOG, start_offset=7)])
    for each in both_lives(storage, reopen):
        assert each.logs() == [LogInfo(LOG, 7, 7, 0)]
        assert each.read(LOG, 0, 100) == []
        assert each.read(LOG, 7, 100) == []


def test_appended_batches_are_read_back_as_they_were(storage: Storage, reopen: Reopen) -> None:
    batches = (make_batch(0, 3), make_batch(3, 1, size=5000, fill=b"yz"), make_batch(4, 2, producer_id=9))
    commit(storage, [CreateLog(LOG), CreateLog(OTHER), Append(LOG, batches[:2]), Append(OTHER, (make_batch(0),))])
    commit(storage, [Append(LOG, batches[2:])])
    for each in both_lives(storage, reopen):
        assert each.read(LOG, 0, 1 << 30) == list(batches)
        assert each.logs() == [LogInfo(LOG, 0, 6, 100 + 5000 + 100), LogInfo(OTHER, 0, 1, 100)]
        assert list(each.batches(LOG)) == [
            BatchInfo(0, 2, 1000, 100, -1, 0),
            BatchInfo(3, 3, 1000, 5000, -1, 0),
            BatchInfo(4, 5, 1000, 100, 9, 0),
        ]


def test_reading_starts_with_the_batch_that_holds_the_offset(storage: Storage) -> None:
    commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(0, 3), make_batch(3, 3), make_batch(6, 3)))])
    assert [bases(storage, offset) for offset in (0, 2, 3, 5, 8, 9)] == [[0, 3, 6]] * 2 + [[3, 6]] * 2 + [[6], []]
    assert [batch.base_offset for batch in storage.batches(LOG, 4)] == [3, 6]


def test_reading_stops_before_the_byte_limit_but_gives_one_batch(storage: Storage) -> None:
    commit(storage, [CreateLog(LOG), Append(LOG, tuple(make_batch(n, size=100) for n in range(5)))])
    assert [len(bases(storage, 0, limit)) for limit in (0, 1, 100, 199, 200, 250, 500)] == [1, 1, 1, 1, 2, 2, 5]
    assert bases(storage, 4, 1) == [4]


def test_an_append_may_leave_a_gap(storage: Storage, reopen: Reopen) -> None:
    commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(5), make_batch(8)))])
    commit(storage, [Append(LOG, (make_batch(20),))])
    for each in both_lives(storage, reopen):
        assert [bases(each, offset) for offset in (0, 5, 6, 9, 20)] == [[5, 8, 20], [5, 8, 20], [8, 20], [20], [20]]


def test_trim_drops_whole_batches_and_keeps_the_end(storage: Storage, reopen: Reopen) -> None:
    commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(0, 3), make_batch(3, 3), make_batch(6, 3)))])
    commit(storage, [Trim(LOG, 4)])
    assert storage.logs() == [LogInfo(LOG, 4, 9, 200)]
    assert bases(storage) == [3, 6]
    commit(storage, [Trim(LOG, 2)])  # the start never goes back
    assert storage.logs() == [LogInfo(LOG, 4, 9, 200)]
    commit(storage, [Trim(LOG, 9)])
    for each in both_lives(storage, reopen):
        assert each.logs() == [LogInfo(LOG, 9, 9, 0)]
        assert bases(each) == []
        assert each.max_timestamp(LOG) is None


def test_appending_goes_on_after_everything_was_trimmed(storage: Storage, reopen: Reopen) -> None:
    commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(0, 3),)), Trim(LOG, 3), Append(LOG, (make_batch(3),))])
    for each in both_lives(storage, reopen):
        assert each.logs() == [LogInfo(LOG, 3, 4, 100)]
        assert bases(each) == [3]


@pytest.mark.parametrize(
    ("first", "last", "kept", "left"),
    [
        (0, 3, [1], [1, 6, 9]),
        (3, 6, [4], [0, 4, 9]),
        (3, 6, [], [0, 9]),
        (0, 6, [], [9]),
        (6, 9, [7, 10], [0, 3, 7, 10]),
        (9, 9, [], [0, 3, 6]),
        (0, 9, [], []),
    ],
)
def test_replace_swaps_a_range(
    storage: Storage, reopen: Reopen, first: int, last: int, kept: list[int], left: list[int]
) -> None:
    commit(storage, [CreateLog(LOG), Append(LOG, tuple(make_batch(base, 3) for base in (0, 3, 6, 9)))])
    commit(storage, [Replace(LOG, first, last, tuple(make_batch(base, size=80) for base in kept))])
    for each in both_lives(storage, reopen):
        assert bases(each) == left
        assert each.logs()[0].end_offset == 12
        assert each.logs()[0].size == sum(info.size for info in each.batches(LOG))
        assert bases(each, 11) == [base for base in left if base == 9]
    commit(each, [Append(LOG, (make_batch(12),))])
    assert bases(each) == [*left, 12]


def test_a_deleted_log_may_be_created_again(storage: Storage, reopen: Reopen) -> None:
    commit(storage, [CreateLog(LOG), CreateLog(OTHER), Append(LOG, (make_batch(0),)), Append(OTHER, (make_batch(0),))])
    commit(storage, [DeleteLog(LOG)])
    assert bases(storage) == []
    assert storage.logs() == [LogInfo(OTHER, 0, 1, 100)]
    commit(storage, [CreateLog(LOG), DeleteLog(LOG), CreateLog(LOG, 3)])
    for each in both_lives(storage, reopen):
        assert each.logs() == [LogInfo(LOG, 3, 3, 0), LogInfo(OTHER, 0, 1, 100)]
        assert bases(each) == []
        assert bases(each, log=OTHER) == [0]


def test_finding_a_batch_by_timestamp(storage: Storage) -> None:
    times = [50, 10, 20, 60, 60, 40, 70]
    commit(storage, [CreateLog(LOG)])
    commit(storage, [Append(LOG, tuple(make_batch(n, timestamp=time) for n, time in enumerate(times)))])

    def found(timestamp: int) -> int | None:
        batch = storage.first_at_or_after(LOG, timestamp)
        return None if batch is None else batch.base_offset

    assert [found(at) for at in (0, 50, 51, 60, 61, 70, 71)] == [0, 0, 3, 3, 6, 6, None]
    assert storage.max_timestamp(LOG).base_offset == 6
    commit(storage, [Replace(LOG, 6, 6, ())])
    newest = storage.max_timestamp(LOG)
    assert (newest.base_offset, newest.max_timestamp) == (3, 60)
    commit(storage, [Trim(LOG, 5)])
    assert [found(at) for at in (0, 40, 41)] == [5, 5, None]
    assert storage.max_timestamp(LOG).base_offset == 5


def test_the_last_batches_of_a_producer(storage: Storage, reopen: Reopen) -> None:
    batches = [make_batch(n, producer_id=(7, 8, -1)[n % 3]) for n in range(12)]
    commit(storage, [CreateLog(LOG), Append(LOG, tuple(batches))])
    for each in both_lives(storage, reopen):
        assert each.producers(LOG) == [7, 8]
        assert [batch.base_offset for batch in each.producer_batches(LOG, 7, 3)] == [3, 6, 9]
        assert each.producer_batches(LOG, 8, 100) == [of_producer(batch) for batch in batches[1::3]]
        assert each.producer_batches(LOG, 9, 3) == []
    commit(each, [Trim(LOG, 11)])
    assert each.producers(LOG) == []


def part(offset: int, producer_id: int, start: int) -> StoredBatch:
    """A batch of two records of a transaction."""
    return make_batch(offset, 2, producer_id=producer_id, kind=TRANSACTIONAL, transaction_start=start)


def end(offset: int, producer_id: int, start: int, kind: int = COMMIT_MARKER) -> StoredBatch:
    return make_batch(offset, producer_id=producer_id, kind=kind, transaction_start=start, coordinator_epoch=6)


def test_open_and_aborted_transactions_are_found(storage: Storage, reopen: Reopen) -> None:
    plain = make_batch(20, producer_id=4)
    batches = (
        part(0, 1, 0),
        part(2, 2, 2),
        part(4, 1, 0),
        end(6, 1, 0, ABORT_MARKER),
        end(7, 9, -1, ABORT_MARKER),  # of a transaction without records
        part(8, 3, 8),
        end(10, 3, 8),
        part(11, 3, 11),
        part(13, 3, 11),
        part(15, 4, 15),
        end(17, 4, 15, ABORT_MARKER),
        plain,
    )
    commit(storage, [CreateLog(LOG), CreateLog(OTHER), Append(LOG, batches), Append(OTHER, (plain,))])
    for each in both_lives(storage, reopen):
        assert each.read(LOG, 0, 1 << 30) == list(batches)
        assert each.open_transactions(LOG) == [info_of(batches[1]), info_of(batches[8])]
        assert [info.open_transactions for info in (*each.logs(), each.log_info(LOG)) if info] == [2, 0, 2]
        assert each.aborted_transactions(LOG) == [info_of(batches[3]), info_of(batches[10])]
        assert (each.open_transactions(OTHER), each.aborted_transactions(OTHER)) == ([], [])
        assert each.producers(LOG) == [1, 2, 3, 4, 9]
        assert each.last_of_producer(LOG, 1) == of_producer(batches[3])
        assert each.last_of_producer(LOG, 9) == of_producer(batches[4])
        assert each.last_of_producer(LOG, 8) is None
        assert each.producer_batches(LOG, 1, 5) == [of_producer(batches[n]) for n in (0, 2)], "without markers"
        assert each.producer_batches(LOG, 4, 1) == [of_producer(plain)]
        assert each.producer_batches(LOG, 9, 5) == []
    commit(each, [Trim(LOG, 8)])
    assert each.open_transactions(LOG) == [info_of(batches[8])]
    assert each.aborted_transactions(LOG) == [info_of(batches[10])]
    assert [info.open_transactions for info in each.logs()] == [2, 0], "also without batches"
    assert each.producers(LOG) == [3, 4]
    commit(each, [Replace(LOG, 11, 17, (end(17, 4, 15, ABORT_MARKER),))])
    assert each.open_transactions(LOG) == []
    assert each.aborted_transactions(LOG) == [info_of(batches[10])]
    assert each.last_of_producer(LOG, 3) == of_producer(batches[6])


def test_producers_that_end_before_an_offset(storage: Storage, reopen: Reopen) -> None:
    batches = tuple(make_batch(2 * n, 2, producer_id=(7, 8, -1, 9)[n % 4]) for n in range(12))
    later = (part(24, 10, 24), end(26, 10, 24), make_batch(27, producer_id=7), end(28, 9, 22))
    commit(storage, [CreateLog(LOG), Append(LOG, batches + later)])
    for each in both_lives(storage, reopen):
        assert each.producers_ending_before(LOG, 18) == []
        assert each.producers_ending_before(LOG, 19) == [], "its last batch reaches the offset"
        ended = [info_of(batches[9])]
        assert each.producers_ending_before(LOG, 20) == ended
        ended.append(info_of(later[3]))  # the marker of 9
        assert each.producers_ending_before(LOG, 24) == ended
        assert each.producers_ending_before(LOG, 26) == [*ended, info_of(later[1])]
    commit(each, [Trim(LOG, 20)])
    assert [batch.producer_id for batch in each.producers_ending_before(LOG, 28)] == [7, 9, 10]


def test_what_is_kept_of_producers_is_replaced_and_goes_with_its_log(storage: Storage, reopen: Reopen) -> None:
    commit(storage, [CreateLog(LOG), CreateLog(OTHER), KeepProducers(LOG, b"one"), KeepProducers(OTHER, b"other")])
    for each in both_lives(storage, reopen):
        assert (each.kept_producers(LOG), each.kept_producers(OTHER)) == (b"one", b"other")
    commit(each, [KeepProducers(LOG, b"two"), Append(LOG, (make_batch(0),)), Trim(LOG, 1)])
    each = reopen(each)
    assert each.kept_producers(LOG) == b"two"
    commit(each, [KeepProducers(LOG, b"")])
    assert each.kept_producers(LOG) == b""
    commit(each, [DeleteLog(OTHER)])
    commit(each, [CreateLog(OTHER)])
    each = reopen(each)
    assert (each.kept_producers(LOG), each.kept_producers(OTHER)) == (b"", b"")


@pytest.mark.parametrize(
    "wrong",
    [
        Append(OTHER, (make_batch(0),)),
        Trim(OTHER, 0),
        DeleteLog(OTHER),
        CreateLog(LOG),
        Append(LOG, (make_batch(2),)),
        Append(LOG, (make_batch(3, 2), make_batch(4))),
        Trim(LOG, 4),
        Replace(LOG, 0, 3, ()),
        KeepProducers(OTHER, b"x"),
    ],
)
def test_a_nonsensical_commit_is_refused_as_a_whole(storage: Storage, wrong: Operation) -> None:
    commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(0, 3),))])
    with pytest.raises(StorageError):
        commit(storage, [CreateLog(LogKey(bytes(16), 0)), wrong])
    assert bases(storage) == [0]
    assert storage.logs() == [LogInfo(LOG, 0, 3, 100)]


def test_logs_are_ordered_by_key(storage: Storage) -> None:
    keys = [LogKey(bytes([topic] * 16), partition) for topic in (200, 3, 90) for partition in (2, 0, 1)]
    commit(storage, [CreateLog(key) for key in keys])
    assert [info.key for info in storage.logs()] == sorted(keys)


def test_closing_twice_is_fine(storage: Storage) -> None:
    storage.close()
    storage.close()


def test_a_log_deleted_in_pieces_never_comes_back(
    storage: Storage, reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "PURGED_BATCHES", 1)
    commit(storage, [CreateLog(LOG), Append(LOG, tuple(make_batch(n, producer_id=5) for n in range(10)))])
    commit(storage, [Trim(LOG, 8)])
    assert bases(storage) == [8, 9]
    assert [batch.base_offset for batch in storage.producer_batches(LOG, 5, 5)] == [8, 9]
    commit(storage, [DeleteLog(LOG)])
    storage = reopen(storage)
    commit(storage, [CreateLog(LOG)])
    assert bases(storage) == []
    assert storage.producers(LOG) == []
    for n in range(15):
        commit(storage, [Append(LOG, (make_batch(n),))])
    assert bases(storage) == list(range(15))
    if isinstance(storage, SqliteStorage):
        assert storage._db.execute("SELECT count(*) FROM batches").fetchone() == (15,)
        assert storage._db.execute("SELECT count(*) FROM batch_data").fetchone() == (15,)


def test_own_records_are_read_back_wherever_they_are(
    storage: Storage, reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gathered, in their log, or some here and some there; their batches may be joined, their records are the same."""
    monkeypatch.setattr(sqlite, "GATHERED_BYTES", 3000)
    commit(storage, [CreateLog(OWN), CreateLog(LOG)])
    end = 0
    sizes = {}
    for n in range(120):
        # A batch that is too large to be gathered, an epoch that begins, a time that goes back.
        append = own_append(
            end, 1 + n % 3, timestamp=1000 - n, size=9000 if n == 50 else n % 40 - 1, leader_epoch=n // 80
        )
        sizes[end] = append.batches[0].last_offset + 1 - end
        commit(storage, [append] if n % 10 else [append, Append(LOG, (make_batch(n),))])
        end = append.batches[0].last_offset + 1
        if n == 100:
            storage = reopen(storage)
    for engine in both_lives(storage, reopen):
        records = own_records(engine)
        assert [record.offset for record in records] == list(range(end))
        assert [record.key for record in records] == [b"%d" % n for n in range(end)]
        expected = [1000 - n + step for n, base in enumerate(sizes) for step in range(sizes[base])]
        assert [record.timestamp for record in records] == expected
        batches = engine.read(OWN, 0, 1 << 30)
        assert [batch.leader_epoch for batch in batches] == sorted(batch.leader_epoch for batch in batches)
        assert {batch.leader_epoch for batch in batches} == {0, 1}
        infos = list(engine.batches(OWN))
        assert [(info.base_offset, info.size) for info in infos] == [(b.base_offset, len(b.data)) for b in batches]
        info = engine.log_info(OWN)
        assert info == next(found for found in engine.logs() if found.key == OWN)
        assert (info.end_offset, info.size) == (end, sum(len(batch.data) for batch in batches))
        for offset in (0, end // 2, end - 1):
            [holder] = engine.read(OWN, offset, 0)
            assert holder.base_offset <= offset <= holder.last_offset
        assert engine.read(OWN, end, 1000) == []
        assert engine.max_timestamp(OWN).max_timestamp == max(expected)
        for timestamp in (0, 900, 1000):
            found = engine.first_at_or_after(OWN, timestamp)
            assert found == next(batch for batch in batches if batch.max_timestamp >= timestamp)
        assert engine.first_at_or_after(OWN, 5000) is None


def test_own_batches_are_replaced_and_trimmed_as_they_were_read(storage: Storage, reopen: Reopen) -> None:
    commit(storage, [CreateLog(OWN)])
    for n in range(10):
        commit(storage, [own_append(n)])
    read = storage.read(OWN, 0, 1 << 30)
    assert [batch.base_offset for batch in read] == list(range(10))
    commit(storage, [own_append(10), Replace(OWN, 3, 5, (read[4],)), own_append(11), Trim(OWN, 2)])
    for engine in both_lives(storage, reopen):
        assert [record.offset for record in own_records(engine)] == [2, 4, 6, 7, 8, 9, 10, 11]
    commit(engine, [DeleteLog(OWN), CreateLog(OWN), own_append(0)])
    assert [record.offset for record in own_records(reopen(engine))] == [0]


def test_a_writer_without_the_lease_is_fenced(storage: Storage, reopen: Reopen) -> None:
    former = storage.acquire()
    storage.commit([CreateLog(LOG)], former)
    lease = storage.acquire()
    with pytest.raises(Fenced):
        storage.commit([CreateLog(OTHER)], former)
    storage.commit([Append(LOG, (make_batch(0),))], lease)
    for each in both_lives(storage, reopen):
        assert each.logs() == [LogInfo(LOG, 0, 1, 100)], "nothing of the fenced commit was done"


def test_reads_may_run_in_another_thread(storage: Storage) -> None:
    commit(storage, [CreateLog(LOG), Append(LOG, tuple(make_batch(n) for n in range(5)))])
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(bases, storage).result() == [0, 1, 2, 3, 4]
        assert [info.base_offset for info in thread.submit(lambda: list(storage.batches(LOG, 3))).result()] == [3, 4]
    commit(storage, [Append(LOG, (make_batch(5),))])
    assert bases(storage, 4) == [4, 5]


def test_only_the_owner_may_read_the_database(tmp_path: Path) -> None:
    with closing(SqliteStorage(tmp_path)) as storage:
        commit(storage, [CreateLog(LOG)])
        modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.glob("kohort.db*")}
    assert modes == {"kohort.db": 0, "kohort.db-wal": 0, "kohort.db-shm": 0}
