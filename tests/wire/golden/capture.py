"""Records what real clients send: `python tests/wire/golden/capture.py` rewrites requests.json beside this file.

A socket that answers just enough (one broker, one topic, one partition, a group of one) for the clients to run
through produce, group and commit. Of each client, the first request of every API and version is kept, and one
Produce a compression.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import kohort.wire.schemas
from kohort.wire import schema
from kohort.wire.batches import read_header
from kohort.wire.codec import decode, encode_response, is_flexible
from kohort.wire.framing import FrameSplitter, body_offset, read_request_header
from kohort.wire.schemas.api_versions import ApiVersion, ApiVersionsResponse
from kohort.wire.schemas.fetch import FetchResponse
from kohort.wire.schemas.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdResponse
from kohort.wire.schemas.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.schemas.leave_group import LeaveGroupResponse
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.schemas.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kohort.wire.schemas.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse

TOPIC = "t"
TOPIC_ID = bytes(range(16))
SERVED = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 22)


def requests_by_key() -> dict[int, schema.Schema]:
    for module in pkgutil.iter_modules(kohort.wire.schemas.__path__):
        importlib.import_module(f"kohort.wire.schemas.{module.name}")
    return {
        known.api_key: known
        for known in schema._SCHEMAS.values()
        if known.api_key is not None and known.name.endswith("Request")
    }


class Recorder:
    """Accepts connections, keeps every request, answers the few that clients need."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.schemas = requests_by_key()
        self.client = ("", "")
        self.seen: dict[tuple[str, int, int, int], dict[str, Any]] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        splitter = FrameSplitter(10_000_000)
        while data := connection.recv(65536):
            for frame in splitter.feed(data):
                answer = self._answer(frame)
                try:
                    connection.sendall(answer)
                except OSError:  # the client has left
                    return

    def _answer(self, frame: bytes) -> bytes:
        header = read_request_header(frame)
        known = self.schemas[header.api_key]
        assert known.versions is not None
        if header.api_version not in known.versions:
            response: Any = ApiVersionsResponse(error_code=35)
            return encode_response(response, 0, header.correlation_id, api_key=header.api_key)
        flexible = is_flexible(known.cls, header.api_version)
        request: Any = decode(known.cls, header.api_version, frame, body_offset(frame, flexible))
        compression = 0
        if header.api_key == 0:
            compression = read_header(request.topic_data[0].partition_data[0].records).compression
        client, version = self.client
        self.seen.setdefault(
            (client, header.api_key, header.api_version, compression),
            {
                "client": client,
                "client_version": version,
                "api": known.name.removesuffix("Request"),
                "version": header.api_version,
                "hex": frame.hex(),
            },
        )
        response = self._respond(header.api_key, request)
        return encode_response(response, header.api_version, header.correlation_id, api_key=header.api_key)

    def _respond(self, api_key: int, request: Any) -> Any:
        match api_key:
            case 18:
                ranges = [(key, self.schemas[key].versions) for key in SERVED]
                keys = [ApiVersion(api_key=key, min_version=r.first, max_version=r.last) for key, r in ranges if r]
                return ApiVersionsResponse(api_keys=tuple(keys))
            case 3:
                partition = MetadataResponsePartition(leader_id=1, leader_epoch=0, replica_nodes=(1,), isr_nodes=(1,))
                return MetadataResponse(
                    brokers=(MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port),),
                    cluster_id="golden",
                    controller_id=1,
                    topics=(MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=(partition,)),),
                )
            case 10:
                place = {"node_id": 1, "host": "127.0.0.1", "port": self.port}
                found = tuple(Coordinator(key=key, **place) for key in request.coordinator_keys)
                return FindCoordinatorResponse(**place, coordinators=found)
            case 22:
                return InitProducerIdResponse(producer_id=1000, producer_epoch=0)
            case 0:
                done = TopicProduceResponse(
                    name=TOPIC, topic_id=TOPIC_ID, partition_responses=(PartitionProduceResponse(base_offset=0),)
                )
                return ProduceResponse(responses=(done,))
        return self._respond_in_group(api_key, request)

    def _respond_in_group(self, api_key: int, request: Any) -> Any:
        match api_key:
            case 11:
                chosen = request.protocols[0]
                member = request.member_id or "member-1"
                return JoinGroupResponse(
                    generation_id=1,
                    protocol_type=request.protocol_type,
                    protocol_name=chosen.name,
                    leader=member,
                    member_id=member,
                    members=(JoinGroupResponseMember(member_id=member, metadata=chosen.metadata),),
                )
            case 14:
                return SyncGroupResponse(
                    protocol_type=request.protocol_type,
                    protocol_name=request.protocol_name,
                    assignment=request.assignments[0].assignment,
                )
            case 12:
                return HeartbeatResponse()
            case 13:
                return LeaveGroupResponse()
            case 9:
                old = OffsetFetchResponsePartition(partition_index=0, committed_offset=-1)
                new = OffsetFetchResponsePartitions(partition_index=0, committed_offset=-1)
                topics = (OffsetFetchResponseTopics(name=TOPIC, topic_id=TOPIC_ID, partitions=(new,)),)
                groups = tuple(OffsetFetchResponseGroup(group_id=g.group_id, topics=topics) for g in request.groups)
                return OffsetFetchResponse(
                    topics=(OffsetFetchResponseTopic(name=TOPIC, partitions=(old,)),), groups=groups
                )
            case 8:
                committed = OffsetCommitResponseTopic(
                    name=TOPIC, topic_id=TOPIC_ID, partitions=(OffsetCommitResponsePartition(partition_index=0),)
                )
                return OffsetCommitResponse(topics=(committed,))
            case 2:
                found = ListOffsetsPartitionResponse(partition_index=0, offset=0, leader_epoch=0)
                return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name=TOPIC, partitions=(found,)),))
        assert api_key == 1
        time.sleep(0.1)
        return FetchResponse()


