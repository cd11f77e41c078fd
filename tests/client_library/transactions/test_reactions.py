"""What the transactional writer does after error codes and lost answers, with a broker that gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scripted_broker import CLOSE, ScriptedBroker, in_turn, topic

from kohort.client.admin.groups import Committed
from kohort.client.errors import ConnectionFailed, KafkaError, Misuse, ServerError
from kohort.client.transactions import (
    MustAbort,
    Outcome,
    Prepared,
    ProducerFailed,
    ProducerFenced,
    TransactionalWriter,
    end_prepared,
)
from kohort.client.transactions.writer import WRITTEN_BEFORE
from kohort.client.wire.routing import Router, Timing
from kohort.wire.batches import NewRecord, read_header
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kohort.wire.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kohort.wire.schemas.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from kohort.wire.schemas.end_txn import EndTxnRequest, EndTxnResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

PLACE = ("t", 0)
BATCH = {PLACE: [NewRecord(None, b"x", 1), NewRecord(None, b"y", 1)]}
TIMING = Timing(request=2_000, api=400, backoff=1, backoff_max=5)


def initialised(epoch: int = 0, error: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=7, producer_epoch=epoch)


def added(*errors: int) -> AddPartitionsToTxnResponse:
    rows = tuple(
        AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=e) for n, e in enumerate(errors)
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=(AddPartitionsToTxnTopicResult(name="t", results_by_partition=rows),)
    )


def produced(error: int = 0) -> ProduceResponse:
    row = PartitionProduceResponse(index=0, error_code=error, base_offset=5)
    return ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(row,)),))


def offsets(error: int = 0) -> TxnOffsetCommitResponse:
    row = TxnOffsetCommitResponsePartition(partition_index=0, error_code=error)
    return TxnOffsetCommitResponse(topics=(TxnOffsetCommitResponseTopic(name="t", partitions=(row,)),))


def ended(error: int = 0, epoch: int = -1) -> EndTxnResponse:
    return EndTxnResponse(error_code=error, producer_id=7 if epoch >= 0 else -1, producer_epoch=epoch)


def versions(level: int) -> Callable[..., ApiVersionsResponse]:
    """Apache Kafka 4.3's, with this level of transaction.version."""
    served = {0: 13, 3: 13, 10: 6, 18: 4, 22: 5, 24: 5, 25: 4, 26: 5, 28: 5}
    rows = tuple(
        ApiVersion(api_key=key, min_version=3 if key == 0 else 0, max_version=last) for key, last in served.items()
    )
    features = (FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=0),)
    return lambda *_: ApiVersionsResponse(
        error_code=0, api_keys=rows, finalized_features_epoch=1, finalized_features=features
    )


@contextmanager
def writing(level: int = 0, **script: Any) -> Iterator[tuple[TransactionalWriter, ScriptedBroker]]:
    """A writer at a broker with these answers, by the names of requests."""
    answers: dict[type, Any] = {
        ApiVersionsRequest: versions(level),
        InitProducerIdRequest: initialised(),
        AddPartitionsToTxnRequest: added(0),
        AddOffsetsToTxnRequest: AddOffsetsToTxnResponse(error_code=0),
        ProduceRequest: produced(),
        TxnOffsetCommitRequest: offsets(),
        EndTxnRequest: ended(),
    }
    names = {"init": InitProducerIdRequest, "add": AddPartitionsToTxnRequest, "group": AddOffsetsToTxnRequest}
    names |= {"produce": ProduceRequest, "offsets": TxnOffsetCommitRequest, "end": EndTxnRequest}
    answers |= {names[name]: answer for name, answer in script.items()}
    with ScriptedBroker(answers, topic("t")) as broker:
        router = Router(broker.address, "writer", TIMING)
        try:
            yield TransactionalWriter(router, "id"), broker
        finally:
            router.close()


def used_versions(broker: ScriptedBroker, request_class: type) -> list[int]:
    pairs = zip(broker.requests, broker.request_versions, strict=True)
    return [version for request, version in pairs if isinstance(request, request_class)]


def sent(broker: ScriptedBroker) -> list[tuple[int, int, int]]:
    """Epoch, base sequence and number of records of each batch."""
    headers = [read_header(request.topic_data[0].partition_data[0].records) for request in broker.seen(ProduceRequest)]
    return [(header.producer_epoch, header.base_sequence, header.record_count) for header in headers]


