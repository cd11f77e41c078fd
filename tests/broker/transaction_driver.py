"""A transactional producer over the wire driver: each call is one request, with what the producer knows.

    producer = Transactional(client, version=2)      # KIP-890: new epochs
    producer.init()
    producer.add("t", 0)
    producer.produce("a", partition=0)
    producer.commit()

A call returns the error of its answer. The producer follows the ids and epochs that it gets.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace as changed
from wire_driver import Connection, Wire, batch, produce_request

from kohort.broker.logs.partition import Partition
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.transaction import Transaction
from kohort.wire.batches import decode_records, read_header, split_batches
from kohort.wire.markers import Marker, read_marker
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.schemas.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kohort.wire.schemas.describe_transactions import DescribeTransactionsRequest, TransactionState
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.wire.schemas.produce import PartitionProduceResponse
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kohort.wire.schemas.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

PRODUCE = {1: 11, 2: 12}
ADD = {1: 3, 2: 3}
END = {1: 4, 2: 5}
COMMIT_OFFSETS = {1: 3, 2: 5}
"""The versions of the requests, by the transaction version of the client."""


def found(client: Connection, name: str = "x") -> int:
    """Look for the coordinator, and so create its topic. Returns the broker, or -1."""
    [one] = client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=(name,)), 4).coordinators
    return int(one.node_id)


class Transactional:
    def __init__(self, client: Connection, name: str = "x", *, version: int = 2) -> None:
        found(client, name)
        self.client = client
        self.name = name
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def producer(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def copy(self) -> Transactional:
        """A zombie: the same producer once more, with a connection of its own."""
        zombie = Transactional(self.client.wire.connect(), self.name, version=self.version)
        zombie.producer_id, zombie.epoch = self.producer_id, self.epoch
        zombie.sequences = dict(self.sequences)
        return zombie

    def init(self, *, again: bool = False, timeout_ms: int = 60_000, version: int = 5) -> int:
        """`again`: with the present id and epoch."""
        named = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if again else {}
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms, **named)
        answer = self.client.ask(request, version)
        if not answer.error_code:
            self._follow(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def add(self, topic: str = "t", *partitions: int, version: int | None = None) -> int:
        """One error for all partitions."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=partitions or (0,)),),
        )
        answer = self.client.ask(request, ADD[self.version] if version is None else version)
        [error] = {
            result.partition_error_code
            for each in answer.results_by_topic_v3_and_below
            for result in each.results_by_partition
        }
        return int(error)

    def add_offsets(self, group: str = "g", version: int = 3) -> int:
        return int(self.client.ask(AddOffsetsToTxnRequest(**self.producer, group_id=group), version).error_code)

    def commit_offsets(self, offset: int, *, version: int | None = None, **fields: Any) -> int:
        """One error for all partitions. `fields`: see `offsets_request`."""
        [error] = set(self.committed_offsets(offset, version=version, **fields).values())
        return error

    def committed_offsets(
        self, offset: int, *, version: int | None = None, **fields: Any
    ) -> dict[tuple[str, int], int]:
        """The error of each partition."""
        version = COMMIT_OFFSETS[self.version] if version is None else version
        request = offsets_request(offset, **(self.producer | fields))
        catalog = self.client.wire.broker.state.catalog
        if version >= 6:  # topics that do not exist have the id NO_UUID
            ids = {name: topic.topic_id for name, topic in catalog.topics.items()}
            topics = tuple(
                TxnOffsetCommitRequestTopic(topic_id=ids.get(topic.name, NO_UUID), partitions=topic.partitions)
                for topic in request.topics
            )
            request = changed(request, topics=topics)
        answer = self.client.ask(request, version)
        names = {topic.topic_id: name for name, topic in catalog.topics.items()} | {NO_UUID: "absent"}
        return {
            (topic.name or names[topic.topic_id], partition.partition_index): int(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }

    def produce(self, *values: str, topic: str = "t", partition: int = 0, version: int | None = None) -> int:
        return self.produced(*values, topic=topic, partition=partition, version=version).error_code

    def produced(
        self,
        *values: str,
        topic: str = "t",
        partition: int = 0,
        version: int | None = None,
        sequence: int | None = None,
    ) -> PartitionProduceResponse:
        next_sequence = self.sequences.get((topic, partition), 0)
        data = batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=next_sequence if sequence is None else sequence,
            is_transactional=True,
        )
        request = changed(produce_request(topic, data, partition), transactional_id=self.name)
        answer = self.client.produced(request, PRODUCE[self.version] if version is None else version)
        if not answer.error_code and sequence is None:
            self.sequences[topic, partition] = next_sequence + len(values)
        return answer

    def commit(self, version: int | None = None) -> int:
        return self.end(committed=True, version=version)

    def abort(self, version: int | None = None) -> int:
        return self.end(committed=False, version=version)

    def end(self, *, committed: bool, version: int | None = None) -> int:
        version = END[self.version] if version is None else version
        answer = self.client.ask(EndTxnRequest(**self.producer, committed=committed), version)
        if not answer.error_code and version >= 5:
            self._follow(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def _follow(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch


def offsets_request(
    offset: int,
    group: str = "g",
    *,
    topic: str = "t",
    partitions: tuple[int, ...] = (0,),
    metadata: str | None = "note",
    **fields: Any,
) -> TxnOffsetCommitRequest:
    """The same offset of each partition. `fields`: the producer, and who the member is."""
    offsets = tuple(
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
        )
        for index in partitions
    )
    topics = (TxnOffsetCommitRequestTopic(name=topic, partitions=offsets),)
    return TxnOffsetCommitRequest(**({"group_id": group, "topics": topics} | fields))


def fetched(
    client: Connection, group: str = "g", topic: str = "t", partition: int = 0, *, stable: bool = True, version: int = 7
) -> tuple[int, int]:
    """The offset and the error of a partition."""
    wanted = (OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,)),)
    request = OffsetFetchRequest(group_id=group, topics=wanted, require_stable=stable)
    found = client.ask(request, version).topics[0].partitions[0]
    return int(found.committed_offset), int(found.error_code)


