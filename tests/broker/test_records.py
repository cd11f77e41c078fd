"""Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, InitProducerId over the wire."""

from __future__ import annotations

from typing import Any

import pytest
from wire_driver import (
    START_MS,
    Connection,
    Wire,
    batch,
    delete_topics,
    fetch_request,
    produce_request,
    values_of,
    with_topic,
)

from kohort.broker.messages import changed
from kohort.broker.topics.catalog import JOURNAL_TOPIC, OFFSETS_TOPIC
from kohort.broker.turn import BrokerPresence, Frame, MovePartition, Send
from kohort.wire.batches import NewRecord, check_crc, decode_records, encode_batch, split_batches
from kohort.wire.codec import decode, encode_request
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PARTITIONS = 2


def fetched(client: Connection, version: int = 12, **options: Any) -> PartitionData:
    data: PartitionData = client.ask(fetch_request("t", **options), version).responses[0].partitions[0]
    return data


# -- Produce


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_produce_in_every_version(client: Connection, version: int, acks: int) -> None:
    assert client.produced(produce_request("t", batch("a", "b"), acks=acks), version).base_offset == 0
    assert client.produced(produce_request("t", batch("c"), acks=acks), version).base_offset == 2
    assert client.values("t") == [b"a", b"b", b"c"]


def test_produce_and_fetch_by_topic_id(client: Connection) -> None:
    topic_id = client.create_topic("by-id")
    data = TopicProduceData(topic_id=topic_id, partition_data=(PartitionProduceData(index=0, records=batch("a")),))
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=(data,))
    response = client.ask(request, 13)
    assert response.responses[0].topic_id == topic_id
    assert response.responses[0].partition_responses[0].error_code == 0
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    for version in (13, 15, 18):
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic_id=topic_id, partitions=(asked,)),))
        assert values_of(client.ask(fetch, version)) == [b"a"]
    absent = bytes(15) + b"\x09"
    fetch = FetchRequest(max_wait_ms=9999, min_bytes=1, topics=(FetchTopic(topic_id=absent, partitions=(asked,)),))
    assert client.ask(fetch, 13).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": "absent"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"topic": OFFSETS_TOPIC}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_produce_refusals(client: Connection, options: dict[str, Any], error: ErrorCode) -> None:
    result = client.produced(produce_request(**({"topic": "t", "data": batch("a")} | options)))
    assert (result.error_code, result.base_offset) == (error, -1)


def test_a_damaged_batch_is_refused_alone(client: Connection) -> None:
    damaged = bytearray(batch("hello"))
    damaged[-1] ^= 1
    data = TopicProduceData(
        name="t",
        partition_data=(
            PartitionProduceData(index=0, records=bytes(damaged)),
            PartitionProduceData(index=1, records=batch("whole")),
        ),
    )
    response = client.ask(ProduceRequest(acks=-1, timeout_ms=1, topic_data=(data,)), 9)
    errors = [result.error_code for result in response.responses[0].partition_responses]
    assert errors == [ErrorCode.CORRUPT_MESSAGE, 0]


