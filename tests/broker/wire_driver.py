"""A test driver for the broker: encodes requests, steps, commits, and decodes what is released.

    wire = Wire()                        # a fresh broker on memory storage
    client = wire.connect()
    response = client.ask(MetadataRequest(topics=None), 9)

Time stands still unless a test says otherwise (`wire.now`, `wire.advance`). Nothing is released before its turn is
committed, as in the server.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.broker.turn import (
    Arrived,
    Closed,
    Complaint,
    ConnectionId,
    Disconnect,
    Frame,
    HandedOut,
    Opened,
    Release,
    Turn,
)
from kohort.config import Config
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import Storage
from kohort.wire.batches import NewRecord, decode_records, encode_batch, split_batches
from kohort.wire.codec import decode, encode_request
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.schemas.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.schemas.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponse
from kohort.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kohort.wire.schemas.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kohort.wire.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

RESPONSES: dict[type, type] = {
    AlterConfigsRequest: AlterConfigsResponse,
    ApiVersionsRequest: ApiVersionsResponse,
    ConsumerGroupDescribeRequest: ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
    CreatePartitionsRequest: CreatePartitionsResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    DeleteGroupsRequest: DeleteGroupsResponse,
    DeleteRecordsRequest: DeleteRecordsResponse,
    DeleteTopicsRequest: DeleteTopicsResponse,
    DescribeClusterRequest: DescribeClusterResponse,
    DescribeConfigsRequest: DescribeConfigsResponse,
    DescribeGroupsRequest: DescribeGroupsResponse,
    DescribeTopicPartitionsRequest: DescribeTopicPartitionsResponse,
    FetchRequest: FetchResponse,
    FindCoordinatorRequest: FindCoordinatorResponse,
    HeartbeatRequest: HeartbeatResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
    InitProducerIdRequest: InitProducerIdResponse,
    JoinGroupRequest: JoinGroupResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    ListGroupsRequest: ListGroupsResponse,
    ListOffsetsRequest: ListOffsetsResponse,
    MetadataRequest: MetadataResponse,
    OffsetCommitRequest: OffsetCommitResponse,
    OffsetDeleteRequest: OffsetDeleteResponse,
    OffsetFetchRequest: OffsetFetchResponse,
    OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
    ProduceRequest: ProduceResponse,
    SyncGroupRequest: SyncGroupResponse,
}

START_MS = 1_760_000_000_000


class Connection:
    """One client connection. Its answers come into `responses` and `disconnected`."""

    def __init__(self, wire: Wire, connection: ConnectionId, client_id: str) -> None:
        self.wire = wire
        self.id = connection
        self.client_id = client_id
        self.responses: list[Any] = []
        self.disconnected: str | None = None
        self.correlation_id = 0
        self.awaited: list[tuple[int, type, int]] = []

    def frame(self, request: Any, version: int) -> Frame:
        """A request as it arrives, noted as awaited."""
        self.correlation_id += 1
        self.awaited.append((self.correlation_id, RESPONSES[type(request)], version))
        return Frame(self.id, encode_request(request, version, self.correlation_id, self.client_id)[4:])

    def send(self, request: Any, version: int) -> None:
        """Send without waiting for the response."""
        self.wire.step(self.frame(request, version))

    def ask(self, request: Any, version: int) -> Any:
        """Send, and return the response, which must come in the same turn (or once its commit is through)."""
        self.send(request, version)
        return self.take()

    def take(self) -> Any:
        """The response to the earliest unanswered request."""
        assert self.responses, f"no response; disconnected: {self.disconnected}"
        return self.responses.pop(0)

    def close(self) -> None:
        self.wire.step(Closed(self.id))

    def received(self, release: Release) -> None:
        if isinstance(release, Disconnect):
            self.disconnected = release.reason
            return
        data = release.whole
        length = int.from_bytes(data[:4], "big")
        frame = data[4:]
        assert len(frame) == length
        correlation_id, response, version = self.awaited.pop(0)
        schema = schema_of(response)
        assert schema.api_key is not None
        found, start = read_response_header(frame, flexible=version in schema.flexible, api_key=schema.api_key)
        assert found == correlation_id, "responses are not in the order of the requests"
        self.responses.append(decode(response, version, frame, start))


class Wire:
    def __init__(
        self, storage: Storage | None = None, *, brokers: int = 1, seed: int = 1, now: int = START_MS, **config: Any
    ) -> None:
        listeners = ",".join(f"127.0.0.1:{9092 + index}" for index in range(brokers))
        self.config = Config(brokers=brokers, listeners=listeners, **({"offsets_topic_num_partitions": 5} | config))
        self.storage: Storage = storage if storage is not None else MemoryStorage()
        self.now = now
        self.connections: dict[ConnectionId, Connection] = {}
        self.complaints: list[Complaint] = []
        """The complaints of all turns so far."""
        self.tasks: list[HandedOut] = []
        """Work for the edge, which is done only if a test does it."""
        self._next_connection = 0
        self.broker = Broker(
            self.config,
            self.storage,
            now=now,
            random=random.Random(seed),
            endpoints=[Endpoint("127.0.0.1", 9092 + index) for index in range(brokers)],
        ).load()
        self.step()

    def connect(self, broker_id: int = 1, client_id: str = "client") -> Connection:
        self._next_connection += 1
        connection = Connection(self, ConnectionId(self._next_connection), client_id)
        self.connections[connection.id] = connection
        self.step(Opened(connection.id, broker_id, "127.0.0.1"))
        return connection

    def step(self, *arrived: Arrived) -> None:
        """One turn, and the turns that it makes due at once."""
        self._turn(arrived)
        turns = 0
        while self.broker.busy:
            turns += 1
            assert turns < 1000, "the broker never comes to rest"
            self._turn(())

    def _turn(self, arrived: Iterable[Arrived]) -> None:
        self._end(self.broker.step(arrived, self.now))

    def _end(self, turn: Turn) -> None:
        self.complaints.extend(turn.complaints)
        self.tasks.extend(turn.tasks)
        if turn.operations:
            self.storage.commit(turn.operations, self.storage.acquire())
        for release in turn.releases:
            self.connections[release.connection].received(release)

    def operations(self, frame: Frame) -> int:
        """How many bytecode instructions the broker runs in the turn of this frame."""
        count = 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal count
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            count += event == "opcode"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            turn = self.broker.step([frame], self.now)
        finally:
            sys.settrace(before)
        self._end(turn)
        return count

    def advance(self, milliseconds: int) -> None:
        """Let time pass; every deadline on the way gets its turn at its moment."""
        end = self.now + milliseconds
        while (deadline := self.broker.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.step()
        self.now = end
        self.step()

    def restarted(self, **config: Any) -> Wire:
        """Another broker on the same storage, as after kill -9."""
        brokers = config.pop("brokers", self.config.brokers)
        return Wire(self.storage, brokers=brokers, seed=99, now=self.now, **config)


def create_topic(client: Connection, name: str, partitions: int = 1, factor: int = 1) -> bytes:
    """Returns the topic's id."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
    response = client.ask(CreateTopicsRequest(topics=(topic,)), 7)
    assert response.topics[0].error_code == 0, response
    topic_id: bytes = response.topics[0].topic_id
    return topic_id


def batch(*values: bytes | str, timestamp: int = START_MS, **options: Any) -> bytes:
    records = [NewRecord(None, value.encode() if isinstance(value, str) else value, timestamp) for value in values]
    return encode_batch(records, **options)


def produce_request(topic: str, data: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=(
            TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=partition, records=data),)),
        ),
    )


def produce(client: Connection, topic: str, *values: bytes | str, partition: int = 0) -> int:
    """Returns the base offset."""
    response = client.ask(produce_request(topic, batch(*values), partition), 9)
    found = response.responses[0].partition_responses[0]
    assert found.error_code == 0, response
    offset: int = found.base_offset
    return offset


def fetch_request(topic: str, offset: int = 0, partition: int = 0, **options: Any) -> FetchRequest:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1_048_576)
    settings: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "replica_id": -1}
    return FetchRequest(topics=(FetchTopic(topic=topic, partitions=(asked,)),), **(settings | options))


def values_of(response: FetchResponse) -> list[bytes | None]:
    """The values of all records of a fetch's response."""
    return [
        record.value
        for topic in response.responses
        for partition in topic.partitions
        for _, data in split_batches(partition.records or b"", strict=False)
        for record in decode_records(data)
    ]