@pytest.mark.parametrize(("level", "expected"), [(0, (11, 4, 4)), (1, (11, 4, 4)), (2, (12, 5, 5)), (3, (12, 5, 5))])
def test_versions_follow_the_level_of_the_cluster(level: int, expected: tuple[int, int, int]) -> None:
    with writing(level, end=ended(epoch=1)) as (writer, broker):
        writer.begin()
        writer.produce(BATCH)
        writer.send_offsets("g", {PLACE: Committed(1)})
        writer.commit()
    found = [used_versions(broker, cls) for cls in (ProduceRequest, EndTxnRequest, TxnOffsetCommitRequest)]
    assert found == [[version] for version in expected]
    additions = [broker.seen(cls) for cls in (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest)]
    assert [len(requests) for requests in additions] == ([0, 0] if level >= 2 else [1, 1])


def test_sequences_go_on_in_an_epoch() -> None:
    with writing() as (writer, broker):
        for _ in range(2):
            writer.begin()
            writer.produce(BATCH)
            writer.produce(BATCH)
            writer.commit()
    assert sent(broker) == [(0, 0, 2), (0, 2, 2), (0, 4, 2), (0, 6, 2)]
    assert len(broker.seen(AddPartitionsToTxnRequest)) == 2


def test_sequences_begin_anew_with_an_epoch() -> None:
    with writing(2, end=in_turn(ended(epoch=1), ended(epoch=2))) as (writer, broker):
        for _ in range(3):
            writer.begin()
            writer.produce(BATCH)
            writer.produce(BATCH)
            writer.commit()
    assert sent(broker) == [(e, s, 2) for e in (0, 1, 2) for s in (0, 2)]


def test_an_epoch_for_each_transaction() -> None:
    with writing(init=in_turn(initialised(3), initialised(4))) as (writer, broker):
        writer._own_epochs = True
        for _ in range(2):
            writer.begin()
            writer.produce(BATCH)
            writer.commit()
    assert sent(broker) == [(3, 0, 2), (4, 0, 2)]


@pytest.mark.parametrize("epoch", [32_765, 32_766])
def test_no_transaction_begins_at_the_last_epoch(epoch: int) -> None:
    with writing(2, init=in_turn(initialised(epoch), initialised(0))) as (writer, broker):
        writer.init()
        writer.begin()
        writer.produce(BATCH)
    assert sent(broker)[0][0] == (epoch if epoch == 32_765 else 0)


def test_a_lost_answer_is_sent_again_with_the_same_sequence() -> None:
    with writing(produce=in_turn(CLOSE, produced(6), produced(46))) as (writer, broker):
        writer.begin()
        assert writer.produce(BATCH) == {PLACE: WRITTEN_BEFORE}
        writer.produce(BATCH)
    assert sent(broker) == [(0, 0, 2), (0, 0, 2), (0, 0, 2), (0, 2, 2)]


RETRIED = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("code", RETRIED)
def test_the_coordinator_is_asked_again(code: int) -> None:
    with writing(
        init=in_turn(initialised(error=code), initialised()),
        add=in_turn(added(code), added(0)),
        group=in_turn(AddOffsetsToTxnResponse(error_code=code), AddOffsetsToTxnResponse(error_code=0)),
        offsets=in_turn(offsets(code), offsets()),
        end=in_turn(ended(code), ended()),
    ) as (writer, broker):
        writer.begin()
        writer.produce(BATCH)
        writer.send_offsets("g", {PLACE: Committed(1)})
        writer.commit()
    for cls in (InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest):
        assert len(broker.seen(cls)) == 2
    assert len(broker.seen(EndTxnRequest)) == 2


def step(name: str, code: int) -> tuple[Any, Callable[[TransactionalWriter], Any]]:
    """An answer with this code, and the call that gets it."""
    commit_offsets: Any = lambda writer: writer.send_offsets("g", {PLACE: Committed(1)})  # noqa: E731
    return {
        "add": (added(code), lambda writer: writer.produce(BATCH)),
        "group": (AddOffsetsToTxnResponse(error_code=code), commit_offsets),
        "produce": (produced(code), lambda writer: writer.produce(BATCH)),
        "offsets": (offsets(code), commit_offsets),
    }[name]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *(("add", code) for code in (29, 55, 59, 120, 14)),
        *(("group", code) for code in (30, 59, 120)),
        *(("produce", code) for code in (10, 29, 45, 47, 48, 59, 87, 120, 6)),
        *(("offsets", code) for code in (12, 22, 25, 30, 69, 82, 113, 120)),
    ],
)
def test_the_transaction_is_aborted_and_the_writer_goes_on(name: str, code: int) -> None:
    """14 and 6 are retried until the time is up."""
    answer, call = step(name, code)
    good, _ = step(name, 0)
    with writing(**{name: answer}) as (writer, broker):
        writer.begin()
        with pytest.raises(MustAbort) as raised:
            call(writer)
        assert raised.value.code == code
        with pytest.raises(Misuse, match="must be aborted"):
            writer.commit()
        writer.abort()
        broker.script[NAMES[name]] = good
        writer.begin()
        call(writer)
        writer.commit()
    assert len(broker.seen(InitProducerIdRequest)) == 2  # a sequence may be used or not


