"""The clients that must not suffer, in a process of their own: `python hostile_victim.py HOST:PORT`.

A member of a classic group and one of a consumer group send heartbeats, another connection commits for the classic
member, and a newcomer connects and produces a record again and again. Each request's time counts, also while it waits.
Reads commands on stdin: `mark` forgets the times so far, `report` is answered with a JSON line.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from kohort.client.errors import KafkaError
from kohort.client.wire import exchange
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

TOPIC = "victim"
GROUP = "victim"
CONSUMERS = "victim-consumers"
SESSION_MS = 6_000
ANSWER_MS = 120_000
EVERY_S = {"heartbeat": 0.02, "commit": 0.02, "newcomer": 0.1}
VALUE = bytes(10_000)


def connect(address: str) -> Connection:
    host, _, port = address.rpartition(":")
    return Connection(host, int(port), client_id="victim", connect_timeout_ms=ANSWER_MS, request_timeout_ms=ANSWER_MS)


class Probe(threading.Thread, ABC):
    """Does the same over and over, and notes how long it took."""

    kind: str

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.violations: list[str] = []
        self._times: list[float] = []
        self._began: float | None = None
        self._marked = 0.0

    def run(self) -> None:
        while True:
            self._began = time.monotonic()
            try:
                self.once()
            except KafkaError as error:
                self.violations.append(f"{type(self).__name__}: {error}")
                return
            now = time.monotonic()
            self._times.append(now - max(self._began, self._marked))
            self._began = None
            time.sleep(EVERY_S[self.kind])

    def mark(self) -> None:
        self._marked = time.monotonic()
        self._times = []

    def times(self) -> list[float]:
        """Since the mark, and how long the present request has taken."""
        began = self._began
        return [*self._times, *([] if began is None else [time.monotonic() - max(began, self._marked)])]

    @abstractmethod
    def once(self) -> None: ...

    def lost(self, what: str, error_code: int) -> None:
        if error_code and len(self.violations) < 5:
            self.violations.append(f"{type(self).__name__}: {what} was answered with error {error_code}")


class ClassicMember(Probe):
    kind = "heartbeat"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._connection = connect(address)
        joined = self._connection.request(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id="",
                protocol_type="victim",
                protocols=(JoinGroupRequestProtocol(name="any", metadata=b""),),
            ),
            JoinGroupResponse,
            version=3,
        )
        self.member_id, self.generation = joined.member_id, joined.generation_id
        given = (SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all"),)
        synced = self._connection.request(
            SyncGroupRequest(
                group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=given
            ),
            SyncGroupResponse,
            version=3,
        )
        assert (joined.error_code, synced.error_code) == (0, 0), (joined, synced)

    def once(self) -> None:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        self.lost("Heartbeat", self._connection.request(request, HeartbeatResponse).error_code)


class ConsumerMember(Probe):
    kind = "heartbeat"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._connection = connect(address)
        self._member_id = "victim"
        self._epoch = 0
        self._owned: Any = ()
        self._send(topics=(TOPIC,), owned=())
        assert self._epoch > 0, self.violations

    def once(self) -> None:
        self._send(owned=self._owned)

    def _send(self, *, topics: tuple[str, ...] | None = None, owned: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=CONSUMERS,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=45_000 if topics else -1,
            subscribed_topic_names=topics,
            topic_partitions=owned,
        )
        answer = self._connection.request(request, ConsumerGroupHeartbeatResponse, version=1)
        self.lost("ConsumerGroupHeartbeat", answer.error_code)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = answer.assignment.topic_partitions


class Committer(Probe):
    kind = "commit"

    def __init__(self, address: str, member: ClassicMember) -> None:
        super().__init__(address)
        self._connection = connect(address)
        self._member = member
        self.acknowledged = 0

    def once(self) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.acknowledged + 1)
        answer = self._connection.request(
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self._member.generation,
                member_id=self._member.member_id,
                topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
            ),
            OffsetCommitResponse,
            version=8,
        )
        error_code = answer.topics[0].partitions[0].error_code
        self.lost("OffsetCommit", error_code)
        if not error_code:
            self.acknowledged += 1


class Newcomer(Probe):
    """Connects and produces; small frames must get through while others hold much."""

    kind = "newcomer"
    acknowledged = -1

    def once(self) -> None:
        connection = connect(self.address)
        try:
            data = PartitionProduceData(index=0, records=encode_batch([NewRecord(None, VALUE, 1)]))
            topic = TopicProduceData(name=TOPIC, partition_data=(data,))
            request = ProduceRequest(acks=-1, timeout_ms=ANSWER_MS, topic_data=(topic,))
            answer = connection.request(request, ProduceResponse, version=9)
        finally:
            connection.close()
        [result] = answer.responses[0].partition_responses
        self.lost("Produce", result.error_code)
        if not result.error_code:
            self.acknowledged = max(self.acknowledged, result.base_offset)


def prepare(address: str) -> None:
    """The topic; and the consumer group's heartbeats are not held, because the time of their answers is measured."""
    connection = connect(address)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=())
    answer = connection.request(CreateTopicsRequest(topics=(topic,), timeout_ms=30_000), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer
    setting = AlterableConfig(name="consumer.heartbeat.hold.enable", config_operation=0, value="false")
    resource = AlterConfigsResource(resource_type=32, resource_name=CONSUMERS, configs=(setting,))
    altered = connection.request(
        IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False), IncrementalAlterConfigsResponse
    )
    assert altered.responses[0].error_code == 0, altered
    connection.close()


def missing(address: str, commits: int, records: int) -> list[str]:
    """What the server has acknowledged and does not have."""
    connection = connect(address)
    wanted = (OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,)),)
    fetched = connection.request(OffsetFetchRequest(group_id=GROUP, topics=wanted), OffsetFetchResponse, version=7)
    committed = fetched.topics[0].partitions[0].committed_offset
    partitions = (ListOffsetsPartition(partition_index=0, timestamp=-1),)
    listed = connection.request(
        ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=TOPIC, partitions=partitions),)),
        ListOffsetsResponse,
        version=5,
    )
    end = listed.topics[0].partitions[0].offset
    connection.close()
    found = [f"offset {commits} was acknowledged, {committed} is committed"] if committed < commits else []
    return found + ([f"record {records} was acknowledged, the log ends at {end}"] if end <= records else [])


def main() -> None:
    exchange.SOFTWARE_NAME = "victim"  # heartbeats of kohort's own clients in classic groups may be held
    address = sys.argv[1]
    prepare(address)
    member = ClassicMember(address)
    committer, newcomer = Committer(address, member), Newcomer(address)
    probes: list[Probe] = [member, ConsumerMember(address), committer, newcomer]
    for probe in probes:
        probe.start()
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "mark\n":
            for probe in probes:
                probe.mark()
            continue
        times = {kind: [t for probe in probes if probe.kind == kind for t in probe.times()] for kind in EVERY_S}
        violations = [violation for probe in probes for violation in probe.violations]
        acknowledged = (committer.acknowledged, newcomer.acknowledged)
        print(json.dumps({"times": times, "violations": violations, "acknowledged": acknowledged}), flush=True)


if __name__ == "__main__":
    main()