def shard_of(wire: Wire, name: str = "x") -> TransactionShard:
    return wire.broker.state.transactions.owner(name)


def state_of(wire: Wire, name: str = "x") -> Transaction:
    return shard_of(wire, name).ids[name]


def described(client: Connection, name: str = "x") -> TransactionState:
    [one] = client.ask(DescribeTransactionsRequest(transactional_ids=(name,)), 0).transaction_states
    result: TransactionState = one
    return result


def listed(client: Connection, *states: str, version: int = 2, **filters: Any) -> ListTransactionsResponse:
    request = ListTransactionsRequest(**({"state_filters": states, "producer_id_filters": ()} | filters))
    result: ListTransactionsResponse = client.ask(request, version)
    return result


def write_markers(
    client: Connection, producer_id: int, epoch: int, *places: tuple[str, int], committed: bool = False, **fields: Any
) -> list[int]:
    """The errors of the partitions, in order."""
    topics = tuple(WritableTxnMarkerTopic(name=topic, partition_indexes=(index,)) for topic, index in places)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=topics,
        **({"coordinator_epoch": 0} | fields),
    )
    answer = client.ask(WriteTxnMarkersRequest(markers=(marker,)), 2 if "transaction_version" in fields else 1)
    return [
        int(partition.error_code)
        for result in answer.markers
        for topic in result.topics
        for partition in topic.partitions
    ]


def log_of(wire: Wire, topic: str = "t", partition: int = 0) -> list[str]:
    """Each batch of a log in a word: "a+b" records, "COMMIT 1000/1" a marker."""
    wire.step()  # what the last turn appended becomes readable
    found: Partition = wire.partitions(topic)[partition]
    words = []
    for data in found.read(found.start_offset, 1 << 20):
        for _, each in split_batches(data):
            header = read_header(each)
            marker: Marker | None = read_marker(each, header) if header.is_control else None
            if marker is not None:
                words.append(f"{'COMMIT' if marker.committed else 'ABORT'} {marker.producer_id}/{marker.epoch}")
            else:
                words.append("+".join((record.value or b"").decode() for record in decode_records(each)))
    return words
