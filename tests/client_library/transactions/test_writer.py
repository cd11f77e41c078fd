"""TransactionalWriter against kohort and Apache Kafka, in both protocols of transactions."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from committed_records import committed, committed_so_far, settle
from running_tasks import wait_until

from kohort.client.admin.groups import Committed, Committer
from kohort.client.cluster import Cluster
from kohort.client.errors import Misuse, ServerError
from kohort.client.transactions import (
    MustAbort,
    Outcome,
    Prepared,
    ProducerFenced,
    TransactionalWriter,
    end_prepared,
)
from kohort.client.wire.routing import Router, Timing
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode

NAMES = map("{}-{}".format, itertools.repeat(f"t{os.getpid()}"), itertools.count())

Open = Callable[..., TransactionalWriter]


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer() as running:
        yield running


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers) as client:
        yield client


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = next(NAMES)
    cluster.create_topic(name, 2)
    return name


@pytest.fixture
def router(servers: str) -> Iterator[Router]:
    opened = Router(servers, "writer", Timing(api=20_000))
    yield opened
    opened.close()


@pytest.fixture(params=[1, 2])
def open_writer(request: pytest.FixtureRequest, router: Router) -> Open:
    """Makes writers of one protocol, with a transactional id of their own unless it is given."""

    def make(transactional_id: str = "", **options: int) -> TransactionalWriter:
        writer = TransactionalWriter(router, transactional_id or next(NAMES), highest_protocol=request.param, **options)
        writer.init()
        return writer

    return make


def batch(*values: str) -> list[NewRecord]:
    return [NewRecord(None, value.encode(), 1) for value in values]


def test_transactions_follow_each_other(cluster: Cluster, topic: str, open_writer: Open) -> None:
    writer = open_writer()
    for number in range(4):
        writer.begin()
        writer.produce({(topic, 0): batch(f"a{number}", f"b{number}"), (topic, 1): batch(f"c{number}")})
        writer.produce({(topic, 0): batch(f"d{number}")})
        if number == 2:
            writer.abort()
        else:
            writer.commit()
    assert committed(cluster, topic) == [f"{letter}{number}" for number in (0, 1, 3) for letter in "abd"]
    assert committed(cluster, topic, 1) == ["c0", "c1", "c3"]


def test_an_empty_transaction_needs_no_request(cluster: Cluster, topic: str, open_writer: Open) -> None:
    writer = open_writer()
    for _ in range(2):
        writer.begin()
        writer.commit()
        writer.begin()
        writer.abort()
    writer.begin()
    with pytest.raises(Misuse, match="nothing is in the transaction"):
        writer.prepared()
    writer.produce({(topic, 0): batch("x")})
    writer.commit()
    assert committed(cluster, topic) == ["x"]


def test_the_states_are_kept(open_writer: Open, topic: str) -> None:
    writer = open_writer()
    with pytest.raises(Misuse, match="no transaction is open"):
        writer.produce({(topic, 0): batch("x")})
    writer.begin()
    with pytest.raises(Misuse, match="a transaction is open"):
        writer.begin()


def test_offsets_are_committed_with_the_records(cluster: Cluster, topic: str, open_writer: Open) -> None:
    group = next(NAMES)
    writer = open_writer()
    for offset, end in ((1, writer.commit), (2, writer.abort), (3, writer.commit)):
        writer.begin()
        writer.send_offsets(group, {(topic, 1): Committed(offset, metadata=f"m{offset}")})
        end()
    wait_until(lambda: cluster.committed(group) == {(topic, 1): Committed(3, -1, "m3")}, "the offsets are there")


def test_offsets_of_a_stranger_are_abortable(cluster: Cluster, topic: str, open_writer: Open) -> None:
    group = next(NAMES)
    writer = open_writer()
    writer.begin()
    writer.produce({(topic, 0): batch("lost")})
    with pytest.raises(MustAbort) as refused:
        writer.send_offsets(group, {(topic, 1): Committed(1)}, Committer("nobody", 7))
    assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    with pytest.raises(Misuse, match="must be aborted"):
        writer.commit()
    writer.abort()
    writer.begin()
    writer.produce({(topic, 0): batch("kept")})
    writer.commit()
    assert committed(cluster, topic) == ["kept"]
    assert cluster.committed(group) == {}


def test_an_unknown_topic_is_abortable(cluster: Cluster, topic: str, open_writer: Open) -> None:
    writer = open_writer()
    writer.begin()
    with pytest.raises(MustAbort) as refused:
        writer.produce({("missing", 0): batch("x")})
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    writer.abort()
    writer.begin()
    writer.produce({(topic, 0): batch("kept")})
    writer.commit()
    assert committed(cluster, topic) == ["kept"]


def test_a_newer_writer_fences(cluster: Cluster, topic: str, open_writer: Open) -> None:
    older = open_writer()
    older.begin()
    older.produce({(topic, 0): batch("lost")})
    newer = open_writer(older.transactional_id)
    newer.begin()
    newer.produce({(topic, 0): batch("kept")})
    with pytest.raises(ProducerFenced):
        older.commit()
    newer.commit()
    assert committed(cluster, topic) == ["kept"]


def test_a_timeout_of_the_server_is_too_long(router: Router) -> None:
    writer = TransactionalWriter(router, next(NAMES), timeout_ms=2**31 - 1)
    with pytest.raises(ServerError) as refused:
        writer.init()
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("times", [1, 2])
def test_another_process_commits_what_is_prepared(
    cluster: Cluster, router: Router, topic: str, open_writer: Open, times: int
) -> None:
    writer = open_writer()
    writer.begin()
    writer.produce({(topic, 0): batch("kept")})
    prepared = writer.prepared()
    assert committed_so_far(cluster, topic) == []
    for _ in range(times):
        assert end_prepared(router, prepared) is Outcome.DONE
    assert committed(cluster, topic) == ["kept"]
    writer.commit()  # the writer does not know that it is done
    writer.begin()
    writer.produce({(topic, 0): batch("next")})
    writer.commit()
    assert committed(cluster, topic) == ["kept", "next"]


def test_a_prepared_transaction_that_was_aborted(
    cluster: Cluster, router: Router, topic: str, open_writer: Open
) -> None:
    writer = open_writer()
    writer.begin()
    writer.produce({(topic, 0): batch("lost")})
    prepared = writer.prepared()
    writer.abort()
    assert end_prepared(router, prepared) is Outcome.OTHERWISE
    assert committed(cluster, topic) == []


def test_a_prepared_transaction_that_timed_out(cluster: Cluster, router: Router, topic: str, open_writer: Open) -> None:
    writer = open_writer(timeout_ms=1_000)
    writer.begin()
    writer.produce({(topic, 0): batch("lost")})
    prepared = writer.prepared()
    settle(cluster, topic)
    assert end_prepared(router, prepared) is Outcome.OTHERWISE
    assert committed(cluster, topic) == []


def test_a_transaction_that_no_coordinator_has(router: Router) -> None:
    assert end_prepared(router, Prepared(next(NAMES), 1_000_000, 0, 1)) is Outcome.FORGOTTEN
    assert end_prepared(router, Prepared(next(NAMES), 1_000_000, 0, 2)) is Outcome.FORGOTTEN