def run_confluent(recorder: Recorder) -> None:
    import confluent_kafka

    recorder.client = ("confluent-kafka", f"{confluent_kafka.version()} librdkafka {confluent_kafka.libversion()[0]}")
    servers = f"127.0.0.1:{recorder.port}"
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "compression.type": compression, "linger.ms": 100}
        )
        for i in range(20):
            producer.produce(TOPIC, b"value " * i, b"key" if i % 2 else None, headers=[("h", b"x"), ("n", None)])
        producer.flush(10)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "client.id": "golden", "heartbeat.interval.ms": 300}
    )
    consumer.subscribe([TOPIC])
    consumer.poll(2)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    consumer.close()


def run_kafka_python(recorder: Recorder) -> None:
    import kafka

    recorder.client = ("kafka-python", kafka.__version__)
    servers = [f"127.0.0.1:{recorder.port}"]
    for compression in (None, "gzip"):
        producer = kafka.KafkaProducer(bootstrap_servers=servers, compression_type=compression, linger_ms=100)
        for i in range(20):
            producer.send(TOPIC, b"value " * i, b"key" if i % 2 else None, headers=[("h", b"x")])
        producer.flush(10)
        producer.close(5)
    consumer = kafka.KafkaConsumer(
        TOPIC, bootstrap_servers=servers, group_id="g", heartbeat_interval_ms=300, enable_auto_commit=False
    )
    consumer.poll(2000)
    consumer.commit({kafka.TopicPartition(TOPIC, 0): kafka.OffsetAndMetadata(5, "note", -1)})
    consumer.close()


def run_aiokafka(recorder: Recorder) -> None:
    import aiokafka

    recorder.client = ("aiokafka", aiokafka.__version__)
    servers = f"127.0.0.1:{recorder.port}"

    async def run() -> None:
        for compression in (None, "gzip", "snappy", "lz4", "zstd"):
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, compression_type=compression, linger_ms=100)
            await producer.start()
            for i in range(20):
                await producer.send(TOPIC, b"value " * i, b"key" if i % 2 else None, headers=[("h", b"x")])
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC, bootstrap_servers=servers, group_id="g", heartbeat_interval_ms=300, enable_auto_commit=False
        )
        await consumer.start()
        await consumer.getmany(timeout_ms=2000)
        await consumer.commit({aiokafka.TopicPartition(TOPIC, 0): 5})
        await consumer.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def main() -> None:
    recorder = Recorder()
    for run in (run_confluent, run_kafka_python, run_aiokafka):
        if len(sys.argv) < 2 or run.__name__.endswith(sys.argv[1]):
            run(recorder)
    kept = [recorder.seen[key] for key in sorted(recorder.seen)]
    path = Path(__file__).with_name("requests.json")
    path.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in kept) + "\n]\n")
    print(f"{len(kept)} requests in {path.name}")
    for entry in kept:
        print(entry["client"], entry["api"], entry["version"], len(entry["hex"]) // 2)


if __name__ == "__main__":
    main()
