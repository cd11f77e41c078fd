"""Reads of records in a thread beside the turn loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edges import eventually
from raw_kafka import RawKafka, create_topic, produce, produced_at, stored
from wire_driver import fetch_request, values_of

import kohort.server.server
from kohort.client.cluster import Cluster
from kohort.storage.protocol import DamagedFile, LogKey, LogReader, StorageError, StoredBatch
from kohort.storage.sqlite import SqliteStorage
from kohort.testing import KohortServer
from kohort.wire.errors import ErrorCode


class HeldReader:
    """Reads when the test lets it."""

    def __init__(self, reader: LogReader, storage: HeldReads) -> None:
        self._reader = reader
        self._storage = storage

    def read(self, log: LogKey, offset: int, max_bytes: int, end_offset: int) -> list[StoredBatch]:
        self._storage.begun += 1
        assert self._storage.may_read.wait(30)
        if self._storage.errors:
            raise self._storage.errors.pop()
        return self._reader.read(log, offset, max_bytes, end_offset)

    def close(self) -> None:
        self._reader.close()


class HeldReads(SqliteStorage):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.may_read = threading.Event()
        self.begun = 0
        self.errors: list[Exception] = []

    def reader(self) -> Any:
        return HeldReader(super().reader(), self)


@pytest.fixture
def storages(monkeypatch: pytest.MonkeyPatch) -> list[HeldReads]:
    """The storages that servers have opened."""
    opened: list[HeldReads] = []

    def open_storage(config: Any, failed: Callable[[Exception], None]) -> HeldReads:
        opened.append(HeldReads(Path(config.data_dir), None, failed))
        return opened[-1]

    monkeypatch.setattr(kohort.server.server, "open_storage", open_storage)
    return opened


def readers() -> int:
    return sum(thread.name == "kohort-reader" for thread in threading.enumerate())


def prepared(server: KohortServer) -> RawKafka:
    """A client of a new topic `t` that has a record."""
    client = RawKafka(server.bootstrap_servers)
    client.call(create_topic("t", 1))
    assert produced_at(client.call(produce("t", 0, b"first"))) == 0
    return client


def error_of(response: Any) -> int:
    return int(response.responses[0].partitions[0].error_code)


def test_a_slow_read_keeps_nobody_else_waiting(tmp_path: Path, storages: list[HeldReads]) -> None:
    with (
        KohortServer(data_dir=tmp_path, log_tail_max_bytes=0) as server,
        prepared(server) as client,
        RawKafka(server.bootstrap_servers) as other,
    ):
        client.ask_later(fetch_request("t"))
        [storage] = storages
        eventually(lambda: storage.begun == 1)
        for n in range(1, 6):
            assert produced_at(other.call(produce("t", 0, b"more"))) == n
        assert other.call(fetch_request("t", 6, max_wait_ms=1)).responses, "the end of the log needs no read"
        storage.may_read.set()
        assert values_of(client.answer()) == [b"first"], "it was asked for before the others were there"
        assert len(values_of(client.call(fetch_request("t")))) == 6


def test_a_failed_read_is_told_and_the_next_one_may_succeed(tmp_path: Path, storages: list[HeldReads]) -> None:
    with KohortServer(data_dir=tmp_path, log_tail_max_bytes=0) as server, prepared(server) as client:
        [storage] = storages
        storage.may_read.set()
        storage.errors = [MemoryError(), StorageError("cannot read: too many open files")]
        errors = [error_of(client.call(fetch_request("t"))) for _ in range(3)]
        assert errors == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR, 0]


def test_damage_of_the_file_stops_the_server(tmp_path: Path, storages: list[HeldReads]) -> None:
    server = KohortServer(data_dir=tmp_path, log_tail_max_bytes=0)
    server.start()
    with prepared(server) as client:
        [storage] = storages
        storage.may_read.set()
        storage.errors = [DamagedFile("kohort.db is damaged: a batch is missing")]
        client.ask_later(fetch_request("t"))
        assert client.is_closed
    with pytest.raises(RuntimeError, match="a batch is missing"):
        server.stop()


def test_a_stop_answers_and_waits_for_the_read_under_way(tmp_path: Path, storages: list[HeldReads]) -> None:
    server = KohortServer(data_dir=tmp_path, log_tail_max_bytes=0)
    server.start()
    with prepared(server) as client, RawKafka(server.bootstrap_servers) as other:
        for each in (client, other):
            each.ask_later(fetch_request("t"))
        [storage] = storages
        eventually(lambda: storage.begun == 1)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        for each in (client, other):
            answer = each.answer()
            assert (error_of(answer), values_of(answer)) == (0, [])
        assert readers() == 1
        storage.may_read.set()
        stopping.join(30)
        assert not stopping.is_alive()
        assert readers() == 0


def test_a_reader_near_the_end_needs_no_thread(tmp_path: Path) -> None:
    with KohortServer(data_dir=tmp_path) as server, prepared(server) as client:
        for n in range(1, 20):
            client.call(produce("t", 0, b"%d" % n))
            assert values_of(client.call(fetch_request("t", n))) == [b"%d" % n]
        assert len(stored(client, "t", 0)) == 20
        assert readers() == 0
    with KohortServer(data_dir=tmp_path) as server, RawKafka(server.bootstrap_servers) as client:
        assert client.call(fetch_request("t", 20)).responses
        assert readers() == 0
        assert len(stored(client, "t", 0)) == 20, "a start has nothing in memory"
        assert readers() == 1
    assert readers() == 0


def test_records_of_the_offsets_topic_are_read_from_the_gathered_ones_too(tmp_path: Path) -> None:
    """Commits are gathered by SQLite, and are in no tail."""
    with (
        KohortServer(data_dir=tmp_path, offsets_topic_num_partitions=1) as server,
        RawKafka(server.bootstrap_servers) as client,
        Cluster(server.bootstrap_servers) as cluster,
    ):
        client.call(create_topic("t", 1))
        for n in range(10):
            cluster.commit("g", {("t", 0): n})
        assert sorted(stored(client, "__consumer_offsets", 0)) == [*range(10)]
