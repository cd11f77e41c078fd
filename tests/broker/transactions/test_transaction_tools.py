"""What tools ask: WriteTxnMarkers, DescribeTransactions, ListTransactions."""

from __future__ import annotations

from typing import Any

import pytest
from transaction_driver import Transactional, described, found, listed, log_of, state_of, write_markers
from wire_driver import Connection, Wire

from kohort.broker.topics.catalog import JOURNAL_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kohort.coordinator.transactions.transaction import State
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

PARTITIONS = 2


@pytest.fixture
def producer(client: Connection) -> Transactional:
    producer = Transactional(client)
    assert producer.init() == 0
    return producer


# -- WriteTxnMarkers


@pytest.mark.conformance("TX39")
def test_tx39_partitions_that_are_not_here(client: Connection) -> None:
    places = (("t", 7), ("none", 0), (TRANSACTIONS_TOPIC, 0), (JOURNAL_TOPIC, 0))
    found(client)
    assert write_markers(client, 1, 0, *places) == [3, 3, 17, 17]


@pytest.mark.conformance("TX39")
def test_tx39_partitions_that_another_broker_leads() -> None:
    wire = Wire(brokers=2)
    client = wire.connect(1)
    client.create_topic("t", 2)
    assert sorted(write_markers(client, 1, 0, ("t", 0), ("t", 1))) == [0, 6]
    offsets = [write_markers(client, 1, 0, (OFFSETS_TOPIC, index)) for index in range(5)]
    assert {error for [error] in offsets} == {0, 6}


@pytest.mark.conformance("TX40", "TX41")
def test_tx40_tx41_old_markers_are_refused(producer: Transactional, client: Connection, wire: Wire) -> None:
    producer.produce("a")
    producer.commit()
    ours = producer.producer_id
    assert write_markers(client, ours, 0, ("t", 0)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert write_markers(client, ours, 1, ("t", 0), coordinator_epoch=5) == [0]
    assert write_markers(client, ours, 1, ("t", 0), coordinator_epoch=4) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert len(log_of(wire)) == 3


@pytest.mark.conformance("TX42")
def test_tx42_a_marker_without_data_is_written(client: Connection, wire: Wire) -> None:
    marker: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 0}
    markers = tuple(
        WritableTxnMarker(
            **marker,
            transaction_result=committed,
            topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(index,)),),
        )
        for index, committed in enumerate((True, False))
    )
    answer = client.ask(WriteTxnMarkersRequest(markers=markers), 1)
    [result] = answer.markers
    assert result.producer_id == 1, "the results of a producer are one"
    [topic] = result.topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0), (1, 0)]
    assert (log_of(wire), log_of(wire, partition=1)) == (["COMMIT 1/0"], ["ABORT 1/0"])


@pytest.mark.conformance("TX43")
def test_tx43_an_operator_ends_a_hanging_transaction(producer: Transactional, client: Connection, wire: Wire) -> None:
    producer.produce("a")
    wire.step()
    [partition, _] = wire.partitions("t")
    assert partition.last_stable_offset == 0
    assert write_markers(client, producer.producer_id, producer.epoch, ("t", 0), coordinator_epoch=-1) == [0]
    wire.step()
    assert partition.last_stable_offset == 2
    assert state_of(wire).state is State.ONGOING, "the coordinator is not told"


@pytest.mark.conformance("TX39")
def test_markers_of_offsets(client: Connection, wire: Wire) -> None:
    assert write_markers(client, 1, 0, (OFFSETS_TOPIC, 3), committed=True, transaction_version=2) == [0]
    assert log_of(wire, OFFSETS_TOPIC, 3) == ["COMMIT 1/0"]


# -- DescribeTransactions


@pytest.mark.conformance("TX45")
def test_tx45_each_state(producer: Transactional, client: Connection, wire: Wire) -> None:
    ours = producer.producer_id
    one = described(client)
    assert (one.transaction_state, one.producer_id, one.producer_epoch, one.topics) == ("Empty", ours, 0, ())
    assert (one.transaction_timeout_ms, one.transaction_start_time_ms) == (60_000, -1)
    wire.advance(1_000)
    producer.add("t", 1, 0)
    one = described(client)
    assert (one.transaction_state, one.transaction_start_time_ms) == ("Ongoing", wire.now)
    assert [(topic.topic, topic.partitions) for topic in one.topics] == [("t", (0, 1))]
    producer.commit()
    assert (described(client).transaction_state, described(client).topics) == ("CompleteCommit", ())
    producer.produce("a")
    producer.abort()
    assert described(client).transaction_state == "CompleteAbort"


