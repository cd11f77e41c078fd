"""What Produce asks the transaction coordinator about the transactional batches of a request.

A batch may only be appended to a partition that is in its producer's transaction. If the partition has records of the
transaction already, it is. Otherwise the coordinator says so; from version 12 on it adds the partition (KIP-890).
"""

from __future__ import annotations

from struct import Struct

from kohort.broker.logs.partition import Partition
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.produce import ProduceRequest

NONE = ErrorCode.NONE
ADDS = 12
"""The first version that adds partitions to the transaction."""
TOPIC_IDS = 13
"""The first version that names topics by their ids."""
ABORTABLE = 11
"""The first version that knows TRANSACTION_ABORTABLE."""
_MAGIC, _ATTRIBUTES, _TRANSACTIONAL = 16, 22, 0x10
_PRODUCER = Struct(">qh")
_PRODUCER_AT, _LEAST = 43, 61
"""Where a batch has its producer's id and epoch, and the bytes of a batch without records."""
COORDINATOR_AWAY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def is_transactional(batch: bytes | None) -> bool:
    """Whether the first batch is part of a transaction. What is no batch is refused when it is appended."""
    return (
        batch is not None and len(batch) >= _LEAST and batch[_MAGIC] == 2 and bool(batch[_ATTRIBUTES] & _TRANSACTIONAL)
    )


def _producers_of(request: ProduceRequest) -> set[tuple[int, int]]:
    """The producer ids and epochs of the transactional batches."""
    found: set[tuple[int, int]] = set()
    for topic in request.topic_data:
        for partition in topic.partition_data:
            batch = partition.records
            if batch and len(batch) >= _LEAST and batch[_ATTRIBUTES] & _TRANSACTIONAL and is_transactional(batch):
                found.add(_PRODUCER.unpack_from(batch, _PRODUCER_AT))
    return found


class Writer:
    """The transactional producer of one request."""

    def __init__(self, state: BrokerState, context: RequestContext, transactional_id: str, producer: tuple[int, int]):
        self._state = state
        self._context = context
        self._transactional_id = transactional_id
        self._producer_id, self._epoch = producer
        self._added: ErrorCode | None = None

    def check(self, topic: Topic, index: int, partition: Partition, request: ProduceRequest) -> ErrorCode:
        """Why the producer may not write to this partition now, as an error of Produce; NONE if it may.

        The epoch that the partition knows comes first: an old producer is told so, although the coordinator may know
        nothing of its id any more."""
        if partition.has_open(self._producer_id, self._epoch):
            return NONE
        if error := partition.check_epoch(self._producer_id, self._epoch, self._state.now):
            return error
        if self._context.api_version >= ADDS:
            if self._added is None:
                self._added = self._ask(self._new_places(request), adds=True)
            error = self._added
        elif self._state.config.transaction_partition_verification_enable:
            error = self._ask([(topic.name, index)], adds=False)
        else:
            return NONE
        return self._for_version(error)

    def ask_again(self) -> None:
        """Other requests were handled meanwhile: the transaction may have ended."""
        self._added = None

    def _ask(self, places: list[tuple[str, int]], *, adds: bool) -> ErrorCode:
        check = self._state.transactions.check
        return check(self._context, self._transactional_id, self._producer_id, self._epoch, places, adds=adds)

    def _new_places(self, request: ProduceRequest) -> list[tuple[str, int]]:
        """The partitions of the request that may not be in the transaction yet, and do not know a newer epoch."""
        state, places = self._state, []
        for data in request.topic_data:
            by_id = self._context.api_version >= TOPIC_IDS
            topic = state.catalog.by_id.get(data.topic_id) if by_id else state.topic(data.name)
            if topic is None or topic.is_internal:
                continue
            for each in data.partition_data:
                partition = state.partition(topic, each.index)
                if partition is None or partition.has_open(self._producer_id, self._epoch):
                    continue
                is_old = partition.check_epoch(self._producer_id, self._epoch, state.now)
                if not is_old and is_transactional(each.records):
                    places.append((topic.name, each.index))
        return places

    def _for_version(self, error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._context.api_version < ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        if error in COORDINATOR_AWAY:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and self._context.api_version < ADDS:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return error


def writer_of(request: ProduceRequest, state: BrokerState, context: RequestContext) -> Writer | ErrorCode | None:
    """The request's transactional producer; None if no batch is transactional; or the error of the whole request."""
    producers = _producers_of(request)
    if not producers:
        return None
    if request.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if len(producers) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return Writer(state, context, request.transactional_id, producers.pop())
