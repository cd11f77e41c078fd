"""Records of a share group a second, the server's CPU for each request, and its time; beside Apache Kafka.

Each connection is the only member of a share group of its own and reads one partition. A ShareFetch acquires the next
records and acknowledges the last ones, so every request of a round is known before it. The first round of a row has the
plain Fetch of the same batches beside it. Each round has new groups. After it, the groups' offsets show that the
records were acknowledged."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from bench._joined import CLIENT, coordinators_ready, create_topic
from bench._load import LOAD_SHARE, load, times, warm_up
from bench._peers import NO_DELAY, TITLES, Server
from bench._run import Figures, Panel, Run, Subject, Table, Values
from kohort.client.cluster import Cluster
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.batches import encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.records import NewRecord
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    OffsetsAskedGroup,
)
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.share_fetch import AcknowledgementBatch, ShareFetchRequest
from kohort.wire.schemas.share_fetch import FetchPartition as ShareFetchPartition
from kohort.wire.schemas.share_fetch import FetchTopic as ShareFetchTopic
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

SERVERS = ("compiled", "pure", "kafka", "synced")
SETTINGS = {
    "kohort": {**NO_DELAY, "group.share.enable": "true"},
    "kafka": {
        **NO_DELAY,
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.share.max.share.sessions": "10000",
    },
}
READY_S = 60.0
SECONDS, QUICK_SECONDS = 3.0, 1.5
ERROR_AT = 4 + 1 + 4
"""Of ShareFetch: after the header and the time of throttling."""
PRODUCE, FETCH, SHARE_FETCH = 9, 12, 1
"""Versions of the requests. ShareFetch 1 is the first one that is stable."""
ACCEPT = (1,)


@dataclass(frozen=True, slots=True)
class Case:
    records: int
    """Of a batch, and of a ShareFetch."""
    size: int
    """Bytes of a record's value."""
    members: int
    batches: int
    """Of each member's partition."""

    @property
    def row(self) -> str:
        records = f"{self.records} record{'s' if self.records > 1 else ''} of {self.size:,} bytes"
        return f"{records}, {self.members} member{'s' if self.members > 1 else ''}"

    @property
    def topics(self) -> list[str]:
        return [f"queue-{self.records}-{self.size}-{self.members}-{number:02}" for number in range(self.members)]


CASES = (
    Case(500, 100, 1, 3_000),
    Case(500, 100, 50, 80),
    Case(50, 1_000, 1, 3_000),
    Case(1, 100, 1, 20_000),
    Case(1, 100, 50, 800),
)


def measure(run: Run) -> None:
    with run.servers(SERVERS, SETTINGS) as servers:
        coordinators_ready(servers)
        for case in CASES:
            _measure(run, servers, case)


def _measure(run: Run, servers: Sequence[Server], case: Case) -> None:
    for server in servers:
        _fill(server, case)
        warm_up(run, server, lambda server=server: _fetched(run, server, case)["cpu_us"])
        warm_up(run, server, lambda server=server: _shared(run, server, case)["cpu_us"])
    for _ in range(run.rounds):
        for server in servers:
            run.measure(f"{case.row}, Fetch", server, lambda server=server: _fetched(run, server, case))
            run.measure(case.row, server, lambda server=server: _shared(run, server, case))


def _fill(server: Server, case: Case) -> None:
    """Produce the batches of all partitions: one after the other, because a load ends with its first connection."""
    record = NewRecord(timestamp=int(time.time() * 1e3), key=b"key", value=b"v" * case.size)
    batch = encode_batch([record] * case.records)
    error_at = 5 + 1 + 1 + len(case.topics[0]) + 1 + 4
    for topic in case.topics:
        create_topic(server, topic, 1)
        data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=batch),))
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=60_000, topic_data=(data,))
        frames = [encode_request(request, PRODUCE, 0, CLIENT)] * case.batches
        load(server, [frames], depth=1, seconds=READY_S, steps=[error_at])
    with Cluster(server.bootstrap) as cluster:
        ends = cluster.offsets([(topic, 0) for topic in case.topics])
    assert set(ends.values()) == {case.records * case.batches}, ends


def _once(run: Run, server: Server, frames: Sequence[Sequence[bytes]], error_at: int) -> Values:
    """Each request once, in turn."""
    seconds = QUICK_SECONDS if run.quick else SECONDS
    return load(server, frames, depth=1, seconds=seconds, steps=[error_at])