NAMES = {
    "add": AddPartitionsToTxnRequest,
    "group": AddOffsetsToTxnRequest,
    "produce": ProduceRequest,
    "offsets": TxnOffsetCommitRequest,
}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *(("add", code) for code in (47, 90, 48, 49, 53)),
        *(("group", code) for code in (47, 90, 48, 49, 53)),
        *(("produce", code) for code in (31, 49, 53, 90)),
        *(("offsets", code) for code in (47, 90, 49, 53)),
    ],
)
def test_the_writer_has_failed(name: str, code: int) -> None:
    answer, call = step(name, code)
    with writing(**{name: answer}) as (writer, _):
        writer.begin()
        with pytest.raises(ProducerFenced if code in (47, 90) else ProducerFailed) as raised:
            call(writer)
        assert raised.value.code == code
        for go_on in (writer.commit, writer.abort, writer.begin):
            with pytest.raises(Misuse, match="the producer has failed"):
                go_on()


@pytest.mark.parametrize("code", [47, 48, 49, 53, 90])
def test_a_commit_is_refused(code: int) -> None:
    with writing(end=ended(code)) as (writer, _):
        writer.begin()
        writer.produce(BATCH)
        with pytest.raises(ProducerFenced if code in (47, 90) else ProducerFailed):
            writer.commit()


def test_an_unanswered_commit_is_repeated() -> None:
    with writing(end=in_turn(*[CLOSE] * 100)) as (writer, broker):
        writer.begin()
        writer.produce(BATCH)
        with pytest.raises(ConnectionFailed):
            writer.commit()
        for other in (writer.abort, writer.begin):
            with pytest.raises(Misuse, match="outcome of a commit is unknown"):
                other()
        with pytest.raises(Misuse, match="InitProducerId may abort it"):
            writer.init()
        assert writer.prepared() == Prepared("id", 7, 0, 1)
        broker.script[EndTxnRequest] = ended()
        writer.commit()
        writer.begin()


@pytest.mark.parametrize("level", [0, 2])
def test_an_abort_of_a_transaction_that_nobody_knows(level: int) -> None:
    """The first request of the transaction was refused, so the coordinator may have nothing to abort."""
    with writing(level, add=added(29), produce=produced(29), end=ended(48)) as (writer, broker):
        writer.begin()
        with pytest.raises(MustAbort):
            writer.produce(BATCH)
        writer.abort()
        writer.begin()
    assert len(broker.seen(InitProducerIdRequest)) == 2


def test_one_bad_partition_is_named() -> None:
    """The others are answered with OPERATION_NOT_ATTEMPTED."""
    two = {PLACE: BATCH[PLACE], ("t", 1): BATCH[PLACE]}
    with writing(add=added(55, 29)) as (writer, _):
        writer.begin()
        with pytest.raises(MustAbort, match="partition t-1: TOPIC_AUTHORIZATION_FAILED"):
            writer.produce(two)


PREPARED = Prepared("id", 7, 3, 1)


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, Outcome.DONE),
        (47, Outcome.OTHERWISE),
        (48, Outcome.OTHERWISE),
        (90, Outcome.OTHERWISE),
        (49, Outcome.FORGOTTEN),
    ],
)
def test_outcomes_of_a_prepared_transaction(protocol: int, code: int, outcome: Outcome) -> None:
    with writing(2, end=in_turn(ended(51), ended(-1), ended(14), CLOSE, ended(code))) as (writer, broker):
        assert end_prepared(writer._router, Prepared("id", 7, 3, protocol)) is outcome
    assert used_versions(broker, EndTxnRequest) == [4 if protocol == 1 else 5] * 5
    assert {
        (request.producer_id, request.producer_epoch, request.committed) for request in broker.seen(EndTxnRequest)
    } == {(7, 3, True)}
    assert broker.seen(InitProducerIdRequest) == []


def test_a_prepared_transaction_without_authorization() -> None:
    with writing(end=ended(53)) as (writer, _), pytest.raises(ServerError) as raised:
        end_prepared(writer._router, PREPARED)
    assert raised.value.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("code", [-1, 51])
def test_a_prepared_transaction_whose_outcome_stays_unknown(code: int) -> None:
    with writing(end=ended(code)) as (writer, broker), pytest.raises(KafkaError) as raised:
        end_prepared(writer._router, PREPARED)
    assert raised.value.code == code
    assert len(broker.seen(EndTxnRequest)) >= 5
