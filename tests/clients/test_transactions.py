"""Transactions of unmodified clients against `kohort serve`: commits, aborts, offsets, fencing, time-outs, kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_server import CrashServer
from group import CLIENTS, until
from produce import create_topic, produce
from transactional import Transactional, committed_offset, read

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]
READERS = ("confluent", "aiokafka")
NO_OFFSET = -1001
"""As librdkafka says it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashServer]:
    """Three brokers, so that a producer talks to more than one."""
    directory = tmp_path_factory.mktemp("transactions")
    running = CrashServer(directory / "data", directory / "server.log", {"brokers": "3"})
    running.spawn()
    running.wait_ready()
    yield running
    running.stop()


@pytest.fixture
def transactional() -> Iterator[Transactional]:
    producers = Transactional()
    yield producers
    producers.close()


@pytest.fixture
def bootstrap(server: CrashServer) -> str:
    if not server.is_running():
        server.spawn()
        server.wait_ready()
    return server.address


@pytest.mark.parametrize("client", CLIENTS)
def test_commits_and_aborts(client: str, bootstrap: str, transactional: Transactional, unique: str) -> None:
    """Many transactions in a row, and the requests of none come from an older connection than it began on."""
    create_topic(bootstrap, unique, 3)
    producer = transactional(client, bootstrap, unique)
    expected: list[list[str]] = [[], [], []]
    for number in range(12):
        producer.begin()
        for partition in range(3):
            producer.send(unique, f"{number}-{partition}", partition)
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            for partition in range(3):
                expected[partition].append(f"{number}-{partition}")
    producer.begin()
    producer.send(unique, "open", 1)
    for reader in READERS:
        assert read(reader, bootstrap, unique, 3) == expected
    everything = [[f"{number}-{partition}" for number in range(12)] for partition in range(3)]
    everything[1].append("open")
    assert read("confluent", bootstrap, unique, 3, committed=False) == everything
    producer.commit()
    expected[1].append("open")
    for reader in READERS:
        assert read(reader, bootstrap, unique, 3) == expected


@pytest.mark.parametrize("client", CLIENTS)
def test_offsets_are_committed_with_the_records(
    client: str, bootstrap: str, transactional: Transactional, unique: str
) -> None:
    create_topic(bootstrap, unique, 1)
    producer = transactional(client, bootstrap, unique)
    group = f"{unique}-group"
    for number, commits, expected in ((10, False, NO_OFFSET), (20, True, 20), (30, False, 20), (40, True, 40)):
        producer.begin()
        producer.send(unique, str(number))
        producer.send_offsets({(unique, 0): number}, group)
        if commits:
            producer.commit()
        else:
            producer.abort()
        assert committed_offset(bootstrap, group, unique) == expected, "at once"
    assert read("confluent", bootstrap, unique) == [["20", "40"]]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_producer_fences_the_first(
    client: str, bootstrap: str, transactional: Transactional, unique: str
) -> None:
    create_topic(bootstrap, unique, 1)
    first = transactional(client, bootstrap, unique)
    first.begin()
    first.send(unique, "of the first")
    second = transactional(client, bootstrap, unique)
    assert read("confluent", bootstrap, unique) == [[]], "the transaction is aborted"
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        first.commit()
    second.begin()
    second.send(unique, "of the second")
    second.commit()
    for reader in READERS:
        assert read(reader, bootstrap, unique) == [["of the second"]]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_transaction_that_takes_too_long_is_aborted(
    client: str, bootstrap: str, transactional: Transactional, server: CrashServer, unique: str
) -> None:
    create_topic(bootstrap, unique, 1)
    producer = transactional(client, bootstrap, unique, timeout_ms=1_500)
    producer.begin()
    producer.send(unique, "late")
    produce("confluent", bootstrap, unique, ["plain"], 1)
    until(lambda: read("confluent", bootstrap, unique) == [["plain"]], "it is aborted, and readers go on")
    with pytest.raises(Exception, match=r"(?i)fenced|epoch|timed out|abort|transaction"):
        producer.commit()
    producer = transactional(client, bootstrap, unique)
    producer.begin()
    producer.send(unique, "again")
    producer.commit()
    assert read("confluent", bootstrap, unique) == [["plain", "again"]]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_open_transaction_survives_kill_9_of_the_server(
    client: str, bootstrap: str, transactional: Transactional, server: CrashServer, unique: str
) -> None:
    create_topic(bootstrap, unique, 2)
    producer = transactional(client, bootstrap, unique)
    group = f"{unique}-group"
    for number in range(3):
        producer.begin()
        producer.send(unique, f"{number} before", number % 2)
        producer.send_offsets({(unique, 0): number}, group)
        server.kill()
        server.spawn()
        server.wait_ready()
        assert read("confluent", bootstrap, unique, 2) == expected_after(number)
        producer.send(unique, f"{number} after", number % 2)
        producer.commit()
        assert committed_offset(bootstrap, group, unique) == number
    server.kill()
    server.spawn()
    server.wait_ready()
    for reader in READERS:
        assert read(reader, bootstrap, unique, 2) == expected_after(3)
    assert committed_offset(bootstrap, group, unique) == 2


def expected_after(transactions: int) -> list[list[str]]:
    return [
        [f"{number} {part}" for number in range(partition, transactions, 2) for part in ("before", "after")]
        for partition in range(2)
    ]


@pytest.mark.parametrize("client", CLIENTS)
def test_aborts_survive_kill_9_of_the_server(
    client: str, bootstrap: str, transactional: Transactional, server: CrashServer, unique: str
) -> None:
    create_topic(bootstrap, unique, 1)
    producer = transactional(client, bootstrap, unique)
    for number in range(4):
        producer.begin()
        producer.send(unique, str(number))
        if number % 2:
            producer.commit()
        else:
            producer.abort()
    server.kill()
    server.spawn()
    server.wait_ready()
    for reader in READERS:
        assert read(reader, bootstrap, unique) == [["1", "3"]]


def test_a_start_after_transactions_keeps_the_ids(tmp_path: Path, transactional: Transactional) -> None:
    """The epoch of an id goes on over restarts, so an old producer stays fenced."""
    running = CrashServer(tmp_path / "data", tmp_path / "server.log", {})
    running.spawn()
    try:
        running.wait_ready()
        create_topic(running.address, "t", 1)
        old = transactional("confluent", running.address, "x")
        old.begin()
        old.send("t", "old")
        running.kill()
        running.spawn()
        running.wait_ready()
        new = transactional("confluent", running.address, "x")
        running.kill()
        running.spawn()
        running.wait_ready()
        new.begin()
        new.send("t", "new")
        new.commit()
        with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
            old.commit()
        assert read("confluent", running.address, "t") == [["new"]]
    finally:
        running.stop()
