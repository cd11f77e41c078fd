"""Databases that no node serves: sources and targets of migrations."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from storage_batches import LOG, commit, make_batch, opened_postgres

from kohort.storage.postgres import unserved
from kohort.storage.postgres.engine import PostgresStorage
from kohort.storage.postgres.leases import Timing
from kohort.storage.postgres.schema import LOCK
from kohort.storage.postgres.unserved import UnservedDatabase, check_fillable
from kohort.storage.protocol import Append, CreateLog, Fenced, StorageError, StoredBatch
from kohort.storage.slots import SLOTS, Numbers

NUMBERS = Numbers(tuple(range(SLOTS)), 5_000)


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def filled(postgres_url: str) -> list[StoredBatch]:
    """The batches of LOG in a database whose node has stopped."""
    batches = [make_batch(n) for n in range(3)]
    with closing(opened_postgres(postgres_url)) as storage:
        commit(storage, [CreateLog(LOG), Append(LOG, tuple(batches))])
    return batches


def filling(url: str) -> PostgresStorage:
    return opened_postgres(url, 0, fills=1)


def test_a_stopped_database_is_read(filled: list[StoredBatch], postgres_url: str) -> None:
    for fences in (False, True):
        with closing(UnservedDatabase(postgres_url, fences=fences)) as database:
            assert database.read(LOG, 0, 1 << 30) == filled
            with pytest.raises(StorageError, match="reading only"):
                database.commit([], database.acquire())
    opened_postgres(postgres_url).close()


def test_a_database_with_a_living_node_is_refused(filled: list[StoredBatch], postgres_url: str) -> None:
    in_use = r"is in use: node 1 at localhost:9001 has a lease of \d\.\d s; stop it"
    with closing(opened_postgres(postgres_url)), pytest.raises(StorageError, match=in_use):
        UnservedDatabase(postgres_url)
    UnservedDatabase(postgres_url).close()


def test_no_node_registers_while_it_is_open(filled: list[StoredBatch], postgres_url: str) -> None:
    with ThreadPoolExecutor(1) as thread:
        with closing(UnservedDatabase(postgres_url)), psycopg.connect(postgres_url, autocommit=True) as admin:
            opening = thread.submit(opened_postgres, postgres_url)
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'"
            while admin.execute(waits).fetchone() is None:
                assert not opening.done()
        opening.result(20).close()


def test_a_paused_process_commits_nothing_more(filled: list[StoredBatch], postgres_url: str) -> None:
    """Its lease has run out, and it does not know of it yet."""
    with closing(opened_postgres(postgres_url, timing=Timing(0.001, 600.0))) as paused:
        with closing(UnservedDatabase(postgres_url, fences=True)) as database:
            assert database.read(LOG, 0, 1 << 30) == filled
        with pytest.raises(Fenced):
            commit(paused, [Append(LOG, (make_batch(3),))])


def test_a_lock_that_others_hold(
    filled: list[StoredBatch], postgres_url: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unserved, "LOCK_S", 0.1)
    admin.execute(f"SELECT pg_advisory_lock({LOCK})")
    with pytest.raises(StorageError, match="another process migrates it"):
        UnservedDatabase(postgres_url)


def test_a_migrated_database_is_not_served(filled: list[StoredBatch], postgres_url: str) -> None:
    with closing(UnservedDatabase(postgres_url)) as database:
        assert database.migrated_to is None
        database.mark_migrated("/data")
    with pytest.raises(StorageError, match="was migrated to /data: serve that"):
        opened_postgres(postgres_url)
    with closing(UnservedDatabase(postgres_url)) as database:
        assert database.migrated_to == "/data"


def test_a_lost_lock_is_noticed(filled: list[StoredBatch], postgres_url: str, admin: psycopg.Connection[Any]) -> None:
    with closing(UnservedDatabase(postgres_url)) as database:
        held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
        admin.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM ({held}) holders")
        with pytest.raises(StorageError, match="cannot use the database"):
            database.mark_migrated("/data")
    opened_postgres(postgres_url).close()


def test_a_target_is_served_when_it_is_finished(postgres_url: str, admin: psycopg.Connection[Any]) -> None:
    assert not check_fillable(postgres_url, 1)
    with closing(filling(postgres_url)) as storage:
        commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(0),))])
        with pytest.raises(StorageError, match=r"another migration to .* runs, or has just been killed: node 0 at"):
            filling(postgres_url)
    assert check_fillable(postgres_url, 1)
    for open_ in (opened_postgres, UnservedDatabase):
        with pytest.raises(StorageError, match="is the target of a migration that runs or was interrupted"):
            open_(postgres_url)
    with closing(filling(postgres_url)) as storage:
        assert storage.logs() == []
        commit(storage, [CreateLog(LOG), Append(LOG, (make_batch(0), make_batch(1)))])
    with pytest.raises(StorageError, match=r"another migration to .* has begun meanwhile"):
        UnservedDatabase(postgres_url, unfinished=(0, storage.incarnation - 1))
    with closing(UnservedDatabase(postgres_url, unfinished=(0, storage.incarnation))) as database:
        assert len(database.read(LOG, 0, 1 << 30)) == 2
        database.finish(NUMBERS)
    for refused in (lambda: check_fillable(postgres_url, 1), lambda: filling(postgres_url)):
        with pytest.raises(StorageError, match="holds data of kohort already"):
            refused()
    assert admin.execute("SELECT count(*) FROM kohort.node").fetchone() == (0,)
    with closing(opened_postgres(postgres_url, 5)) as served:
        assert len(served.read(LOG, 0, 1 << 30)) == 2


def test_nodes_that_serve_at_once_get_larger_numbers(postgres_url: str) -> None:
    with closing(opened_postgres(postgres_url, 0, fills=2)) as storage:
        commit(storage, [CreateLog(LOG)])
    with pytest.raises(StorageError, match="a migration with another --serving"):
        check_fillable(postgres_url, 1)
    with closing(UnservedDatabase(postgres_url, unfinished=(0, storage.incarnation))) as database:
        database.finish(NUMBERS)
    with pytest.raises(StorageError, match=r"cluster\.serving=all"):
        opened_postgres(postgres_url)
    with closing(UnservedDatabase(postgres_url)) as database:
        assert database.numbers == NUMBERS
    with closing(opened_postgres(postgres_url, 3, move_s=1.0)) as served:
        seen = served.look()
        assert seen is not None
        assert set(seen.owners) == {3}
        assert seen.epochs == tuple(epoch + 1 for epoch in NUMBERS.epochs)
        assert served.take_producer_ids(10) == NUMBERS.next_producer_id


def test_databases_that_are_no_source(postgres_url: str, admin: psycopg.Connection[Any]) -> None:
    with pytest.raises(StorageError, match="has no data of kohort"):
        UnservedDatabase(postgres_url)
    opened_postgres(postgres_url).close()
    admin.execute("UPDATE kohort.cluster SET format = 99")
    with pytest.raises(StorageError, match="format 99"):
        UnservedDatabase(postgres_url)
