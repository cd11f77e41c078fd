"""A scripted broker that has transactions: what coordinators and partitions answer to an operator's tools.

Tests change its tables while it runs. It is node 1 and the coordinator of all ids.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from scripted_broker import ScriptedBroker

from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import describe_producers, describe_transactions, list_transactions, metadata
from kohort.wire.schemas.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kohort.wire.schemas.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kohort.wire.schemas.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Place = tuple[str, int]


@dataclass
class Transaction:
    """A transactional id as its coordinator has it."""

    producer_id: int
    state: str = "Ongoing"
    epoch: int = 2
    timeout_ms: int = 60_000
    started_ms: int = 1_000
    partitions: tuple[Place, ...] = ()
    aborts: tuple[dict[str, Any], ...] = ()
    """Journal entries, if the broker is to be kohort."""


@dataclass
class Producer:
    """A producer as a partition has it."""

    producer_id: int
    start: int = -1
    epoch: int = 2
    coordinator_epoch: int = 7
    last_timestamp: int = 1_000
    last_sequence: int = 0


class TransactionBroker(ScriptedBroker):
    """`transactions` by transactional id, `producers` and `ends` (last stable offset, end) by partition."""

    def __init__(self, *topics: metadata.MetadataResponseTopic, without: tuple[type, ...] = (), **options: Any) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.producers: dict[Place, list[Producer]] = {}
        self.ends: dict[Place, tuple[int, int]] = {}
        self.errors: dict[type, int] = {}
        """Error codes of the rows of an answer, by the request's class."""
        script = {
            ListTransactionsRequest: self._list,
            DescribeTransactionsRequest: self._describe,
            DescribeProducersRequest: self._describe_producers,
            WriteTxnMarkersRequest: self._write_markers,
            InitProducerIdRequest: self._init,
            ListOffsetsRequest: self._list_offsets,
        }
        super().__init__({cls: answer for cls, answer in script.items() if cls not in without}, *topics, **options)

    def _list(self, request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
        rows = tuple(
            list_transactions.TransactionState(
                transactional_id=name, producer_id=one.producer_id, transaction_state=one.state
            )
            for name, one in self.transactions.items()
            if (not request.state_filters or one.state in request.state_filters)
            and (not request.producer_id_filters or one.producer_id in request.producer_id_filters)
        )
        return ListTransactionsResponse(
            error_code=self.errors.get(ListTransactionsRequest, 0), unknown_state_filters=(), transaction_states=rows
        )

    def _describe(self, request: DescribeTransactionsRequest, version: int) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=tuple(self._description(name, request.aborts_last) for name in request.transactional_ids)
        )

    def _description(self, name: str, aborts: int) -> describe_transactions.TransactionState:
        one = self.transactions.get(name)
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if one is None else 0
        one = one or Transaction(-1, "")
        return describe_transactions.TransactionState(
            error_code=self.errors.get(DescribeTransactionsRequest, int(missing)),
            transactional_id=name,
            transaction_state=one.state,
            transaction_timeout_ms=one.timeout_ms,
            transaction_start_time_ms=one.started_ms,
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            topics=tuple(
                describe_transactions.TopicData(topic=topic, partitions=(index,)) for topic, index in one.partitions
            ),
            aborts=tuple(json.dumps(entry).encode() for entry in one.aborts[-aborts:] if aborts),
        )

    def _describe_producers(self, request: DescribeProducersRequest, version: int) -> DescribeProducersResponse:
        error = self.errors.get(DescribeProducersRequest, 0)
        return DescribeProducersResponse(
            topics=tuple(
                describe_producers.TopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        describe_producers.PartitionResponse(
                            partition_index=index,
                            error_code=error,
                            active_producers=() if error else self._active((topic.name, index)),
                        )
                        for index in topic.partition_indexes
                    ),
                )
                for topic in request.topics
            )
        )

    def _active(self, place: Place) -> tuple[describe_producers.ProducerState, ...]:
        return tuple(
            describe_producers.ProducerState(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.last_timestamp,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.start,
            )
            for one in self.producers.get(place, ())
        )

    def _write_markers(self, request: WriteTxnMarkersRequest, version: int) -> WriteTxnMarkersResponse:
        """Ends the transactions in `producers`; readers go on to the end."""
        (marker,) = request.markers
        ((topic, (index,)),) = [(one.name, one.partition_indexes) for one in marker.topics]
        error = self.errors.get(WriteTxnMarkersRequest, 0)
        if not error:
            for one in self.producers[topic, index]:
                one.start = -1 if one.producer_id == marker.producer_id else one.start
            self.ends[topic, index] = (self.ends.get((topic, index), (0, 0))[1],) * 2
        row = WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
        result = WritableTxnMarkerTopicResult(name=topic, partitions=(row,))
        return WriteTxnMarkersResponse(
            markers=(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=(result,)),)
        )

    def _init(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        error = self.errors.get(InitProducerIdRequest, 0)
        one = self.transactions[request.transactional_id or ""]
        if not error:
            one.state, one.epoch, one.partitions = "Empty", one.epoch + 2, ()
        return InitProducerIdResponse(error_code=error, producer_id=one.producer_id, producer_epoch=one.epoch)

    def _list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        def row(place: Place, timestamp: int) -> ListOffsetsPartitionResponse:
            stable, end = self.ends.get(place, (0, 0))
            offset = 0 if timestamp == -2 else stable if request.isolation_level else end
            return ListOffsetsPartitionResponse(partition_index=place[1], error_code=0, offset=offset)

        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(row((topic.name, one.partition_index), one.timestamp) for one in topic.partitions),
                )
                for topic in request.topics
            )
        )
