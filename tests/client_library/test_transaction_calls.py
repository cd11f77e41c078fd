"""An operator's calls about transactions, against a scripted broker: what is sent, what is retried, what hangs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted_broker import ScriptedBroker, in_turn, topic
from transaction_broker import Producer, Transaction, TransactionBroker

from kohort.client.admin.open_transactions import PARTITIONS_A_REQUEST, ActiveProducer, OpenTransaction
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError, UnsupportedVersion
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_producers import DescribeProducersRequest
from kohort.wire.schemas.describe_transactions import DescribeTransactionsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.schemas.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.write_txn_markers import WriteTxnMarkersRequest

HANGING = Producer(900, start=120)


@pytest.fixture
def broker() -> Iterator[TransactionBroker]:
    with TransactionBroker(topic("orders", 1, 1)) as running:
        yield running


@pytest.fixture
def cluster(broker: TransactionBroker) -> Iterator[Cluster]:
    with Cluster(broker.address, api_timeout_ms=2_000, retry_backoff_ms=1) as client:
        yield client


def listing(*names: str, error: int = 0) -> ListTransactionsResponse:
    rows = (TransactionState(transactional_id=name, producer_id=1, transaction_state="Ongoing") for name in names)
    return ListTransactionsResponse(error_code=error, unknown_state_filters=(), transaction_states=tuple(rows))


def test_a_list_is_that_of_all_brokers() -> None:
    loading = in_turn(listing(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), listing("b", "c"))
    with (
        ScriptedBroker({ListTransactionsRequest: loading}) as second,
        ScriptedBroker({ListTransactionsRequest: listing("d", "a")}) as first,
    ):
        first.script[MetadataRequest] = first.metadata(others=(second,))
        with Cluster(first.address, retry_backoff_ms=1) as cluster:
            found = cluster.list_transactions(["Ongoing"], [4, 5], longer_than_ms=10, pattern="b.*")
        assert [(one.transactional_id, one.coordinator) for one in found] == [("a", 1), ("b", 2), ("c", 2), ("d", 1)]
        (request,) = first.seen(ListTransactionsRequest)  # and not again, while the other broker loads
        assert len(second.seen(ListTransactionsRequest)) == 2
    assert (request.state_filters, request.producer_id_filters) == (("Ongoing",), (4, 5))
    assert (request.duration_filter, request.transactional_id_pattern) == (10, "b.*")


@pytest.mark.parametrize(
    ("version", "filters", "told"),
    [(0, {"longer_than_ms": 10}, "duration"), (1, {"pattern": "a.*"}, "pattern")],
    ids=["duration", "pattern"],
)
def test_a_filter_that_the_broker_would_ignore_is_refused(version: int, filters: dict[str, Any], told: str) -> None:
    """The request's version has no such field; without it the answer would be the list of all."""
    with (
        ScriptedBroker(
            {ListTransactionsRequest: listing("a")}, versions={ListTransactionsRequest: (0, version)}
        ) as one,
        Cluster(one.address) as cluster,
    ):
        assert [found.transactional_id for found in cluster.list_transactions()] == ["a"]
        with pytest.raises(UnsupportedVersion, match=f"cannot filter transactions by {told}"):
            cluster.list_transactions(**filters)


def test_a_description(cluster: Cluster, broker: TransactionBroker) -> None:
    broker.transactions["payments"] = Transaction(900, partitions=(("orders", 1), ("orders", 0)))
    broker.transactions["idle"] = Transaction(901, "Empty", started_ms=-1)
    found = cluster.describe_transactions(["payments", "nobody", "idle", "payments"])
    assert list(found) == ["payments", "idle"]
    assert found["payments"].partitions == (("orders", 0), ("orders", 1))
    assert (found["payments"].open, found["payments"].started_ms, found["payments"].coordinator) == (True, 1_000, 1)
    assert (found["idle"].open, found["idle"].started_ms) == (False, None)
    assert all(request.key_type == 1 for request in broker.seen(FindCoordinatorRequest))
    broker.errors[DescribeTransactionsRequest] = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with pytest.raises(ServerError, match="payments"):
        cluster.describe_transactions(["payments"])


def test_the_producers_of_partitions(cluster: Cluster, broker: TransactionBroker) -> None:
    broker.producers["orders", 0] = [Producer(901, epoch=3, coordinator_epoch=-1, last_sequence=-1), HANGING]
    found = cluster.describe_producers([("orders", 0), ("orders", 1)])
    assert found["orders", 0] == (
        ActiveProducer(900, 2, 0, 1_000, 7, 120),
        ActiveProducer(901, 3, -1, 1_000, -1, None),
    )
    assert found["orders", 1] == ()


def test_many_partitions_are_several_requests() -> None:
    with (
        TransactionBroker(topic("orders", *[1] * (PARTITIONS_A_REQUEST + 1))) as broker,
        Cluster(broker.address) as one,
    ):
        broker.producers["orders", PARTITIONS_A_REQUEST] = [HANGING]
        found = one.open_transactions([("orders", index) for index in range(PARTITIONS_A_REQUEST + 1)])
        assert [open_one.partition for open_one in found] == [PARTITIONS_A_REQUEST]
        sizes = [len(sent.topics[0].partition_indexes) for sent in broker.seen(DescribeProducersRequest)]
    assert sizes == [PARTITIONS_A_REQUEST, 1]


