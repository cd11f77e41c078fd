"""Copies of logs between engines: what removed batches have left is in the copy too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from storage_batches import LOG, OTHER, OWN, commit, make_batch, own_append

from kohort.storage import copying
from kohort.storage.copying import LogSum, copy_logs, differences, sums_of
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import (
    ABORT_MARKER,
    COMMIT_MARKER,
    TRANSACTIONAL,
    Append,
    CreateLog,
    KeepProducers,
    Operation,
    Replace,
    Storage,
    StoredBatch,
    Trim,
)
from kohort.storage.sqlite import SqliteStorage


def no_progress(size: int) -> None: ...


@pytest.fixture(params=["memory", "sqlite"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Storage]]:
    """Opens an empty engine."""
    opened: list[Storage] = []

    def open_() -> Storage:
        opened.append(SqliteStorage(tmp_path / str(len(opened))) if request.param == "sqlite" else MemoryStorage())
        return opened[-1]

    yield open_
    for storage in opened:
        storage.close()


def records(offset: int, **more: int) -> StoredBatch:
    start = more.pop("start", offset)
    return make_batch(offset, producer_id=9, kind=TRANSACTIONAL, transaction_start=start, **more)


def marker(offset: int, kind: int = ABORT_MARKER, start: int = 0) -> StoredBatch:
    return make_batch(offset, producer_id=9, kind=kind, transaction_start=start, coordinator_epoch=3)


LEFT: dict[str, list[Operation]] = {
    "nothing": [],
    "start within a batch": [Append(LOG, (make_batch(0, 5), make_batch(5, 5))), Trim(LOG, 2)],
    "trimmed to the end": [Append(LOG, (make_batch(0, 5),)), Trim(LOG, 5)],
    "the last batches compacted away": [
        Append(LOG, (make_batch(0), make_batch(1, 3), make_batch(4, 6))),
        Replace(LOG, 1, 4, ()),
    ],
    "all compacted away": [Append(LOG, (make_batch(0, 5),)), Replace(LOG, 0, 0, ()), Trim(LOG, 3)],
    "the first batches compacted away": [Append(LOG, (make_batch(0), make_batch(1))), Replace(LOG, 0, 0, ())],
    "an open transaction": [Append(LOG, (records(0), records(1, start=0)))],
    "an open transaction without its beginning": [Append(LOG, (records(0), records(1, start=0))), Trim(LOG, 1)],
    "an open transaction without records": [Append(LOG, (records(0),)), Trim(LOG, 1)],
    "a marker without records": [Append(LOG, (records(0), marker(1, COMMIT_MARKER))), Trim(LOG, 1)],
    "an aborted transaction": [Append(LOG, (records(0), marker(1), make_batch(2)))],
    "kept producers": [Append(LOG, (records(0), marker(1))), Trim(LOG, 2), KeepProducers(LOG, b"kept")],
}


@pytest.mark.parametrize("name", LEFT)
def test_a_copy_is_the_same_and_goes_on_in_the_same_way(empty: Callable[[], Storage], name: str) -> None:
    source, target = empty(), empty()
    commit(source, [CreateLog(LOG), CreateLog(OTHER, 7), CreateLog(OWN), own_append(0, 3), *LEFT[name]])
    sums = copy_logs(source, target, no_progress)
    assert sums == sums_of(target, no_progress) == sums_of(source, no_progress)
    end = sums[LOG].end_offset
    for storage in (source, target):
        commit(storage, [Append(LOG, (marker(end, start=0 if sums[LOG].open_transactions else -1),)), own_append(3)])
        commit(storage, [Append(LOG, (records(end + 1),))])
    assert target.logs() == source.logs()
    for log in (LOG, OTHER, OWN):
        assert list(target.batches(log)) == list(source.batches(log))
        assert target.read(log, 0, 1 << 30) == source.read(log, 0, 1 << 30)
        assert target.producers_ending_before(log, 100) == source.producers_ending_before(log, 100)
        assert target.producer_batches(log, 9, 5) == source.producer_batches(log, 9, 5)
        assert target.max_timestamp(log) == source.max_timestamp(log)


def test_memory_is_bounded_and_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "READ_BYTES", 1_000)
    source, target = MemoryStorage(), MemoryStorage()
    commit(source, [CreateLog(LOG), Append(LOG, tuple(make_batch(n, size=300) for n in range(100)))])
    told: list[int] = []
    copy_logs(source, target, told.append)
    assert sum(told) == 30_000
    assert max(told) < 2_000
    assert target.commits == len(told)


def test_what_differs_is_named() -> None:
    source, target = MemoryStorage(), MemoryStorage()
    commit(source, [CreateLog(LOG), CreateLog(OTHER), Append(LOG, (make_batch(0),))])
    commit(target, [CreateLog(LOG), CreateLog(OWN), Append(LOG, (make_batch(0, fill=b"y"),))])
    found = dict(differences(sums_of(source, no_progress), sums_of(target, no_progress)))
    assert found.keys() == {LOG, OTHER, OWN}
    assert found[LOG].startswith("checksum ")
    assert (found[OTHER], found[OWN]) == ("the copy lacks it", "only the copy has it")


@pytest.mark.parametrize("field", ["max_timestamp", "kind", "transaction_start", "coordinator_epoch", "leader_epoch"])
def test_the_checksum_covers_what_is_stored_beside_a_batch(field: str) -> None:
    batch = records(0)
    sums: list[LogSum] = []
    for each in (batch, msgspec.structs.replace(batch, **{field: getattr(batch, field) + 1})):
        with closing(MemoryStorage()) as storage:
            commit(storage, [CreateLog(LOG), Append(LOG, (each,))])
            sums.append(sums_of(storage, no_progress)[LOG])
    assert sums[0].checksum != sums[1].checksum
