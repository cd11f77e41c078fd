"""A test driver for the broker: encodes requests, steps, commits, and decodes what is released.

    wire = Wire()                        # a fresh broker on memory storage
    client = wire.connect()
    response = client.ask(MetadataRequest(topics=None), 9)

Time advances only when a test says so (`wire.now`, `wire.advance`). Nothing is released before its turn is
committed, as in the server.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.broker.broker import Broker
from kohort.broker.logs.partition import Partition
from kohort.broker.nodes import Endpoint
from kohort.broker.sharing.slots import Slots
from kohort.broker.turn import (
    Arrived,
    Closed,
    Complaint,
    ConnectionId,
    Disconnect,
    Frame,
    HandedOut,
    Notice,
    Opened,
    ReadAsked,
    ReadDone,
    Release,
    Turn,
)
from kohort.broker.waits.outcomes import outcome
from kohort.config import Config
from kohort.coordinator.shard import Shard
from kohort.simulator.checks.onlooker import response_of
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import Storage
from kohort.wire.batches import NewRecord, decode_records, encode_batch, split_batches
from kohort.wire.codec import decode, encode_request
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResult
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.schemas.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData

TOPIC, BROKER, GROUP = 2, 4, 32
"""Types of resources that have configs."""
SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""
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
        self.awaited.append((self.correlation_id, response_of(type(request)), version))
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

    # -- requests that many tests send

    def create_topic(self, name: str, partitions: int = 1, factor: int = 1, **configs: str) -> bytes:
        """`configs` have attribute-style names. Returns the topic's id."""
        entries = tuple(CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items())
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=entries)
        response = self.ask(CreateTopicsRequest(topics=(topic,)), 7)
        assert response.topics[0].error_code == 0, response
        topic_id: bytes = response.topics[0].topic_id
        return topic_id

    def produced(self, request: ProduceRequest, version: int = 9) -> PartitionProduceResponse:
        """Send batches for one partition."""
        result: PartitionProduceResponse = self.ask(request, version).responses[0].partition_responses[0]
        return result

    def produce(self, topic: str, *values: bytes | str, partition: int = 0) -> int:
        """Returns the base offset."""
        found = self.produced(produce_request(topic, batch(*values), partition))
        assert found.error_code == 0, found
        return found.base_offset

    def listed(self, timestamp: int, version: int = 7, topic: str = "t", **fields: Any) -> ListOffsetsPartitionResponse:
        """The answer to a ListOffsets of one partition."""
        asked = ListOffsetsPartition(**({"partition_index": 0, "timestamp": timestamp} | fields))
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(asked,)),))
        result: ListOffsetsPartitionResponse = self.ask(request, version).topics[0].partitions[0]
        return result

    def describe_configs(
        self, name: str, kind: int, keys: tuple[str, ...] | None = None, version: int = 4
    ) -> DescribeConfigsResult:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(
            resources=(resource,), include_synonyms=True, **({"include_documentation": True} if version >= 3 else {})
        )
        [result] = self.ask(request, version).results
        assert (result.resource_type, result.resource_name) == (kind, name)
        found: DescribeConfigsResult = result
        return found

    def alter_configs(
        self, name: str, kind: int, *changes: tuple[str, int, str | None], validate_only: bool = False, version: int = 1
    ) -> tuple[int, str | None]:
        """`changes`: name, operation and value. Returns the error and its message."""
        configs = tuple(AlterableConfig(name=key, config_operation=does, value=value) for key, does, value in changes)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
        [response] = self.ask(request, version).responses
        return response.error_code, response.error_message

    def values(self, topic: str, offset: int = 0, partition: int = 0) -> list[bytes | None]:
        """The values of all records that a Fetch returns."""
        return values_of(self.ask(fetch_request(topic, offset, partition), 11))


