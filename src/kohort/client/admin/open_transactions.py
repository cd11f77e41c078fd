"""Open transactions as the leaders of partitions know them: who holds a partition's last stable offset, and whether the
transaction hangs.

A partition knows producer ids, but no transactional ids; the coordinators know both. A transaction hangs if data of it
is open in a partition and its coordinator does not have the partition in a transaction: nobody will ever end it, and
readers of committed records wait for ever. Brokers before Apache Kafka 3.6 let this happen when a produce request
arrived after the end of its transaction (KAFKA-12671, KIP-890). An operator aborts such a transaction by sending the
abort marker to the partition's leader (KIP-664); the coordinator takes no part.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from kohort.client.admin.transactions import TransactionFilter, describe_transactions, list_transactions
from kohort.client.errors import server_error
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import ask_leaders, raise_worst
from kohort.client.wire.routing import Router
from kohort.wire.embedded import by_topic
from kohort.wire.schemas.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from kohort.wire.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NONE = -1
PARTITIONS_A_REQUEST = 1_000


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer with an id that has written to a partition; also without transactions, if it is idempotent.

    `last_sequence` is -1 after a new epoch; `coordinator_epoch` is -1 before the first marker; `open_since` is the
    first offset of the open transaction, None without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    open_since: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition, from `start_offset` on.

    `last_timestamp_ms` is the timestamp of the newest batch by the producer's clock. `transactional_id` is None if no
    coordinator has the producer id, or if the cluster or its permissions do not let this client ask them.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str | None = None

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


def describe_producers(
    router: Router, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    wanted = iter(dict.fromkeys(partitions))
    found: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
    while some := list(islice(wanted, PARTITIONS_A_REQUEST)):
        found |= _describe_producers(router, some)
    return found


def _describe_producers(
    router: Router, wanted: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    found: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
    what = "DescribeProducers"

    def request(partitions: Sequence[TopicPartition]) -> DescribeProducersRequest:
        topics = (TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic(partitions))
        return DescribeProducersRequest(topics=tuple(topics))

    def rows(answer: DescribeProducersResponse) -> Iterator[tuple[TopicPartition, PartitionResponse]]:
        return (((topic.name, row.partition_index), row) for topic in answer.topics for row in topic.partitions)

    def attempt() -> None:
        rest = [partition for partition in wanted if partition not in found]
        answered, failed = ask_leaders(router, rest, what, request, DescribeProducersResponse, rows)
        for (topic, index), row in answered.items():
            if row.error_code:
                failed[topic, index] = server_error(row.error_code, f"{what} {topic}-{index}", row.error_message)
            else:
                found[topic, index] = _producers(row)
        raise_worst(router, failed)

    router.retrying(attempt)
    return found


def _producers(row: PartitionResponse) -> tuple[ActiveProducer, ...]:
    return tuple(
        ActiveProducer(
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            None if one.current_txn_start_offset == NONE else one.current_txn_start_offset,
        )
        for one in sorted(row.active_producers, key=lambda one: one.producer_id)
    )


def open_transactions(router: Router, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
    """Without transactional ids; in order of topic, partition and offset."""
    found = [
        OpenTransaction(
            *place,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.open_since,
            one.last_timestamp_ms,
        )
        for place, producers in describe_producers(router, partitions).items()
        for one in producers
        if one.open_since is not None
    ]
    return sorted(found, key=lambda one: (one.place, one.start_offset))


def transactional_ids(router: Router, producer_ids: Iterable[int]) -> dict[int, str]:
    """Transactional ids by producer id; leaves out those that no coordinator has."""
    wanted = tuple(dict.fromkeys(producer_ids))
    if not wanted:
        return {}
    listed = list_transactions(router, TransactionFilter(producer_ids=wanted))
    return {one.producer_id: one.transactional_id for one in listed}


def hanging(router: Router, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Those of the candidates that hang.

    A transaction may end while the coordinators are asked. So what seems to hang must be open in its partition
    afterwards, too.
    """
    ids = transactional_ids(router, (one.producer_id for one in candidates))
    known = describe_transactions(router, ids.values())
    alive = {(one.producer_id, place) for one in known.values() if one.open for place in one.partitions}
    seeming = [one for one in candidates if (one.producer_id, one.place) not in alive]
    if not seeming:
        return []
    still = {
        (one.place, one.producer_id, one.start_offset)
        for one in open_transactions(router, (one.place for one in seeming))
    }
    return [one for one in named(seeming, ids) if (one.place, one.producer_id, one.start_offset) in still]


def idle(transactions: Iterable[OpenTransaction], longer_than_ms: int) -> list[OpenTransaction]:
    """The transactions whose newest batch is older than this, by this machine's clock."""
    now_ms = time.time_ns() // 1_000_000
    return [one for one in transactions if now_ms - one.last_timestamp_ms > longer_than_ms]


def named(transactions: Iterable[OpenTransaction], ids: dict[int, str]) -> list[OpenTransaction]:
    """With their transactional ids."""
    return [replace(one, transactional_id=ids.get(one.producer_id)) for one in transactions]


def abort_in_partition(router: Router, transaction: OpenTransaction) -> None:
    """Write the abort marker into the partition. A retry may write it twice; the second one changes nothing."""
    topic, index = transaction.place
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=(index,)),),
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )

    def rows(answer: WriteTxnMarkersResponse) -> Iterator[tuple[TopicPartition, WritableTxnMarkerPartitionResult]]:
        return (
            ((topic.name, row.partition_index), row)
            for one in answer.markers
            for topic in one.topics
            for row in topic.partitions
        )

    def attempt() -> None:
        answered, failed = ask_leaders(
            router,
            [transaction.place],
            "WriteTxnMarkers",
            lambda _: WriteTxnMarkersRequest(markers=(marker,)),
            WriteTxnMarkersResponse,
            rows,
        )
        for place, row in answered.items():
            if row.error_code:
                failed[place] = server_error(row.error_code, f"cannot abort the transaction in {topic}-{index}")
        raise_worst(router, failed)

    router.retrying(attempt)
