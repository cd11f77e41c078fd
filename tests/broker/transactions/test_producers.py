"""The APIs of transactional producers, through the broker: FindCoordinator, InitProducerId, adding, EndTxn, Produce."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed
from transaction_driver import Transactional, described, found, log_of, shard_of, state_of
from wire_driver import Connection, Wire, batch, delete_topics, produce_request

from kohort.broker.handlers import produce
from kohort.broker.topics.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kohort.broker.turn import Unread
from kohort.coordinator.transactions.transaction import LAST_EPOCH, Place, State
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

FENCED, EPOCH, STATE, MAPPING = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
BUSY, ABORTABLE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.TRANSACTION_ABORTABLE


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def client(wire: Wire) -> Connection:
    client = wire.connect()
    client.create_topic("t", 3)
    return client


@pytest.fixture(params=[1, 2])
def producer(request: pytest.FixtureRequest, client: Connection) -> Transactional:
    """One of each transaction version, initialised."""
    producer = Transactional(client, version=request.param)
    assert producer.init() == 0
    return producer


@pytest.fixture
def newer(client: Connection) -> Transactional:
    producer = Transactional(client, version=2)
    assert producer.init() == 0
    return producer


@pytest.fixture
def older(client: Connection) -> Transactional:
    producer = Transactional(client, version=1)
    assert producer.init() == 0
    return producer


# -- the coordinator


@pytest.mark.conformance("TX1")
def test_the_topic_is_created_when_it_is_first_needed(wire: Wire, client: Connection) -> None:
    listed = [topic.name for topic in client.ask(MetadataRequest(topics=None), 9).topics]
    assert TRANSACTIONS_TOPIC not in listed
    assert client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1), 5).error_code == 16
    assert found(client) == 1
    [topic] = [t for t in client.ask(MetadataRequest(topics=None), 9).topics if t.name == TRANSACTIONS_TOPIC]
    assert (topic.is_internal, len(topic.partitions)) == (True, 50)
    assert found(client, "another") == 1
    assert len(wire.broker.state.transactions.shards) == 50


def test_its_partitions_are_a_setting_and_are_kept() -> None:
    wire = Wire(transaction_state_log_num_partitions=3)
    found(wire.connect())
    assert len(wire.broker.state.transactions.shards) == 3
    again = wire.restarted(transaction_state_log_num_partitions=7)
    assert len(again.broker.state.transactions.shards) == 3


@pytest.mark.conformance("TX1")
def test_a_strict_server_answers_with_15_while_it_creates_the_topic() -> None:
    client = Wire(compatibility="kafka").connect()
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=("x",))
    [first] = client.ask(request, 4).coordinators
    assert (first.error_code, first.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    [second] = client.ask(request, 4).coordinators
    assert (second.error_code, second.node_id) == (0, 1)


@pytest.mark.conformance("TX1", "TX17")
def test_other_brokers_are_not_the_coordinator() -> None:
    wire = Wire(brokers=3)
    brokers = {found(wire.connect(2), f"x-{index}") for index in range(20)}
    assert brokers == {1, 2, 3}
    right = found(wire.connect(1))
    wrong = wire.connect(right % 3 + 1)
    producer = Transactional(wrong)
    assert [producer.init(), producer.add_offsets(), producer.commit()] == [16, 16, 16]
    wrong.create_topic("t")
    assert producer.add("t") == 16
    assert described(wrong).error_code == 16
    assert Transactional(wire.connect(right)).init() == 0


@pytest.mark.parametrize(("level", "finalized"), [(2, 2), (1, 1), (0, None)])
def test_the_version_of_transactions_is_a_feature(level: int, finalized: int | None) -> None:
    client = Wire(transaction_version=level).connect()
    versions = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in versions.supported_features}
    assert supported["transaction.version"] == (0, 2)
    levels = {feature.name: feature.max_version_level for feature in versions.finalized_features}
    assert levels.get("transaction.version") == finalized


# -- InitProducerId


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x" * 8_001}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_000}, ErrorCode.NONE),
        ({"transactional_id": None, "transaction_timeout_ms": 0}, ErrorCode.NONE),
    ],
)
@pytest.mark.conformance("TX2", "TX4")
def test_tx4_what_init_refuses(client: Connection, fields: dict[str, Any], error: ErrorCode) -> None:
    found(client)
    request = InitProducerIdRequest(**({"transactional_id": "x", "transaction_timeout_ms": 1_000} | fields))
    assert client.ask(request, 5).error_code == error


@pytest.mark.conformance("TX5", "TX8")
def test_tx5_a_new_id_begins_at_epoch_0_and_the_next_init_fences_it(client: Connection) -> None:
    first = Transactional(client)
    assert first.init() == 0
    second = first.copy()
    assert second.init() == 0
    assert (first.epoch, second.epoch) == (0, 1)
    assert first.producer_id == second.producer_id
    assert (first.add(), first.commit()) == (FENCED, FENCED)
    assert (first.add(version=1), first.commit(version=1)) == (EPOCH, EPOCH), "as older clients know it"
    assert first.produce("late") == EPOCH
    assert first.init(again=True) == FENCED
    assert first.init(again=True, version=3) == EPOCH
    assert second.add() == 0


def test_ids_of_transactional_and_idempotent_producers_are_different(client: Connection) -> None:
    given = [
        client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 5).producer_id
        for _ in range(3)
    ]
    for name in ("x", "y"):
        producer = Transactional(client, name)
        producer.init()
        given.append(producer.producer_id)
    assert len(set(given)) == 5


@pytest.mark.conformance("TX9")
def test_tx9_init_aborts_the_open_transaction_and_is_answered_at_once(wire: Wire, producer: Transactional) -> None:
    producer.add()
    assert producer.produce("a") == 0
    other = producer.copy()
    assert other.init() == 0
    assert other.epoch == 2, "the fence took an epoch"
    assert log_of(wire) == ["a", f"ABORT {producer.producer_id}/1"]
    assert state_of(wire).state is State.EMPTY
    assert producer.produce("late") == EPOCH
    assert log_of(wire)[2:] == []
    [fenced] = [notice for notice in wire.notices if notice.what == "transaction fenced"]
    assert dict(fenced.values) == {
        "transactional_id": "x",
        "producer_id": producer.producer_id,
        "epoch": 1,
        "partitions": 1,
        "by_client_id": "client",
        "by_host": "/127.0.0.1",
    }


@pytest.mark.conformance("TX9")
def test_tx9_a_strict_server_lets_the_producer_ask_again() -> None:
    client = Wire(compatibility="kafka").connect()
    client.create_topic("t")
    found(client)
    producer = Transactional(client)
    assert producer.init() == 0
    producer.produce("a")
    assert producer.init() == BUSY
    assert producer.init() == 0
    assert producer.epoch == 2


@pytest.mark.conformance("TX9")
def test_tx9_a_zombie_does_not_abort_the_transaction_of_its_successor(wire: Wire, newer: Transactional) -> None:
    zombie = newer.copy()
    newer.init()
    newer.init()
    assert newer.produce("a") == 0
    assert zombie.init(again=True) == FENCED
    assert newer.commit() == 0
    assert log_of(wire)[-1].startswith("COMMIT")


@pytest.mark.conformance("TX10")
def test_tx10_the_last_epoch_is_followed_by_another_producer_id(wire: Wire, newer: Transactional) -> None:
    former = newer.producer_id
    at_epoch(wire, newer, LAST_EPOCH)
    zombie = newer.copy()
    assert newer.init() == 0
    assert (newer.producer_id != former, newer.epoch) == (True, 0)
    assert zombie.add() == MAPPING


def at_epoch(wire: Wire, producer: Transactional, epoch: int) -> None:
    """Let an id without a transaction be at this epoch."""
    shard = shard_of(wire, producer.name)
    shard.ids[producer.name] = changed(shard.ids[producer.name], epoch=epoch)
    producer.epoch = epoch


# -- adding partitions


@pytest.mark.conformance("TX11")
def test_tx11_a_partition_that_cannot_be_added_keeps_all_out(client: Connection, newer: Transactional) -> None:
    topics = (
        AddPartitionsToTxnTopic(name="t", partitions=(0, 3)),
        AddPartitionsToTxnTopic(name="none", partitions=(0,)),
        AddPartitionsToTxnTopic(name=OFFSETS_TOPIC, partitions=(0,)),
    )
    answer = client.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=newer.producer_id,
            v3_and_below_producer_epoch=newer.epoch,
            v3_and_below_topics=topics,
        ),
        3,
    )
    errors = [[p.partition_error_code for p in t.results_by_partition] for t in answer.results_by_topic_v3_and_below]
    assert errors == [[55, 3], [3], [29]]
    assert described(client).topics == ()


@pytest.mark.conformance("TX12")
def test_tx12_who_may_not_add(client: Connection, newer: Transactional) -> None:
    unknown = Transactional(client, "unknown")
    unknown.producer_id, unknown.epoch = newer.producer_id, newer.epoch
    assert (unknown.add(), unknown.add_offsets()) == (MAPPING, MAPPING)
    other = newer.copy()
    other.producer_id += 1
    assert (other.add(), other.add_offsets()) == (MAPPING, MAPPING)
    higher = newer.copy()
    higher.epoch += 1
    assert (higher.add(), higher.add_offsets()) == (FENCED, FENCED)
    assert (higher.add(version=1), higher.add_offsets(version=1)) == (EPOCH, EPOCH)


@pytest.mark.conformance("TX13")
def test_tx13_partitions_are_united_and_a_repetition_writes_nothing(
    wire: Wire, client: Connection, older: Transactional
) -> None:
    assert older.add("t", 1) == 0
    assert older.add("t", 0, 2) == 0
    before = [partition.end_offset for partition in wire.partitions(TRANSACTIONS_TOPIC)]
    assert older.add("t", 1, 0) == 0
    assert [partition.end_offset for partition in wire.partitions(TRANSACTIONS_TOPIC)] == before
    [topic] = described(client).topics
    assert (topic.topic, topic.partitions) == ("t", (0, 1, 2))


@pytest.mark.conformance("TX14", "TX15")
def test_tx14_tx15_brokers_ask_about_many_ids(client: Connection, newer: Transactional) -> None:
    second = Transactional(client, "y")
    second.init()

    def ask(*transactions: tuple[Transactional, bool, int]) -> list[int]:
        wanted = tuple(
            AddPartitionsToTxnTransaction(
                **producer.producer,
                verify_only=verify_only,
                topics=(AddPartitionsToTxnTopic(name="t", partitions=(partition,)),),
            )
            for producer, verify_only, partition in transactions
        )
        answer: AddPartitionsToTxnResponse = client.ask(AddPartitionsToTxnRequest(transactions=wanted), 5)
        assert [result.transactional_id for result in answer.results_by_transaction] == [
            producer.name for producer, _, _ in transactions
        ]
        return [
            partition.partition_error_code
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        ]

    assert ask((newer, True, 0), (second, False, 0)) == [ABORTABLE, 0]
    assert ask((second, True, 0), (second, True, 1)) == [0, ABORTABLE]
    assert ask((newer, False, 1), (newer, True, 1)) == [0, 0]
    newer.epoch += 1
    assert ask((newer, True, 1)) == [FENCED]
    newer.producer_id += 100
    assert ask((newer, True, 1)) == [MAPPING]


def test_a_transaction_has_a_limit_of_partitions() -> None:
    client = Wire().connect()
    for name in ("t", "u", "v"):
        client.create_topic(name, 5_000)
    producer = Transactional(client)
    producer.init()
    assert producer.add("t", *range(5_000)) == 0
    assert producer.add("u", *range(4_999)) == 0
    assert producer.add("v", 0, 1) == ErrorCode.INVALID_REQUEST
    assert producer.add("v", 0) == 0
    assert producer.add("v", 1) == ErrorCode.INVALID_REQUEST


@pytest.mark.conformance("TX16")
def test_tx16_the_offsets_of_a_group_are_a_partition_of_the_transaction(
    wire: Wire, client: Connection, older: Transactional
) -> None:
    assert older.add_offsets("no such group") == 0
    assert older.add_offsets("") == 0
    expected = sorted({wire.broker.state.shard_of(group) for group in ("no such group", "")})
    [topic] = described(client).topics
    assert (topic.topic, list(topic.partitions)) == (OFFSETS_TOPIC, expected)
    assert older.commit() == 0
    for index in expected:
        assert log_of(wire, OFFSETS_TOPIC, index)[-1] == f"COMMIT {older.producer_id}/0"


# -- ending


@pytest.mark.conformance("TX17")
def test_tx17_who_may_not_end(client: Connection, producer: Transactional) -> None:
    other = producer.copy()
    other.name = ""
    assert other.commit() == ErrorCode.INVALID_REQUEST
    other.name = "none"
    assert other.commit() == MAPPING
    other.name, other.epoch = "x", producer.epoch + 7
    assert other.commit() == FENCED
    assert other.commit(version=1) == EPOCH
    other.producer_id += 1
    assert other.commit() == MAPPING


@pytest.mark.conformance("TX18")
def test_tx18_ends_without_new_epochs(wire: Wire, older: Transactional) -> None:
    assert (older.commit(), older.abort()) == (STATE, STATE), "nothing to end"
    older.add("t", 0, 1)
    older.produce("a")
    assert older.commit() == 0
    assert (older.commit(), older.abort()) == (0, STATE)
    older.add("t", 1)
    assert older.abort() == 0
    assert (older.commit(), older.abort()) == (STATE, 0)
    assert older.epoch == 0
    assert log_of(wire) == ["a", f"COMMIT {older.producer_id}/0"]
    assert log_of(wire, partition=1) == [f"COMMIT {older.producer_id}/0", f"ABORT {older.producer_id}/0"]


@pytest.mark.conformance("TX19", "TX20")
def test_tx19_tx20_ends_with_new_epochs(wire: Wire, client: Connection, newer: Transactional) -> None:
    producer_id = newer.producer_id
    assert newer.produce("a") == 0
    lost = newer.copy()
    assert newer.commit() == 0
    assert newer.epoch == 1
    answer = client.ask(EndTxnRequest(**lost.producer, committed=True), 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer_id, 1), "the answer was lost"
    assert lost.abort() == STATE
    assert newer.produce("b") == 0
    assert newer.abort() == 0
    assert log_of(wire) == ["a", f"COMMIT {producer_id}/1", "b", f"ABORT {producer_id}/2"]
    assert lost.produce("late") == EPOCH
    assert newer.produce("c") == 0
    assert log_of(wire)[4:] == ["c"]


@pytest.mark.conformance("TX21")
def test_tx21_a_commit_that_lost_to_a_time_out(wire: Wire, newer: Transactional) -> None:
    newer.produce("a")
    wire.advance(60_001)
    assert log_of(wire) == ["a", f"ABORT {newer.producer_id}/1"]
    [notice] = [notice for notice in wire.notices if notice.what == "transaction timed out"]
    assert dict(notice.values)["transactional_id"] == "x"
    assert newer.commit() == FENCED
    assert newer.produce("b") == EPOCH
    assert newer.abort() == 0
    assert newer.epoch == 1
    assert newer.produce("b") == 0


@pytest.mark.conformance("TX7")
def test_tx7_a_producer_goes_on_after_a_time_out(wire: Wire, newer: Transactional) -> None:
    newer.produce("a")
    wire.advance(60_001)
    assert newer.init(again=True) == 0
    assert newer.epoch == 1
    assert newer.produce("b") == 0


@pytest.mark.conformance("TX22")
def test_tx22_ends_of_nothing(newer: Transactional) -> None:
    assert newer.commit() == STATE
    assert newer.abort() == 0
    assert newer.epoch == 1
    newer.produce("a")
    newer.commit()
    assert newer.abort() == 0
    assert newer.epoch == 3


@pytest.mark.conformance("TX23")
def test_tx23_the_epoch_overflows_at_an_end(wire: Wire, newer: Transactional) -> None:
    former = newer.producer_id
    at_epoch(wire, newer, LAST_EPOCH)
    assert newer.produce("a") == 0
    zombie = newer.copy()
    assert newer.commit() == 0
    assert (newer.producer_id != former, newer.epoch) == (True, 0)
    assert log_of(wire) == ["a", f"COMMIT {former}/{LAST_EPOCH + 1}"]
    assert zombie.produce("late") == EPOCH
    assert zombie.add() == MAPPING
    answer = newer.client.ask(EndTxnRequest(**zombie.producer, committed=True), 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, newer.producer_id, 0)
    assert newer.produce("b") == 0


@pytest.mark.conformance("TX18")
def test_a_delayed_end_from_an_older_connection_ends_no_later_transaction(wire: Wire, client: Connection) -> None:
    """Failure 1 of the sheet: without new epochs, a copy of EndTxn could end the next transaction."""
    slow = Transactional(client, version=1)
    slow.init()
    slow.add()
    quick = slow.copy()
    assert quick.commit() == 0, "an end on a newer connection"
    assert quick.add() == 0
    assert slow.commit() == FENCED
    assert state_of(wire).state is State.ONGOING
    assert quick.commit() == 0


# -- Produce


@pytest.mark.conformance("TX24")
def test_tx24_a_transactional_batch_needs_an_id(client: Connection, newer: Transactional) -> None:
    data = batch("a", producer_id=newer.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert client.produced(produce_request("t", data), 12).error_code == 53
    mixed = produce_request("t", data)
    mixed = changed(
        mixed,
        topic_data=(
            TopicProduceData(
                name="t",
                partition_data=(
                    PartitionProduceData(index=0, records=batch("plain")),
                    PartitionProduceData(index=1, records=data),
                ),
            ),
        ),
    )
    [topic] = client.ask(mixed, 12).responses
    assert [partition.error_code for partition in topic.partition_responses] == [53, 53]


def of_partitions(batches: dict[int, bytes]) -> ProduceRequest:
    partitions = tuple(PartitionProduceData(index=index, records=data) for index, data in batches.items())
    topics = (TopicProduceData(name="t", partition_data=partitions),)
    return changed(produce_request("t", b""), transactional_id="x", topic_data=topics)


def to_partitions(client: Connection, batches: dict[int, bytes]) -> list[int]:
    """Send a batch to each of these partitions with one request. Returns the errors."""
    return errors_of(client.ask(of_partitions(batches), 12))


def errors_of(response: ProduceResponse) -> list[int]:
    [topic] = response.responses
    return [partition.error_code for partition in topic.partition_responses]


def of(producer: Transactional, *, sequence: int = 0, epoch: int = 0) -> bytes:
    return batch(
        "a", producer_id=producer.producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )


@pytest.mark.conformance("TX24")
def test_tx24_one_producer_a_request(wire: Wire, client: Connection, newer: Transactional) -> None:
    assert to_partitions(client, {epoch: of(newer, epoch=epoch) for epoch in (0, 1)}) == [MAPPING, MAPPING]
    assert log_of(wire) == []


@pytest.mark.parametrize(("version", "error"), [(9, STATE), (10, STATE), (11, ABORTABLE), (12, 0)])
@pytest.mark.conformance("TX25")
def test_tx25_a_partition_that_was_not_added(wire: Wire, newer: Transactional, version: int, error: int) -> None:
    assert newer.produce("a", version=version) == error
    assert log_of(wire) == ([] if error else ["a"])


@pytest.mark.conformance("TX25")
def test_tx25_verification_can_be_turned_off() -> None:
    client = Wire(transaction_partition_verification_enable=False).connect()
    client.create_topic("t")
    producer = Transactional(client, version=1)
    producer.init()
    assert producer.produce("a") == 0


@pytest.mark.conformance("TX25")
def test_tx25_the_codes_of_the_coordinator(client: Connection, older: Transactional) -> None:
    other = older.copy()
    other.producer_id += 1
    assert other.produce("a") == MAPPING
    other = older.copy()
    other.epoch += 1
    assert other.produce("a") == EPOCH
    stranger = older.copy()
    stranger.name = "stranger"
    assert stranger.produce("a") == MAPPING


@pytest.mark.conformance("TX25")
def test_tx25_a_request_adds_all_its_partitions(wire: Wire, client: Connection, newer: Transactional) -> None:
    assert to_partitions(client, dict.fromkeys(range(3), of(newer))) == [0, 0, 0]
    assert state_of(wire).places == {Place("t", index) for index in range(3)}


@pytest.mark.conformance("TX25")
def test_tx25_a_request_of_several_turns_asks_again_in_each(
    wire: Wire, client: Connection, newer: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction ends in between, and the topic is made anew, without producers: records that come later would
    begin a transaction that nobody ends."""
    monkeypatch.setattr(produce, "STEP", 1)
    other = newer.copy().client
    polls = iter((False, False))
    frame = client.frame(of_partitions(dict.fromkeys(range(3), of(newer))), 12)
    wire.end(wire.broker.step([frame], wire.now, lambda: next(polls, True)))
    assert wire.broker.busy, "the request is under way"
    again = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    wire.step(
        Unread(client.id, unread=True),
        other.frame(EndTxnRequest(**newer.producer, committed=True), 5),
        other.frame(delete_topics("t"), 5),
        other.frame(CreateTopicsRequest(topics=(again,), timeout_ms=1), 7),
    )
    wire.step(Unread(client.id, unread=False))
    assert other.take().error_code == 0
    assert errors_of(client.take())[-1] == EPOCH
    assert [log_of(wire, partition=index) for index in range(3)] == [[], [], []]
    assert all(partition.first_open() is None for partition in wire.partitions("t"))


