"""Topics of thousands of partitions: their logs are created and deleted some in each turn, the topic at one moment.

Here a turn has two logs. A crash after any turn leaves the whole topic or nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from wire_driver import Connection, Wire, delete_topics

from kohort.broker.handlers import topics_admin
from kohort.broker.topics import topic_store
from kohort.broker.topics.catalog import METADATA_LOG, OFFSETS_TOPIC
from kohort.broker.turn import Shutdown, Turn
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import CreateLog, DeleteLog
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.pure

LOGS = 2
"""A turn creates or deletes."""
NONE = ErrorCode.NONE


@pytest.fixture(autouse=True)
def few_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (topic_store, topics_admin):
        monkeypatch.setattr(module, "LOGS_A_TURN", LOGS)


@pytest.fixture
def client() -> Connection:
    return Wire(offsets_topic_num_partitions=2, journal_enable=False).connect()


def create(name: str = "t", partitions: int = 7) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=(CreatableTopic(name=name, num_partitions=partitions, replication_factor=1),))


def grow(count: int, name: str = "t") -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=name, count=count),), timeout_ms=1)


def turns(wire: Wire, *arrived: Any) -> Iterator[Turn]:
    """Turns that have time for one step, until nothing is left to do."""
    while arrived or wire.broker.busy:
        polls = iter((False,))
        turn = wire.broker.step(arrived, wire.now, lambda polls=polls: next(polls, True))  # type: ignore[misc]
        arrived = ()
        wire.end(turn)
        yield turn


def begin(client: Connection, request: Any, version: int, steps: int = 2) -> None:
    """The first steps of a request."""
    for _, _ in zip(range(steps), turns(client.wire, client.frame(request, version)), strict=False):
        pass
    assert not client.responses


def partitions_of(wire: Wire, name: str = "t") -> int:
    """Of a topic; 0 if there is none."""
    topic = wire.broker.state.catalog.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


def stray(wire: Wire) -> set[Any]:
    """Logs that no topic has."""
    known = {partition.log for partition in wire.broker.state.topics.all_partitions()}
    return {info.key for info in wire.storage.logs()} - known


def at_rest(wire: Wire) -> bool:
    topics = wire.broker.state.topics
    return not (stray(wire) or topics.spare or topics._growing or topics.catalog.spare_logs)


def error_of(client: Connection) -> tuple[int, str | None]:
    response = client.take()
    rows = getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
    return rows[0].error_code, rows[0].error_message


SCENES: dict[str, tuple[int, int, Callable[[], Any], int]] = {
    "create": (0, 7, create, 7),
    "grow": (2, 9, lambda: grow(9), 3),
    "grow by little": (2, 3, lambda: grow(3), 3),
    "delete": (7, 0, lambda: delete_topics("t"), 5),
}
"""Partitions before and after, and what the client asks for."""


@pytest.mark.parametrize("scene", SCENES)
def test_a_crash_after_any_turn_leaves_all_or_nothing(client: Connection, scene: str) -> None:
    before, after, request, version = SCENES[scene]
    wire = client.wire
    if before:
        client.ask(create("t", before), 7)
    storage = wire.storage
    assert isinstance(storage, MemoryStorage)
    seen = []
    for turn in turns(wire, client.frame(request(), version)):
        logs = [operation for operation in turn.operations if isinstance(operation, CreateLog | DeleteLog)]
        assert len(logs) <= LOGS
        crashed = Wire(storage.copy(), now=wire.now)
        seen.append(partitions_of(crashed))
        assert seen[-1] == (after if client.responses else seen[-1])
        assert at_rest(crashed)
        if seen[-1] > 0:
            assert crashed.connect().produce("t", "x", partition=seen[-1] - 1) == 0
    assert seen[-1] == after
    assert set(seen) <= {before, after}
    assert seen == sorted(seen, reverse=before > after)
    assert error_of(client) == (NONE, None)
    assert at_rest(wire)


def test_unused_logs_do_not_pile_up(client: Connection) -> None:
    """Clients that create and delete make others wait, and take no more memory."""
    client.ask(create(), 7)
    other = client.wire.connect()
    created = 0
    for turn in turns(client.wire, client.frame(delete_topics("t"), 5), other.frame(create("u"), 7)):
        new = sum(isinstance(operation, CreateLog) for operation in turn.operations)
        assert not (new and client.wire.broker.state.topics.deletes_logs)
        created += new
    assert created == 7
    assert error_of(other) == (NONE, None)
    assert at_rest(client.wire)


def test_small_topics_share_a_turn_as_far_as_their_logs_do(client: Connection) -> None:
    for name in ("t", "u", "v"):
        client.ask(create(name, LOGS), 7)
    request = client.frame(delete_topics("t", "u", "absent", "v"), 5)
    assert max(len(turn.operations) for turn in turns(client.wire, request)) <= LOGS + 1  # and the metadata log
    assert [row.error_code for row in client.take().responses] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert at_rest(client.wire)


def test_a_topic_is_recreated_while_the_logs_of_the_former_one_are_deleted(client: Connection) -> None:
    client.ask(create(), 7)
    client.produce("t", "x")
    [*_] = zip(range(1), turns(client.wire, client.frame(delete_topics("t"), 5)), strict=False)
    assert client.wire.broker.state.topics.spare
    state = client.wire.broker.state
    state.topics.create("t", state.topics.place(1, 1), {})
    client.wire.step()
    assert error_of(client) == (NONE, None)
    assert client.values("t") == []
    assert at_rest(client.wire)


def test_a_topic_that_another_request_creates_first(client: Connection) -> None:
    begin(client, create(), 7)
    topics = client.wire.broker.state.topics
    topics.create("t", topics.place(1, 1), {})
    client.wire.step()
    assert error_of(client) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    assert partitions_of(client.wire) == 1
    assert at_rest(client.wire)


def test_two_requests_grow_a_topic_at_a_time(client: Connection) -> None:
    client.ask(create("t", 1), 7)
    other = client.wire.connect()
    begin(client, grow(9), 3, 3)
    other.send(grow(6), 3)
    client.wire.step()
    assert error_of(client) == (NONE, None)
    refused = "The topic t currently has 9 partition(s); 6 would not be an increase."
    assert error_of(other) in ((NONE, None), (ErrorCode.INVALID_PARTITIONS, refused))
    assert partitions_of(client.wire) == 9
    assert at_rest(client.wire)
    assert [partition.log.partition for partition in client.wire.partitions("t")] == list(range(9))


def test_a_small_growth_takes_what_another_has_created(client: Connection) -> None:
    client.ask(create("t", 1), 7)
    other = client.wire.connect()
    begin(client, grow(9), 3, 2)
    assert client.wire.broker.state.topics.spare
    state = client.wire.broker.state
    topic = state.catalog.topics["t"]
    state.topics.change(topic, assignments=topic.partitions + state.topics.place(1, 1, 1))
    client.wire.step()
    assert error_of(client) == (NONE, None)
    assert other.ask(grow(10), 3).results[0].error_code == NONE
    assert [partition.log.partition for partition in client.wire.partitions("t")] == list(range(10))
    assert at_rest(client.wire)
    assert at_rest(client.wire.restarted())


def test_a_topic_that_is_deleted_while_it_grows(client: Connection) -> None:
    client.ask(create("t", 3), 7)
    begin(client, grow(9), 3)
    state = client.wire.broker.state
    state.delete_topics([state.catalog.topics["t"]])
    client.wire.step()
    assert error_of(client)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert at_rest(client.wire)
    assert at_rest(client.wire.restarted())


def test_a_change_goes_on_without_its_client_and_not_after_a_shutdown(client: Connection) -> None:
    other = client.wire.connect()
    begin(client, create(), 7)
    client.close()
    assert partitions_of(client.wire) == 7
    begin(other, create("u"), 7)
    client.wire.step(Shutdown())
    restarted = client.wire.restarted()
    assert partitions_of(restarted, "u") == 0
    assert at_rest(restarted)
    restarted.connect().create_topic("u", 7)


def test_logs_under_way_count_for_the_limit_of_partitions() -> None:
    client = Wire(offsets_topic_num_partitions=2, journal_enable=False, max_partitions=20).connect()
    other = client.wire.connect()
    begin(client, create("t", 12), 7, 4)
    other.send(create("u", 12), 7)
    client.wire.step()
    errors = {error_of(client)[0], error_of(other)[0]}
    assert errors == {NONE, ErrorCode.POLICY_VIOLATION}
    assert at_rest(client.wire)
    assert client.wire.broker.state.catalog.partition_count == 14


def test_what_is_above_the_limit_is_refused_before_it_is_placed(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two billion assignments would take all memory."""
    client.ask(create("t", 1), 7)
    monkeypatch.setattr(topic_store.TopicStore, "place", None)
    assert client.ask(grow(2**31 - 1), 3).results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert client.ask(create("u", 2**31 - 1), 7).topics[0].error_code == ErrorCode.POLICY_VIOLATION


def test_validation_creates_nothing(client: Connection) -> None:
    request = CreateTopicsRequest(
        topics=(CreatableTopic(name="t", num_partitions=7, replication_factor=1),), validate_only=True
    )
    assert client.ask(request, 7).topics[0].error_code == NONE
    assert partitions_of(client.wire) == 0
    assert {info.key.topic_id for info in client.wire.storage.logs()} == {
        METADATA_LOG.topic_id,
        client.wire.broker.state.catalog.topics[OFFSETS_TOPIC].topic_id,
    }