def test_open_transactions_are_in_order_and_named(cluster: Cluster, broker: TransactionBroker) -> None:
    broker.producers["orders", 0] = [Producer(901, start=130), Producer(900, start=120), Producer(902)]
    broker.transactions["payments"] = Transaction(901)
    found = cluster.open_transactions([("orders", 0)])
    assert [(one.start_offset, one.transactional_id) for one in found] == [(120, None), (130, "payments")]
    broker.requests.clear()
    assert [one.transactional_id for one in cluster.open_transactions([("orders", 0)], with_ids=False)] == [None, None]
    assert not broker.seen(ListTransactionsRequest)


@pytest.mark.parametrize(
    ("known", "hangs"),
    [
        ({}, True),
        ({"payments": Transaction(900, "Ongoing", partitions=(("orders", 1),))}, True),
        ({"payments": Transaction(900, "CompleteCommit")}, True),
        ({"payments": Transaction(900, "Ongoing", partitions=(("orders", 1), ("orders", 0)))}, False),
        ({"payments": Transaction(900, "PrepareAbort", partitions=(("orders", 0),))}, False),
    ],
    ids=["unknown", "another partition", "ended", "ongoing", "being ended"],
)
def test_what_hangs(cluster: Cluster, broker: TransactionBroker, known: dict[str, Transaction], hangs: bool) -> None:
    broker.producers["orders", 0] = [HANGING]
    broker.transactions.update(known)
    found = cluster.hanging_transactions([("orders", 0), ("orders", 1)])
    assert [one.place for one in found] == [("orders", 0)] * hangs
    assert [one.transactional_id for one in found] == [next(iter(known), None)] * hangs


def test_a_transaction_that_ends_while_it_is_looked_up_does_not_hang(
    cluster: Cluster, broker: TransactionBroker
) -> None:
    broker.producers["orders", 0] = [Producer(900, start=120)]
    answer = broker.script[ListTransactionsRequest]

    def ends_meanwhile(*call: Any) -> Any:
        broker.producers["orders", 0] = [Producer(900, start=140)]  # and the next one has begun
        return answer(*call)

    broker.script[ListTransactionsRequest] = ends_meanwhile
    assert cluster.hanging_transactions([("orders", 0)]) == []
    assert len(broker.seen(DescribeProducersRequest)) == 2


def test_a_transaction_of_a_moment_ago_is_not_looked_up(cluster: Cluster, broker: TransactionBroker) -> None:
    broker.producers["orders", 0] = [Producer(900, start=120, last_timestamp=2**53)]
    assert cluster.hanging_transactions([("orders", 0)]) == []
    assert not broker.seen(ListTransactionsRequest)
    assert len(cluster.hanging_transactions([("orders", 0)], idle_for_ms=None)) == 1


@pytest.mark.parametrize(("known", "sent"), [(7, 7), (-1, 0)])
def test_an_abort_is_a_marker_at_the_epochs_of_the_partition(
    cluster: Cluster, broker: TransactionBroker, known: int, sent: int
) -> None:
    broker.producers["orders", 1] = [Producer(900, start=120, coordinator_epoch=known)]
    (found,) = cluster.open_transactions([("orders", 1)])
    cluster.abort_in_partition(found)
    (request,) = broker.seen(WriteTxnMarkersRequest)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (900, 2, sent)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)
    assert [(one.name, one.partition_indexes) for one in marker.topics] == [("orders", (1,))]
    assert cluster.open_transactions([("orders", 1)]) == []


@pytest.mark.parametrize(
    ("code", "attempts"),
    [(ErrorCode.TRANSACTION_COORDINATOR_FENCED, 1), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)],
    ids=["final", "moved"],
)
def test_a_refused_abort(cluster: Cluster, broker: TransactionBroker, code: ErrorCode, attempts: int) -> None:
    broker.errors[WriteTxnMarkersRequest] = code
    with pytest.raises(ServerError, match="cannot abort the transaction in orders-0") as raised:
        cluster.abort_in_partition(OpenTransaction("orders", 0, 900, 2, 7, 120, 1_000))
    assert raised.value.code == code
    assert len(broker.seen(WriteTxnMarkersRequest)) >= attempts
    assert (len(broker.seen(WriteTxnMarkersRequest)) == 1) == (attempts == 1)


def test_fencing_waits_for_the_end_of_the_transaction(cluster: Cluster, broker: TransactionBroker) -> None:
    pending = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1)
    broker.transactions["payments"] = Transaction(900)
    broker.script[InitProducerIdRequest] = in_turn(pending, pending, broker.script[InitProducerIdRequest])
    assert cluster.fence_producer("payments", timeout_ms=5_000) == (900, 4)
    sent = broker.seen(InitProducerIdRequest)
    assert len(sent) == 3
    assert {(one.transactional_id, one.transaction_timeout_ms) for one in sent} == {("payments", 5_000)}
    assert {(one.producer_id, one.producer_epoch) for one in sent} == {(-1, -1)}
