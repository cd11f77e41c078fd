"""Fetch, ListOffsets and DescribeProducers on partitions with transactions (rows TX32-TX36, TX44)."""

from __future__ import annotations

from typing import Any

import pytest
from transaction_driver import Transactional, write_markers
from wire_driver import START_MS, Connection, Wire, batch, fetch_request, produce_request, values_of, with_topic

from kohort.wire.batches import split_batches
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.schemas.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.fetch import PartitionData
from kohort.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

PARTITIONS = 2
COMMITTED = {"isolation_level": 1}


@pytest.fixture
def producer(client: Connection) -> Transactional:
    producer = Transactional(client.wire.connect())
    producer.init()
    return producer


def fetched(client: Connection, offset: int = 0, version: int = 12, **options: Any) -> PartitionData:
    client.wire.step()  # what the last turn appended becomes readable
    data: PartitionData = client.ask(fetch_request("t", offset, **options), version).responses[0].partitions[0]
    return data


def bases(data: PartitionData) -> list[int]:
    """The base offsets of the batches."""
    return [header.base_offset for header, _ in split_batches(data.records or b"")]


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    listed = data.aborted_transactions
    return None if listed is None else [(one.producer_id, one.first_offset) for one in listed]


# -- Fetch


@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.conformance("TX32")
def test_tx32_every_answer_has_the_last_stable_offset(
    client: Connection, producer: Transactional, version: int
) -> None:
    client.produce("t", "a")
    producer.produce("b")
    client.produce("t", "c")
    for options, found in (({}, [0, 1, 2]), (COMMITTED, [0])):
        data = fetched(client, version=version, **options)
        assert (data.high_watermark, data.last_stable_offset) == (3, 1)
        assert bases(data) == found
        assert aborted(data) == ([] if options else None)
    producer.commit()
    data = fetched(client, version=version, **COMMITTED)
    assert (data.high_watermark, data.last_stable_offset, bases(data), aborted(data)) == (4, 4, [0, 1, 2, 3], [])


@pytest.mark.conformance("TX33")
def test_tx33_the_aborted_transactions_of_the_returned_batches(client: Connection, producer: Transactional) -> None:
    other = Transactional(client.wire.connect(), "y")
    other.init()
    producer.produce("a")  # 0
    other.produce("b")  # 1
    producer.abort()  # 2
    producer.produce("c")  # 3
    producer.commit()  # 4
    other.abort()  # 5
    other.abort()  # without records
    first, second = producer.producer_id, other.producer_id
    assert aborted(fetched(client, **COMMITTED)) == [(first, 0), (second, 1)], "in the order of their markers"
    assert aborted(fetched(client, most=1, **COMMITTED)) == [(first, 0)], "up to the end of what is returned"
    assert aborted(fetched(client, 3, **COMMITTED)) == [(second, 1)]
    assert aborted(fetched(client, 5, **COMMITTED)) == [(second, 1)]
    assert aborted(fetched(client, 6, **COMMITTED)) == []
    assert aborted(fetched(client)) is None
    again = client.wire.restarted().connect()
    assert aborted(fetched(again, **COMMITTED)) == [(first, 0), (second, 1)]


@pytest.mark.conformance("TX34")
def test_tx34_nothing_at_and_after_the_last_stable_offset(client: Connection, producer: Transactional) -> None:
    client.produce("t", "a")
    producer.produce("b")
    client.produce("t", "c")
    for offset in (1, 2, 3):
        data = fetched(client, offset, **COMMITTED)
        assert (data.error_code, data.records, data.last_stable_offset) == (0, b"", 1)
    assert fetched(client, 4, **COMMITTED).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.conformance("TX34")
def test_tx34_a_marker_wakes_waiting_readers(client: Connection, producer: Transactional, committed: bool) -> None:
    wire = client.wire
    producer.produce("b" * 1_000)
    waiting, eager = wire.connect(), wire.connect()
    waiting.send(fetch_request("t", max_wait_ms=60_000, min_bytes=2_000, **COMMITTED), 11)
    eager.send(fetch_request("t", max_wait_ms=60_000, min_bytes=1, **COMMITTED), 11)
    client.produce("t", "c" * 1_000)
    producer.produce("d", partition=1)
    wire.step()
    assert waiting.responses == eager.responses == []
    producer.end(committed=committed)
    assert len(values_of(waiting.take())) == len(values_of(eager.take())) == 3


@pytest.mark.conformance("TX34")
def test_tx34_only_readable_bytes_count(client: Connection, producer: Transactional) -> None:
    """A reader that wants many bytes waits on while a transaction hides them, and others do not."""
    wire = client.wire
    readers = {level: wire.connect() for level in (0, 1)}
    for level, reader in readers.items():
        reader.send(fetch_request("t", max_wait_ms=60_000, min_bytes=1_000, isolation_level=level), 11)
    producer.produce("b" * 600)
    client.produce("t", "c" * 600)
    wire.step()
    assert len(values_of(readers[0].take())) == 2
    assert readers[1].responses == []
    producer.commit()
    assert len(values_of(readers[1].take())) == 3


@pytest.mark.conformance("TX35")
def test_tx35_markers_and_aborted_records_are_sent_to_all(client: Connection, producer: Transactional) -> None:
    producer.produce("b")
    producer.abort()
    for options in ({}, COMMITTED):
        data = fetched(client, **options)
        assert [header.is_control for header, _ in split_batches(data.records or b"")] == [False, True]