@pytest.mark.conformance("TX26")
def test_tx26_a_new_transaction_begins_with_sequence_0(newer: Transactional) -> None:
    assert newer.produced("a", sequence=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert newer.produced("a", sequence=0).error_code == 0


@pytest.mark.conformance("TX26")
def test_tx26_a_partition_that_knows_a_newer_epoch_is_not_added(wire: Wire, client: Connection) -> None:
    newer = Transactional(client, version=2)
    newer.init()
    zombie = newer.copy()
    newer.init()
    newer.produce("a")
    newer.commit()
    assert to_partitions(client, dict.fromkeys(range(2), of(zombie))) == [EPOCH, EPOCH]
    data = batch("plain", producer_id=newer.producer_id, producer_epoch=newer.epoch + 1, base_sequence=0)
    assert client.produced(produce_request("t", data)).error_code == 0
    assert to_partitions(client, {0: of(newer, epoch=newer.epoch)}) == [EPOCH]
    assert state_of(wire).state is State.COMPLETE_COMMIT, "nothing began"


@pytest.mark.conformance("TX26")
def test_tx26_older_clients_may_begin_with_any(older: Transactional) -> None:
    older.add()
    assert older.produced("a", sequence=5).error_code == 0


@pytest.mark.conformance("TX27")
def test_tx27_plain_batches_in_the_middle_of_a_transaction(client: Connection, newer: Transactional) -> None:
    newer.produce("a")
    data = batch("b", producer_id=newer.producer_id, producer_epoch=0, base_sequence=1)
    request = changed(produce_request("t", data), transactional_id="x")
    assert client.produced(request, 12).error_code == STATE


@pytest.mark.conformance("TX28")
def test_tx28_a_partition_with_records_of_the_transaction_needs_no_question(wire: Wire, newer: Transactional) -> None:
    newer.produce("a")
    del shard_of(wire).ids["x"]
    assert newer.produce("b") == 0
    assert newer.produce("c", partition=1) == MAPPING


@pytest.mark.conformance("TX29")
def test_tx29_plain_batches_with_a_transactional_id(client: Connection) -> None:
    request = changed(produce_request("t", batch("plain")), transactional_id="x")
    assert client.produced(request, 12).error_code == 0


@pytest.mark.conformance("TX30")
def test_tx30_sequences_go_on_over_commits_without_new_epochs(wire: Wire, older: Transactional) -> None:
    for value in "ab":
        older.add()
        assert older.produce(value) == 0
        assert older.commit() == 0
    commit = f"COMMIT {older.producer_id}/0"
    assert log_of(wire) == ["a", commit, "b", commit]
    assert older.sequences["t", 0] == 2


@pytest.mark.conformance("TX31")
def test_tx31_errors_are_per_partition(client: Connection, newer: Transactional) -> None:
    batches = {index: of(newer, sequence=index % 2) for index in (0, 1, 2, 9)}
    assert to_partitions(client, batches) == [0, 45, 0, 3]


@pytest.mark.conformance("TX6")
def test_ids_are_forgotten_when_nobody_uses_them() -> None:
    wire = Wire(transactional_id_expiration_ms=100_000)
    client = wire.connect()
    producer = Transactional(client)
    producer.init()
    former = producer.producer_id
    wire.advance(100_001)
    assert described(client).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert producer.add_offsets() == MAPPING
    assert producer.init(again=True) == 0
    assert (producer.producer_id != former, producer.epoch) == (True, 0)
