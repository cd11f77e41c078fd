"""What the outbox does when the database, the cluster or a process fails, with every driver."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from committed_records import committed, settle
from outbox_stores import (
    Store,
    agree,
    drop,
    elsewhere,
    once_after,
    once_before,
    opened,
    write,
)

from kohort.client.cluster import Cluster
from kohort.client.errors import ConnectionFailed
from kohort.client.outbox import CommitUnknown, OutboxTakenOver, OutcomeForgotten
from kohort.client.outbox.kafka_side import KafkaSide
from kohort.client.transactions import Outcome
from kohort.testing import KohortServer


@pytest.mark.parametrize("point", ["begin", "prepare", "note"])
def test_a_zombie_commits_nothing(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str, point: str
) -> None:
    """Another process recovers and writes while this one is about to begin its transaction, to send, or to note it."""
    second = store.outbox(name, servers)
    locked = store.driver == "sqlite3" and point != "begin"

    async def take_over() -> None:
        connection = await store.connect()
        if locked:  # nobody can take over in the middle of a transaction
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await second.recover(connection)
            return
        await second.recover(connection)
        await write(second, store, connection, topic, "second")
        second.close()

    async def program() -> None:
        async with opened(store, name, servers) as (zombie, connection):
            await write(zombie, store, connection, topic, "first")
            once_before(zombie, point, lambda: elsewhere(take_over))
            if locked:
                await write(zombie, store, connection, topic, "second")
            else:
                for value in ("lost", "lost too"):
                    with pytest.raises(OutboxTakenOver, match=f"outbox {name}: another process"):
                        await write(zombie, store, connection, topic, value)
                await zombie.recover(connection)
            await write(zombie, store, connection, topic, "third")

    asyncio.run(program())
    agree(store, cluster, topic, "first", "second", "third")


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_the_commit_is_not_answered(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str, done: bool
) -> None:
    """The connection is lost at the commit, before or after the database has done it."""

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            await write(outbox, store, connection, topic, "first")

            def lose() -> None:
                drop(connection)
                if done:
                    raise ConnectionResetError

            (once_after if done else once_before)(outbox, "commit", lose)
            with pytest.raises(CommitUnknown, match="unknown whether the database has committed"):
                await write(outbox, store, connection, topic, "second")
            assert outbox.unfinished
            await write(outbox, store, await store.connect(), topic, "third")
            assert not outbox.unfinished

    asyncio.run(program())
    agree(store, cluster, topic, *(["first", "second", "third"] if done else ["first", "third"]))


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_the_commit_fails_on_a_connection_that_works(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str, done: bool
) -> None:
    """Then the outbox asks at once, and knows."""

    def fail() -> None:
        raise ArithmeticError

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            (once_after if done else once_before)(outbox, "commit", fail)
            if done:
                await write(outbox, store, connection, topic, "first")
            else:
                with pytest.raises(ArithmeticError):
                    await write(outbox, store, connection, topic, "lost")
            assert not outbox.unfinished
            await write(outbox, store, connection, topic, "second")

    asyncio.run(program())
    agree(store, cluster, topic, *(["first", "second"] if done else ["second"]))


def test_kafka_aborts_a_transaction_before_its_commit(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str
) -> None:
    """The transaction times out after the database's commit. The records are in the row and are sent again."""

    async def program() -> None:
        async with opened(store, name, servers, transaction_timeout_ms=1_000) as (outbox, connection):
            once_before(outbox, "end", lambda: elsewhere(no_transaction_is_open))
            await write(outbox, store, connection, topic, "first")
            assert not outbox.unfinished
            await write(outbox, store, connection, topic, "second")

    async def no_transaction_is_open() -> None:
        await asyncio.to_thread(settle, cluster, topic)

    asyncio.run(program())
    agree(store, cluster, topic, "first", "second")


def test_the_row_cannot_be_settled(store: Store, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    """The connection is lost after both have committed."""

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            once_before(outbox, "settle", lambda: drop(connection))
            await write(outbox, store, connection, topic, "first")
            assert outbox.unfinished
            assert committed(cluster, topic) == ["first"]
            await write(outbox, store, await store.connect(), topic, "second")
            assert not outbox.unfinished

    asyncio.run(program())
    agree(store, cluster, topic, "first", "second")


def test_another_process_finishes(store: Store, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    """This process is suspended between the two commits, and another one recovers: the block is committed."""

    async def take_over() -> None:
        second = store.outbox(name, servers)
        await second.recover(await store.connect())
        second.close()

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            once_before(outbox, "end", lambda: elsewhere(take_over))
            await write(outbox, store, connection, topic, "first")
            with pytest.raises(OutboxTakenOver):
                await write(outbox, store, connection, topic, "lost")

    asyncio.run(program())
    agree(store, cluster, topic, "first")


@pytest.mark.parametrize("way", ["raise", "send", "drop"])
def test_the_cluster_has_forgotten_the_transaction(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outbox was not recovered for longer than the cluster keeps a transactional id."""

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            with monkeypatch.context() as patched:
                patched.setattr(KafkaSide, "end", lambda *_: Outcome.FORGOTTEN)
                await write(outbox, store, connection, topic, "first")  # stays open in Kafka
                assert outbox.unfinished
                for _ in range(2):
                    with pytest.raises(OutcomeForgotten, match="forgotten transactional id"):
                        await write(outbox, store, connection, topic, "lost")
                await_end = once_end_forgotten(patched)
                if way == "raise":
                    with pytest.raises(OutcomeForgotten):
                        await outbox.recover(connection)
                    return
                await outbox.recover(connection, forgotten=way)
                assert await_end == ["forgotten", *(["done"] if way == "send" else [])]
            assert not outbox.unfinished
            await write(outbox, store, connection, topic, "second")

    real = KafkaSide.end

    def once_end_forgotten(patched: pytest.MonkeyPatch) -> list[str]:
        ends: list[str] = []

        def end(self: KafkaSide, prepared: Any) -> Outcome:
            ends.append("done" if ends else "forgotten")
            return real(self, prepared) if ends[-1] == "done" else Outcome.FORGOTTEN

        patched.setattr(KafkaSide, "end", end)
        return ends

    asyncio.run(program())


@pytest.fixture
def own(name: str) -> Iterator[KohortServer]:
    with KohortServer() as running:
        with Cluster(running.bootstrap_servers) as cluster:
            cluster.create_topic(name, 1)
        yield running


def test_the_cluster_is_away_between_the_commits(store: Store, own: KohortServer, name: str) -> None:
    """The block ends normally, since the database has committed; the records come when the cluster does."""

    async def program() -> None:
        async with opened(store, name, own.bootstrap_servers, api_timeout_ms=1_000) as (outbox, connection):
            once_before(outbox, "end", own.kill)
            await write(outbox, store, connection, name, "first")
            assert outbox.unfinished
            with pytest.raises(ConnectionFailed):
                await write(outbox, store, connection, name, "lost")
            own.start()
            await write(outbox, store, connection, name, "second")
            assert not outbox.unfinished

    asyncio.run(program())
    with Cluster(own.bootstrap_servers) as cluster:
        agree(store, cluster, name, "first", "second")
