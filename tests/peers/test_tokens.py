"""Fencing tokens on Apache Kafka, whose generations restart at 1: a compacted topic keeps them growing.

Topics and groups have names of their own in each run, since a server may have served an earlier one.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from group import until

from kohort.client import GroupToken, KafkaError, LastingToken, lead
from kohort.client.cluster import Cluster
from kohort.client.coordination.token_topic import Overtaken
from kohort.client.transactions.writer import TransactionalWriter
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import TRANSACTION
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]


@pytest.fixture
def cluster(servers_of_kafka: str) -> Iterator[Cluster]:
    with Cluster(servers_of_kafka) as client:
        yield client


@pytest.fixture
def run() -> str:
    """A prefix of names that no earlier run has used."""
    return f"{uuid.uuid4().hex}."


async def led(servers: str, group: str, **settings: Any) -> int:
    async with lead(servers, group, **settings) as election:
        async for term in election:
            return term.token
    raise AssertionError


def test_generations_begin_anew_and_say_so_in_their_type(servers_of_kafka: str, cluster: Cluster, run: str) -> None:
    group = f"{run}plain"
    first = asyncio.run(led(servers_of_kafka, group))
    assert isinstance(first, GroupToken)
    cluster.delete_group(group)
    assert asyncio.run(led(servers_of_kafka, group)) == first


def test_tokens_of_a_topic_grow_over_deletion(servers_of_kafka: str, cluster: Cluster, run: str) -> None:
    group, topic = f"{run}numbered", f"{run}tokens"
    tokens = []
    for _ in range(3):
        tokens.append(asyncio.run(led(servers_of_kafka, group, token_topic=topic)))
        cluster.delete_group(group)
    assert tokens == [1, 2, 3]
    assert all(isinstance(token, LastingToken) for token in tokens)
    assert asyncio.run(led(servers_of_kafka, f"{run}another", token_topic=topic)) == 1


def test_leaders_of_two_clients_have_tokens_in_order(servers_of_kafka: str, run: str) -> None:
    group, topic = f"{run}two", f"{run}tokens"

    async def story() -> list[int]:
        async with (
            lead(servers_of_kafka, group, token_topic=topic) as a,
            lead(servers_of_kafka, group, token_topic=topic) as b,
        ):
            while not (a.term or b.term):
                await asyncio.sleep(0.01)
            leader, other = (a, b) if a.term else (b, a)
            assert leader.term is not None
            first = leader.term.token
            await leader.close()
            async for term in other:
                return [first, term.token]
        raise AssertionError

    first, second = asyncio.run(story())
    assert first < second


def test_a_leader_is_overtaken_while_another_begins(
    servers_of_kafka: str, cluster: Cluster, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has asked for its epoch once: it was told to ask again, since the open transaction ends first."""
    topic = f"{run}tokens"
    writer_id = f"{topic}-key"
    commit = TransactionalWriter.commit

    def late(writer: TransactionalWriter) -> None:
        begin = InitProducerIdRequest(transactional_id=writer_id, transaction_timeout_ms=10_000)

        def ask(connection: Connection) -> int:
            return connection.request(begin, InitProducerIdResponse).error_code

        assert cluster._router.at_coordinator(writer_id, ask, TRANSACTION) == ErrorCode.CONCURRENT_TRANSACTIONS
        until(lambda: cluster.describe_transactions([writer_id])[writer_id].state == "CompleteAbort", "the abort")
        commit(writer)

    monkeypatch.setattr(TransactionalWriter, "commit", late)
    with pytest.raises(Overtaken):
        cluster.next_token(topic, "key")
    monkeypatch.undo()
    assert cluster.next_token(topic, "key") == 1


def test_an_overtaken_leader_gets_no_token(servers_of_kafka: str, cluster: Cluster, run: str) -> None:
    """Many at once: no token twice, each larger than those that were known when it was asked for."""
    topic = f"{run}tokens"
    taken: list[tuple[int, int]] = []
    failures: list[Exception] = []

    def take() -> None:
        with Cluster(servers_of_kafka) as client:
            for _ in range(5):
                known = max((token for _, token in taken), default=0)
                try:
                    taken.append((known, client.next_token(topic, "contended")))
                except Overtaken:
                    pass
                except KafkaError as error:
                    failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    tokens = [token for _, token in taken]
    assert len(set(tokens)) == len(tokens) > 0
    assert all(known < token for known, token in taken)
    assert cluster.next_token(topic, "contended") > max(tokens)


def test_a_topic_that_forgets_is_refused(cluster: Cluster, run: str) -> None:
    topic = f"{run}forgets"
    cluster.create_topic(topic, 1, configs={"cleanup.policy": "delete"})
    with pytest.raises(KafkaError, match=r"cleanup\.policy=delete"):
        cluster.next_token(topic, "k")