class Wire:
    def __init__(
        self,
        storage: Storage | None = None,
        *,
        brokers: int = 1,
        racks: str = "",
        seed: int = 1,
        now: int = START_MS,
        stopwatch: Callable[[], int] = lambda: 0,
        parks_reads: bool = False,
        slots: Slots | None = None,
        **config: Any,
    ) -> None:
        """`racks`: a letter for the rack of each broker, or "" for none. `parks_reads`: storage answers when the test
        lets it (`reads`, `do_reads`)."""
        listeners = ",".join(f"127.0.0.1:{9092 + index}" for index in range(brokers))
        self.config = Config(brokers=brokers, listeners=listeners, **({"offsets_topic_num_partitions": 5} | config))
        self.storage: Storage = storage if storage is not None else MemoryStorage()
        self.now = now
        self.connections: dict[ConnectionId, Connection] = {}
        self.complaints: list[Complaint] = []
        """The complaints of all turns so far."""
        self.notices: list[Notice] = []
        """The notices of all turns so far."""
        self.tasks: list[HandedOut] = []
        """Work for the edge, which is done only if a test does it."""
        self.reads: list[ReadAsked] = []
        """Reads that the test has not done."""
        self.watch: Callable[[Turn], None] = lambda turn: None
        """Sees each turn."""
        self._next_connection = 0
        self.broker = Broker(
            self.config,
            self.storage,
            now=now,
            random=random.Random(seed),
            endpoints=[
                Endpoint("127.0.0.1", 9092 + index, racks[index] if racks else None) for index in range(brokers)
            ],
            stopwatch=stopwatch,
            parks_reads=parks_reads,
            slots=slots,
        ).load()
        self.step()

    def shard(self, group: str = "g") -> Shard:
        """The shard that owns a group."""
        return self.broker.state.shards[self.broker.state.shard_of(group)]

    def coordinator(self, group: str) -> int:
        """The broker that coordinates a group."""
        return self.broker.state.coordinator_of(self.broker.state.shard_of(group))

    def partitions(self, topic: str) -> list[Partition]:
        state = self.broker.state
        return state.topics.partitions[state.catalog.topics[topic].topic_id]

    def connect(
        self,
        broker_id: int = 1,
        client_id: str = "client",
        *,
        principal: Principal = ANONYMOUS,
        host: str = "127.0.0.1",
    ) -> Connection:
        self._next_connection += 1
        connection = Connection(self, ConnectionId(self._next_connection), client_id)
        self.connections[connection.id] = connection
        self.step(Opened(connection.id, broker_id, host, principal))
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
        self.end(self.broker.step(arrived, self.now))

    def end(self, turn: Turn) -> None:
        """Commit a turn, and release its answers."""
        self.watch(turn)
        self.complaints.extend(turn.complaints)
        self.notices.extend(turn.notices)
        self.tasks.extend(turn.tasks)
        self.reads.extend(turn.reads)
        if turn.operations:
            self.storage.commit(turn.operations, self.storage.acquire())
        for release in turn.releases:
            self.release(release)

    def found(self, asked: ReadAsked) -> ReadDone:
        """What storage has for a read now."""
        return outcome(self.storage.reader(), asked)

    def do_reads(self) -> int:
        """Do all reads, and those that their outcomes make necessary. Returns how many."""
        count = 0
        while self.reads:
            self.step(self.found(self.reads.pop(0)))
            count += 1
        return count

    def release(self, release: Release) -> None:
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
        self.end(turn)
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


def with_topic(partitions: int = 1, **config: Any) -> Connection:
    """A connection to a new broker that has the topic `t`."""
    client = Wire(**config).connect()
    client.create_topic("t", partitions)
    return client


def delete_topics(*names: str) -> DeleteTopicsRequest:
    """In version 5."""
    return DeleteTopicsRequest(topic_names=names, timeout_ms=1)


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


def fetch_request(
    topic: str, offset: int = 0, partition: int = 0, most: int = 1_048_576, **options: Any
) -> FetchRequest:
    """`most`: partition_max_bytes."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most)
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