def test_too_few_replicas_for_acks_all() -> None:
    client = with_topic(brokers=2, min_insync_replicas=2)
    assert client.produced(produce_request("t", batch("a"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.produced(produce_request("t", batch("a"), acks=1)).error_code == 0


def test_another_broker_names_the_leader() -> None:
    wire = Wire(brokers=3)
    first, second = wire.connect(1), wire.connect(2)
    first.create_topic("t", 3, 2)
    response = second.ask(produce_request("t", batch("a")), 10)
    refused = response.responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (1, 0)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(1, "127.0.0.1", 9092)]
    assert second.produced(produce_request("t", batch("a")), 9).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert second.produced(produce_request("t", batch("a"), partition=1)).error_code == 0
    assert second.listed(-1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert deleted(second, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_waiting_fetch_is_told_of_a_move() -> None:
    wire = Wire(brokers=2)
    client = wire.connect(1)
    client.create_topic("t", factor=2)
    client.send(fetch_request("t", max_wait_ms=60_000), 12)
    wire.step(MovePartition("t", 0, 2))
    data = client.take().responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 1)


def test_others_take_over_from_a_broker_that_goes_away() -> None:
    wire = Wire(brokers=3)
    client = wire.connect(2)
    client.create_topic("t", 3, 2)
    client.produce("t", "a", partition=1)
    client.send(fetch_request("t", partition=1, offset=1, max_wait_ms=60_000), 12)
    wire.step(BrokerPresence(2, present=False))
    assert client.take().responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    other = wire.connect(1)
    answer = other.ask(MetadataRequest(topics=None), 9)
    assert ([node.node_id for node in answer.brokers], answer.controller_id) == ([1, 3], 1)
    assert {part.leader_id for topic in answer.topics for part in topic.partitions} == {1, 3}
    [known] = [topic for topic in answer.topics if topic.name == "t"]
    assert [(part.leader_id, part.leader_epoch) for part in known.partitions] == [(1, 0), (3, 1), (3, 0)]
    assert {wire.coordinator(f"g{number}") for number in range(50)} == {1, 3}
    other.create_topic("u", 3)
    assert {part.leader_id for part in other.ask(MetadataRequest(topics=None), 9).topics[-1].partitions} == {1, 3}
    wire.step(BrokerPresence(1, present=False))
    assert wire.connect(3).ask(MetadataRequest(topics=None), 9).controller_id == 3
    for wrong in (BrokerPresence(3, present=False), BrokerPresence(9, present=False)):
        with pytest.raises(ValueError, match=r"broker 3|there is no broker 9"):
            wire.broker.step((wrong,), wire.now)


def test_a_broker_that_is_back_leads_nothing() -> None:
    wire = Wire(brokers=2)
    client = wire.connect(2)
    client.create_topic("t", 2)
    wire.step(BrokerPresence(1, present=False))
    wire.step(BrokerPresence(1, present=True))
    answer = client.ask(MetadataRequest(topics=None), 9)
    assert [node.node_id for node in answer.brokers] == [1, 2]
    assert {part.leader_id for topic in answer.topics for part in topic.partitions} == {2}


def test_moves_of_missing_partitions(wire: Wire) -> None:
    for move in (
        MovePartition("absent", 0, 1),
        MovePartition(OFFSETS_TOPIC, 99, 1),
        MovePartition(OFFSETS_TOPIC, 0, 7),
    ):
        with pytest.raises(ValueError, match="there is no"):
            wire.broker.step((move,), wire.now)


# -- InitProducerId


def test_producer_ids_are_never_reused(client: Connection, wire: Wire) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    given = [client.ask(request, version).producer_id for version in (0, 1, 2, 3, 4, 5)]
    again = wire.restarted()
    given += [again.connect().ask(request, 4).producer_id]
    more = wire.restarted().connect()
    given += [more.ask(request, 4).producer_id for _ in range(2500)]
    another = more.ask(changed(request, producer_id=given[0], producer_epoch=3), 4)
    assert (another.error_code, another.producer_epoch) == (0, 0), "a producer that has an id gets a new one"
    given.append(another.producer_id)
    assert len(set(given)) == len(given)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_init_producer_id_refusals(client: Connection, fields: dict[str, Any], error: ErrorCode) -> None:
    request = InitProducerIdRequest(**({"transactional_id": None, "transaction_timeout_ms": 1} | fields))
    response = client.ask(request, 4)
    assert (response.error_code, response.producer_id) == (error, -1)


def test_a_repeated_batch_is_answered_as_the_first_time_also_after_a_restart(client: Connection, wire: Wire) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    producer_id = client.ask(request, 4).producer_id

    def numbered(sequence: int, value: str) -> bytes:
        return batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    assert client.produced(produce_request("t", numbered(0, "a"))).base_offset == 0
    assert client.produced(produce_request("t", numbered(1, "b"))).base_offset == 1
    assert client.produced(produce_request("t", numbered(0, "a"))).base_offset == 0
    again = wire.restarted().connect()
    assert again.produced(produce_request("t", numbered(1, "b"))).base_offset == 1
    gap = again.produced(produce_request("t", numbered(3, "d")))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert again.produced(produce_request("t", numbered(2, "c"))).base_offset == 2
    assert again.values("t") == [b"a", b"b", b"c"]


# -- Fetch


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_in_every_version(client: Connection, version: int) -> None:
    client.produce("t", "a", "b")
    data = fetched(client, version)
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
    assert data.aborted_transactions is None
    committed = fetched(client, version, isolation_level=1)
    assert committed.aborted_transactions == ()
    assert fetched(client, version, offset=2).records == b""


def test_fetch_waits_for_data_and_gives_up_after_max_wait(wire: Wire, client: Connection) -> None:
    waiting, in_vain = wire.connect(), wire.connect()
    waiting.send(fetch_request("t", max_wait_ms=500), 11)
    in_vain.send(fetch_request("t", partition=1, max_wait_ms=500), 11)
    assert wire.broker.next_deadline() == wire.now + 500
    wire.advance(499)
    assert waiting.responses == in_vain.responses == []
    client.produce("t", "a")
    assert values_of(waiting.take()) == [b"a"]
    wire.advance(1)
    assert values_of(in_vain.take()) == []


def test_fetch_waits_for_min_bytes(wire: Wire, client: Connection) -> None:
    waiting = wire.connect()
    size = len(batch("a"))
    waiting.send(fetch_request("t", max_wait_ms=60_000, min_bytes=2 * size), 11)
    client.produce("t", "a")
    assert waiting.responses == []
    client.produce("t", "b", partition=1)
    assert waiting.responses == [], "that is another partition"
    client.produce("t", "c")
    assert values_of(waiting.take()) == [b"a", b"c"]


def test_fetch_sees_nothing_of_its_own_turn_and_all_of_it_in_the_next(wire: Wire, client: Connection) -> None:
    other = wire.connect()
    turn = wire.broker.step(
        (other.frame(produce_request("t", batch("a")), 9), client.frame(fetch_request("t", max_wait_ms=100), 11)),
        wire.now,
    )
    assert [release.connection for release in turn.releases] == [other.id], "the fetch waits for the commit"
    wire.end(turn)
    wire.step()
    assert values_of(client.take()) == [b"a"]


def test_fetch_of_nothing_or_unknown_places_answers_at_once(client: Connection) -> None:
    client.produce("t", "a", "b")
    for offset in (-1, 3, 10**15):
        data = fetched(client, offset=offset, max_wait_ms=10_000)
        assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert fetched(client, partition=9, max_wait_ms=10_000).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = client.ask(fetch_request("absent", max_wait_ms=10_000), 11)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for names in ((), ("t", "absent")):
        topics = tuple(FetchTopic(topic=name, partitions=()) for name in names)
        response = client.ask(FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=topics), 12)
        assert [topic.partitions for topic in response.responses] == [()] * len(names)


def test_large_batches_leave_as_they_were_read(wire: Wire, client: Connection) -> None:
    for index in range(2):
        client.produce("t", str(index) * 50_000)
    request = encode_request(fetch_request("t"), 12, 5, "client")[4:]
    (release,) = wire.broker.step([Frame(client.id, request)], wire.now).releases
    assert isinstance(release, Send)
    assert len(release.data) < 100
    assert [len(piece) > 50_000 for piece in release.rest] == [True, True, False]
    assert int.from_bytes(release.data[:4], "big") == len(release.whole) - 4
    response = decode(FetchResponse, 12, release.whole, 9)
    assert [len(value or b"") for value in values_of(response)] == [50_000, 50_000]


def test_fetch_obeys_its_limits_but_always_makes_progress(client: Connection) -> None:
    for index in range(4):
        client.produce("t", str(index) * 100)
        client.produce("t", str(index) * 100, partition=1)
    size = len(batch("x" * 100))

    def sizes(max_bytes: int, *partition_limits: int) -> list[int]:
        asked = tuple(
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=limit)
            for index, limit in enumerate(partition_limits)
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=(FetchTopic(topic="t", partitions=asked),)
        )
        partitions = client.ask(request, 11).responses[0].partitions
        return [len(partition.records) // size for partition in partitions]

    everything = 10**6
    assert sizes(everything, everything, everything) == [4, 4]
    assert sizes(everything, 2 * size, size) == [2, 1]
    assert sizes(everything, 1, 1) == [1, 0], "one batch whole, so that a consumer gets on"
    assert sizes(1, everything, everything) == [1, 0]
    assert sizes(5 * size, everything, everything) == [4, 1]
    assert sizes(0, 0, 0) == [1, 0]


def test_fetches_of_one_turn_share_a_limit() -> None:
    client = with_topic(fetch_turn_max_bytes=10_000)
    wire = client.wire
    client.create_topic("empty")
    for _ in range(10):
        client.produce("t", bytes(1_000))
    clients = [wire.connect() for _ in range(5)]
    waiting = wire.connect()
    request = fetch_request("t", max_wait_ms=10_000, min_bytes=8_000)
    frames = [each.frame(request, 11) for each in clients]
    wire.step(*frames, waiting.frame(fetch_request("empty", max_wait_ms=10_000), 11))
    found = [len(values_of(each.take())) for each in clients]
    assert found[0] == 9, "of 10, as 10,000 bytes hold no more"
    assert found[1:] == [1, 1, 1, 1], "a batch each, so that all get on"
    assert not waiting.responses, "it has nothing to get"
    assert len(values_of(clients[4].ask(request, 11))) == 9, "the next turn has a limit of its own"


def test_fetch_sessions_are_declined(client: Connection) -> None:
    client.produce("t", "a")
    for session in ({"session_id": 0, "session_epoch": 0}, {"session_id": 5, "session_epoch": -1}):
        response = client.ask(fetch_request("t", **session), 12)
        assert (response.error_code, response.session_id, values_of(response)) == (0, 0, [b"a"])
    response = client.ask(fetch_request("t", session_id=5, session_epoch=1), 12)
    assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())


def moved(*values: str) -> tuple[Connection, Connection]:
    """Connections to two brokers: the leader of `t` until it had these values, and the present one."""
    wire = Wire(brokers=2)
    first, second = wire.connect(1), wire.connect(2)
    first.create_topic("t", factor=2)
    first.produce("t", *values)
    wire.step(MovePartition("t", 0, 2))
    second.produce("t", "after the move")
    return first, second


def test_leader_epochs_in_fetch() -> None:
    first, second = moved("a")

    def at(client: Connection, epoch: int, last: int = -1, offset: int = 0) -> PartitionData:
        [topic] = fetch_request("t", offset).topics
        asked = changed(topic.partitions[0], current_leader_epoch=epoch, last_fetched_epoch=last)
        request = changed(fetch_request("t"), topics=(changed(topic, partitions=(asked,)),))
        data: PartitionData = client.ask(request, 12).responses[0].partitions[0]
        return data

    assert at(second, 1).error_code == 0
    stale = at(first, 0)
    assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (stale.current_leader.leader_id, stale.current_leader.leader_epoch) == (2, 1)
    assert at(second, 2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert at(first, 1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert at(first, -1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert at(second, 1, last=0, offset=1).diverging_epoch.epoch == -1
    diverging = at(second, 1, last=0, offset=2)
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 1)
    assert diverging.records == b""


# -- ListOffsets, OffsetForLeaderEpoch


def test_offsets_by_time(client: Connection) -> None:
    for timestamp in (100, 300, 200):
        client.ask(produce_request("t", batch("x", timestamp=START_MS + timestamp)), 9)
    assert (client.listed(-2).offset, client.listed(-1).offset) == (0, 3)
    latest = client.listed(-3)
    assert (latest.offset, latest.timestamp) == (1, START_MS + 300)
    found = client.listed(START_MS + 150)
    assert (found.offset, found.timestamp) == (1, START_MS + 300)
    assert client.listed(0).offset == 0
    nothing = client.listed(START_MS + 400)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)


@pytest.mark.parametrize("version", range(1, 12))
def test_earliest_and_latest_in_every_version(client: Connection, version: int) -> None:
    client.produce("t", "a")
    assert (client.listed(-2, version).offset, client.listed(-1, version).offset) == (0, 1)


def test_list_offsets_refusals(client: Connection) -> None:
    client.produce("t", "a")
    assert client.listed(-1, partition_index=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.listed(-1, current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(asked, asked)),))
    assert [found.error_code for found in client.ask(request, 7).topics[0].partitions] == [42]
    for timestamp, version in ((-3, 6), (-4, 7), (-7, 11)):
        assert client.listed(timestamp, version).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.listed(-4, 8).offset == 0
    assert (client.listed(-5, 9).error_code, client.listed(-5, 9).offset) == (0, -1)


def test_the_end_of_an_epoch() -> None:
    first, second = moved("a", "b")

    def end(client: Connection, epoch: int, current: int = -1, partition: int = 0) -> EpochEndOffset:
        asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic="t", partitions=(asked,)),))
        result: EpochEndOffset = client.ask(request, 4).topics[0].partitions[0]
        return result

    for connection in (second, second.wire.restarted().connect(2)):
        assert (end(connection, 0).leader_epoch, end(connection, 0).end_offset) == (0, 2)
        assert (end(connection, 1).leader_epoch, end(connection, 1).end_offset) == (1, 3)
        assert (end(connection, 5).leader_epoch, end(connection, 5).end_offset) == (-1, -1)
    assert end(first, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert end(second, 0, current=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert end(second, 0, partition=4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- DeleteRecords


def deleted(client: Connection, offset: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
    asked = (DeleteRecordsPartition(partition_index=partition, offset=offset),)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=asked),), timeout_ms=1)
    result = client.ask(request, 2).topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_records_are_deleted_up_to_an_offset(client: Connection, wire: Wire) -> None:
    for value in "abc":
        client.produce("t", value)
    assert deleted(client, 2) == (0, 2)
    assert fetched(client, offset=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.values("t", 2) == [b"c"]
    assert deleted(client, 1) == (0, 2), "never backwards"
    assert deleted(client, -1) == (0, 3)
    again = wire.restarted().connect()
    assert (again.listed(-2).offset, again.listed(-1).offset) == (3, 3)


def test_delete_records_refusals(client: Connection) -> None:
    client.produce("t", "a")
    assert deleted(client, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert deleted(client, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert deleted(client, 0, partition=5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert deleted(client, 0, OFFSETS_TOPIC) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert deleted(client, 0, JOURNAL_TOPIC) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


# -- one turn, several things


def test_deleting_a_topic_that_was_written_in_the_same_turn(wire: Wire, client: Connection) -> None:
    wire.step(
        client.frame(produce_request("t", batch("a")), 9),
        client.frame(delete_topics("t"), 5),
        client.frame(produce_request("t", batch("b")), 9),
    )
    errors = [client.take().responses[0].partition_responses[0].error_code, client.take().responses[0].error_code]
    assert errors == [0, 0]
    assert client.take().responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wire.restarted()


def test_a_compacted_topic_names_the_records_without_a_key_and_keeps_the_others() -> None:
    client = with_topic(log_cleanup_policy="compact")
    records = encode_batch([NewRecord(b"k" if n % 2 else None, b"v", START_MS) for n in range(4)])
    refused = client.produced(produce_request("t", records))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [0, 2]
    keyed = encode_batch([NewRecord(b"k", b"v", START_MS)])
    assert client.produced(produce_request("t", keyed)).error_code == 0
    assert deleted(client, 1) == (ErrorCode.POLICY_VIOLATION, -1)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topics_codec_is_the_one_that_batches_are_stored_with(codec: str) -> None:
    client = with_topic(compression_type=codec)
    records = [NewRecord(b"k%d" % n, b"v" * 50, START_MS, (("h", b"x"),)) for n in range(20)]
    for sent in range(5):
        assert client.produced(produce_request("t", encode_batch(records, compression=sent))).error_code == 0
    stored = split_batches(fetched(client).records or b"")
    assert len(stored) == 5
    for header, data in stored:
        assert header.compression == ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(codec)
        assert check_crc(data, header)
        kept = [(r.key, r.value, r.headers) for r in decode_records(data)]
        assert kept == [(r.key, r.value, r.headers) for r in records]