@pytest.mark.conformance("TX45")
def test_tx45_ids_that_are_not_there(client: Connection) -> None:
    assert described(client, "x").error_code == ErrorCode.NOT_COORDINATOR, "there is no coordinator yet"
    found(client)
    assert described(client, "x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert described(client, "").error_code == ErrorCode.INVALID_REQUEST


# -- ListTransactions


@pytest.fixture
def three(client: Connection, wire: Wire) -> dict[str, Transactional]:
    """Ids in three states, begun a second after each other."""
    producers = {}
    for name in ("app-1", "app-2", "other"):
        producers[name] = producer = Transactional(client, name)
        producer.init()
        wire.advance(1_000)
        if name != "other":
            producer.produce(name)
    producers["app-2"].commit()
    return producers


def names(client: Connection, *states: str, **filters: Any) -> list[str]:
    answer = listed(client, *states, **filters)
    assert answer.error_code == 0
    return sorted(one.transactional_id for one in answer.transaction_states)


@pytest.mark.conformance("TX46")
def test_tx46_filters(three: dict[str, Transactional], client: Connection) -> None:
    everything = {one.transactional_id: one.transaction_state for one in listed(client).transaction_states}
    assert everything == {"app-1": "Ongoing", "app-2": "CompleteCommit", "other": "Empty"}
    assert names(client, "Ongoing", "Empty") == ["app-1", "other"]
    assert names(client, producer_id_filters=(three["app-2"].producer_id, 99)) == ["app-2"]
    assert names(client, "Ongoing", producer_id_filters=(three["app-2"].producer_id,)) == []
    assert names(client, "Dead", "PrepareEpochFence") == []


@pytest.mark.conformance("TX46")
def test_tx46_unknown_states_are_named(three: dict[str, Transactional], client: Connection) -> None:
    answer = listed(client, "Ongoing", "ongoing", "Broken")
    assert answer.unknown_state_filters == ("ongoing", "Broken")
    assert [one.transactional_id for one in answer.transaction_states] == ["app-1"]
    assert listed(client, "Broken").transaction_states == ()


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (-1, ["app-1", "app-2", "other"]),
        (0, ["app-1", "app-2", "other"]),
        (2_999, ["app-1", "app-2", "other"]),
        (3_000, ["app-1", "other"]),
        (4_000, ["other"]),
    ],
)
@pytest.mark.conformance("TX47")
def test_tx47_durations(
    three: dict[str, Transactional], client: Connection, wire: Wire, duration: int, expected: list[str]
) -> None:
    """The first one began 4 s ago, the second 3 s; the third has no transaction, so no filter excludes it."""
    wire.advance(2_000)
    assert names(client, duration_filter=duration) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("app-.", ["app-1", "app-2"]),
        ("app", []),
        ("", ["app-1", "app-2", "other"]),
        (None, ["app-1", "app-2", "other"]),
    ],
)
@pytest.mark.conformance("TX47")
def test_tx47_patterns(
    three: dict[str, Transactional], client: Connection, pattern: str | None, expected: list[str]
) -> None:
    assert names(client, transactional_id_pattern=pattern) == expected


@pytest.mark.conformance("TX47")
def test_tx47_a_pattern_that_is_none(three: dict[str, Transactional], client: Connection) -> None:
    answer = listed(client, transactional_id_pattern="(")
    assert (answer.error_code, answer.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, ())


def test_a_broker_lists_the_ids_that_it_coordinates() -> None:
    wire = Wire(brokers=2)
    clients = {broker: wire.connect(broker) for broker in (1, 2)}
    for index in range(10):
        name = f"x-{index}"
        Transactional(clients[found(clients[1], name)], name).init()
    first, second = (names(client) for client in clients.values())
    assert first
    assert second
    assert sorted(first + second) == [f"x-{index}" for index in range(10)]


def test_there_is_nothing_to_list_before_the_first_transaction(client: Connection) -> None:
    assert names(client) == []