def _fetched(run: Run, server: Server, case: Case) -> Values:
    """A Fetch of one batch after the other."""
    size = len(encode_batch([NewRecord(timestamp=0, key=b"key", value=b"v" * case.size)] * case.records))
    frames = []
    for topic in case.topics:
        mine = []
        for number in range(case.batches):
            partition = FetchPartition(
                partition=0, fetch_offset=number * case.records, partition_max_bytes=size, log_start_offset=-1
            )
            request = FetchRequest(
                replica_id=-1, max_wait_ms=500, min_bytes=1, topics=(FetchTopic(topic=topic, partitions=(partition,)),)
            )
            mine.append(encode_request(request, FETCH, 0, CLIENT))
        frames.append(mine)
    done = dict(_once(run, server, frames, ERROR_AT))
    done.pop("transactions", None)
    return done


def _shared(run: Run, server: Server, case: Case) -> Values:
    """New groups, whose members fetch and acknowledge one batch after the other."""
    groups = {f"{case.row} {time.monotonic_ns()} {topic}": topic for topic in case.topics}
    frames = [_requests(case, group, *_joined(server, group, topic)) for group, topic in groups.items()]
    done = dict(_once(run, server, frames, ERROR_AT))
    fetches = done.pop("transactions")
    # What the last ShareFetch of each member acquired is not acknowledged, nor is one that was under way at the end.
    least = case.records * max(0.0, fetches - 2 * case.members)
    deadline = time.monotonic() + READY_S
    while (acknowledged := _acknowledged(server, groups)) < least:
        assert time.monotonic() < deadline, f"{acknowledged} records of {least} are acknowledged"
        time.sleep(0.05)
    return {**done, "records_s": case.records * done.get("rate", 0.0)}


def _joined(server: Server, group: str, topic: str) -> tuple[str, bytes]:
    """Join a share group that begins at the beginning. Returns the member's id and the topic's, once it is assigned."""
    with Cluster(server.bootstrap) as cluster:
        cluster.alter_group_configs(group, {"share.auto.offset.reset": "earliest"})
    member, epoch, names = str(uuid.uuid4()), 0, (topic,)
    deadline = time.monotonic() + READY_S
    with closing(Connection(*server.address)) as connection:
        while True:
            request = ShareGroupHeartbeatRequest(
                group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
            )
            answer = connection.request(request, ShareGroupHeartbeatResponse)
            if answer.error_code == 0:
                epoch = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return member, answer.assignment.topic_partitions[0].topic_id
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)


def _requests(case: Case, group: str, member: str, topic_id: bytes) -> list[bytes]:
    made = []
    for number in range(case.batches):
        first = (number - 1) * case.records
        done = AcknowledgementBatch(first_offset=first, last_offset=first + case.records - 1, acknowledge_types=ACCEPT)
        partition = ShareFetchPartition(partition_index=0, acknowledgement_batches=(done,) if number else ())
        request = ShareFetchRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=number,
            max_wait_ms=500,
            min_bytes=1,
            max_records=case.records,
            batch_size=case.records,
            topics=(ShareFetchTopic(topic_id=topic_id, partitions=(partition,)),),
        )
        made.append(encode_request(request, SHARE_FETCH, 0, CLIENT))
    return made


def _acknowledged(server: Server, groups: Iterable[str]) -> int:
    """How many records the groups have finished."""
    total = 0
    with closing(Connection(*server.address)) as connection:
        for group in groups:
            asked = DescribeShareGroupOffsetsRequest(groups=(OffsetsAskedGroup(group_id=group, topics=None),))
            [answer] = connection.request(asked, DescribeShareGroupOffsetsResponse).groups
            assert answer.error_code == 0, answer
            total += sum(max(0, part.start_offset) for topic in answer.topics for part in topic.partitions)
    return total


TABLES = (
    Table("CPU of the server for each request, µs (median of the rounds)", lambda v: f"{v['cpu_us']:,.0f}"),
    Table("Requests a second; records a second", lambda v: f"{v['rate']:,.0f}; {v['records_s']:,.0f}"),
    Table("Time of a request: median, 99th percentile, ms", times),
    LOAD_SHARE,
)
PANELS = (Panel("CPU of a ShareFetch of 500 records", CASES[0].row, "cpu_us", "µs"),)
COLUMNS = {**{name: TITLES[name] for name in ("compiled", "pure", "kafka")}, "synced": "Apache Kafka, synced"}
SUBJECT = Subject("queues", measure, TABLES, PANELS, COLUMNS, Figures.typical, needs_load=True)