def test_a_marker_of_the_turn_does_not_show_before_its_sync(client: Connection, producer: Transactional) -> None:
    producer.produce("a")
    wire = client.wire
    reader = wire.connect()
    end = producer.client.frame(*_commit_of(producer))
    turn = wire.broker.step((end, reader.frame(fetch_request("t", **COMMITTED), 11)), wire.now)
    early = [release for release in turn.releases if release.connection == reader.id]
    wire.end(turn)
    [data] = reader.take().responses[0].partitions
    assert early
    assert (data.high_watermark, data.last_stable_offset, data.records) == (1, 0, b"")
    assert bases(fetched(client, **COMMITTED)) == [0, 1]


def _commit_of(producer: Transactional) -> tuple[Any, int]:
    return EndTxnRequest(**producer.producer, committed=True), 5


@pytest.mark.conformance("TX32")
def test_deleted_records_of_an_open_transaction(client: Connection, producer: Transactional) -> None:
    producer.produce("a", "b")
    client.produce("t", "c")
    asked = DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(asked,)),), timeout_ms=1)
    client.wire.step()
    assert client.ask(request, 2).topics[0].partitions[0].low_watermark == 3
    again = client.wire.restarted().connect()
    for each in (client, again):
        data = fetched(each, 3, **COMMITTED)
        assert (data.log_start_offset, data.last_stable_offset, data.high_watermark) == (3, 3, 3)
    resumed = producer.copy()
    resumed.client = again
    assert resumed.abort() == 0
    again.produce("t", "d")
    assert fetched(again, 3, **COMMITTED).last_stable_offset == 5


# -- ListOffsets


def listed(client: Connection, timestamp: int, level: int = 1, version: int = 7) -> int:
    client.wire.step()
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = (ListOffsetsTopic(name="t", partitions=(asked,)),)
    answer = client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics), version)
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.conformance("TX36")
def test_tx36_offsets_for_readers_of_committed_records(client: Connection, producer: Transactional) -> None:
    client.produced(produce_request("t", batch("a", timestamp=START_MS - 10)))
    client.produced(produce_request("t", batch("b", timestamp=START_MS - 5)))
    producer.produce("c")  # at START_MS
    client.produced(produce_request("t", batch("d", timestamp=START_MS - 7)))
    latest, earliest, newest = -1, -2, -3
    assert [listed(client, latest, level) for level in (0, 1)] == [4, 2]
    assert [listed(client, earliest, level) for level in (0, 1)] == [0, 0]
    assert [listed(client, newest, level) for level in (0, 1)] == [2, -1]
    assert [listed(client, START_MS - 6, level) for level in (0, 1)] == [1, 1]
    assert [listed(client, START_MS - 4, level) for level in (0, 1)] == [2, -1]
    producer.commit()
    assert [listed(client, latest, level) for level in (0, 1)] == [5, 5]
    assert [listed(client, newest, level) for level in (0, 1)] == [2, 2]


# -- DescribeProducers


def described(client: Connection, *indexes: int, topic: str = "t") -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=(TopicRequest(name=topic, partition_indexes=indexes),))
    [answer] = client.ask(request, 0).topics
    assert answer.name == topic
    return list(answer.partitions)


@pytest.mark.conformance("TX44")
def test_tx44_producers_of_a_partition(client: Connection, producer: Transactional) -> None:
    wire = client.wire
    idempotent = batch("a", "b", producer_id=77, producer_epoch=3, base_sequence=4)
    client.produced(produce_request("t", idempotent))
    producer.produce("c")
    producer.produce("d", partition=1)
    wire.advance(10)
    ended = producer.epoch + 1
    write_markers(client, producer.producer_id, ended, ("t", 1), coordinator_epoch=6, transaction_version=2)
    for each in (client, wire.restarted().connect()):
        first, second = described(each, 0, 1)
        states = sorted(first.active_producers, key=lambda state: state.producer_id)
        assert [state for state in states if state.producer_id == 77] == [
            ProducerState(
                producer_id=77, producer_epoch=3, last_sequence=5, last_timestamp=START_MS, coordinator_epoch=-1
            )
        ]
        assert [state for state in states if state.producer_id != 77] == [
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=0,
                last_timestamp=START_MS,
                coordinator_epoch=-1,
                current_txn_start_offset=2,
            )
        ]
        assert second.active_producers == (
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=ended,
                last_sequence=-1,
                last_timestamp=START_MS + 10,
                coordinator_epoch=6,
            ),
        )


@pytest.mark.conformance("TX44")
def test_tx44_where_there_is_nothing_to_describe(client: Connection) -> None:
    [found] = described(client, 0)
    assert (found.error_code, found.active_producers) == (0, ())
    assert [one.error_code for one in described(client, 1, 2, -1)] == [0, 3, 3]
    assert [one.error_code for one in described(client, 0, topic="absent")] == [3]
    assert [one.error_code for one in described(client, 0, topic="a/b")] == [17]


@pytest.mark.conformance("TX44")
def test_tx44_another_broker_leads() -> None:
    client = with_topic(2, brokers=2)
    assert sorted(one.error_code for one in described(client, 0, 1)) == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.conformance("TX44")
def test_tx44_many_producers_are_described_in_steps(client: Connection) -> None:
    for n in range(250):
        client.produced(produce_request("t", batch("x", producer_id=n, producer_epoch=0, base_sequence=0)))
    for each in (client, client.wire.restarted().connect()):
        [found] = described(each, 0)
        assert sorted(state.producer_id for state in found.active_producers) == list(range(250))


@pytest.mark.conformance("TX44")
def test_tx44_silent_producers_are_left_out(wire: Wire, client: Connection) -> None:
    client.produced(produce_request("t", batch("x", producer_id=5, producer_epoch=0, base_sequence=0)))
    wire.advance(86_400_000)
    for each in (client, wire.restarted().connect()):
        [found] = described(each, 0)
        assert found.active_producers == ()
