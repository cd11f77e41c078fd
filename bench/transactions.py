"""Transactions a second, the server's CPU and the time of each, and read_committed's latency; beside Apache Kafka.

The producers of native/load.c speak version 2 of the protocol (KIP-890), as Java's do: Produce adds the partitions,
TxnOffsetCommit the group's, EndTxn commits and gives the next epoch. So every request is known before the round: after
each commit the epoch is one higher and the sequences begin at 0. A round has new transactional ids, whose first
transaction Apache Kafka and kohort begin alike. After it, the log's ends show that every record and marker is there.

Latencies are those of librdkafka's producer and consumer (_librdkafka.py), which speak version 1."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from bench import _load
from bench._joined import CLIENT, Member, classic_members, coordinators_ready, create_topic
from bench._librdkafka import UNCOUNTED
from bench._load import LOAD_SHARE, load, times, warm_up
from bench._peers import NO_DELAY, TITLES, Server
from bench._run import Figures, Panel, Run, Subject, Table, Values
from kohort.client.admin.groups import Committed, Committer
from kohort.client.cluster import Cluster
from kohort.client.transactions import requests
from kohort.client.transactions.identity import LAST_EPOCH, Identity
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.batches import encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.records import NewRecord
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

SERVERS = ("compiled", "pure", "kafka", "synced")
SETTINGS = {
    "kohort": NO_DELAY,
    "kafka": {
        **NO_DELAY,
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    },
}
TOPIC, VALUE_BYTES = "transactions", 100
SHAPES = ((1, 1), (20, 1), (20, 10))
"""Records of a transaction, and the partitions to which they are spread."""
PRODUCERS = (50, 1)
"""Fifty first, because they warm a JVM up sooner."""
FIRST_MOST, MORE = 3_000, 4
"""Transactions a second that are prepared for the first round, and for later ones, in times of the rate of the last
one. A round ends early if a producer has committed all of its transactions."""
SECONDS, QUICK_SECONDS = 3.0, 1.5
"""Longer than those of other subjects, because a transaction of fifty producers takes up to half a second."""
READY_S = 60.0
TIMEOUT_MS = 60_000
PRODUCE, OFFSETS, END = 12, 5, 5
"""Versions of the requests."""
LATENCY, QUICK_LATENCY = 300, 60
"""Transactions of a round whose latencies are measured."""
LATENCY_ROW = "librdkafka, 1 record, 50 a second"


@dataclass(frozen=True, slots=True)
class Case:
    records: int
    partitions: int
    offsets: bool
    producers: int

    @property
    def row(self) -> str:
        made = f"{self.records} record{'s' if self.records > 1 else ''}, {self.partitions} partition"
        made += ("s" if self.partitions > 1 else "") + (", offsets" if self.offsets else "")
        return f"{made}, {self.producers} producer{'s' if self.producers > 1 else ''}"

    @property
    def topic(self) -> str:
        return f"{TOPIC}-{self.partitions}"

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(self.topic, index) for index in range(self.partitions)]

    @property
    def errors(self) -> list[int]:
        """Where the answers have their first error: after the header, with the topic's name in the first two."""
        named = 5 + 1 + 1 + len(self.topic) + 1 + 4
        return [named, *([named + 4] if self.offsets else ()), 5 + 4]


def measure(run: Run) -> None:
    with run.servers(SERVERS, SETTINGS) as servers:
        coordinators_ready(servers)
        for server in servers:
            for _, partitions in SHAPES:
                create_topic(server, f"{TOPIC}-{partitions}", partitions)
            create_topic(server, TOPIC, 1)
        for producers in PRODUCERS:
            for offsets in (False, True):
                for records, partitions in SHAPES:
                    _measure(run, servers, Case(records, partitions, offsets, producers))
        _latencies(run, servers)


def _measure(run: Run, servers: Sequence[Server], case: Case) -> None:
    members: dict[Server, list[Member]] = {server: [] for server in servers}
    if case.offsets:
        for server in servers:
            members[server] = classic_members(server, f"{case.row}, {server.name}", case.producers)
    most = dict.fromkeys(servers, float(FIRST_MOST))

    def once(server: Server, seconds: float) -> Values:
        done = transact(server, case, members[server], seconds, most[server])
        most[server] = MORE * max(done["rate"], case.producers)
        return done

    for server in servers:
        warm_up(run, server, lambda server=server: once(server, _load.WARM_S)["cpu_us"])
    for _ in range(run.rounds):
        for server in servers:
            run.measure(case.row, server, lambda server=server: once(server, QUICK_SECONDS if run.quick else SECONDS))


# -- rates


def transact(server: Server, case: Case, members: Sequence[Member], seconds: float, most: float = FIRST_MOST) -> Values:
    """A round of transactions, at most so many a second. Raises AssertionError if a log lacks records or markers."""
    producers = _producers(server, [f"{case.row}-{time.monotonic_ns()}-{n}" for n in range(case.producers)])
    count = min(LAST_EPOCH, math.ceil(most * seconds / case.producers))
    prepared = [
        _transactions(case, name, identity, members[n] if members else None, count)
        for n, (name, identity) in enumerate(producers.items())
    ]
    with Cluster(server.bootstrap) as cluster:
        before = cluster.offsets(case.places, isolation="read_committed")
        done = dict(load(server, prepared, depth=1, seconds=seconds, steps=case.errors))
        more = int(done.pop("transactions")) * (case.records // case.partitions + 1)
        wanted = {place: offset + more for place, offset in before.items()}
        deadline = time.monotonic() + READY_S
        while (after := cluster.offsets(case.places, isolation="read_committed")) != wanted:
            assert time.monotonic() < deadline, f"the logs end at {after} instead of {wanted}"
            time.sleep(0.05)
    return done


def _producers(server: Server, names: Sequence[str]) -> dict[str, Identity]:
    """The producer ids of new transactional ids. Apache Kafka creates the topic of its coordinators at the first."""
    found = {}
    with closing(Connection(*server.address)) as connection:
        for name in names:
            deadline = time.monotonic() + READY_S
            while name not in found:
                connection.request(
                    FindCoordinatorRequest(key_type=1, coordinator_keys=(name,)), FindCoordinatorResponse
                )
                asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
                answer = connection.request(asked, InitProducerIdResponse)
                if answer.error_code == 0:
                    found[name] = Identity(answer.producer_id, answer.producer_epoch)
                else:
                    assert time.monotonic() < deadline, answer
                    time.sleep(0.05)
    return found


def _transactions(case: Case, name: str, first: Identity, member: Member | None, count: int) -> list[bytes]:
    """The requests of `count` transactions, one epoch each."""
    record = NewRecord(timestamp=int(time.time() * 1e3), key=b"key", value=b"v" * VALUE_BYTES)
    batch = encode_batch([record] * (case.records // case.partitions))
    made = []
    for epoch in range(first.epoch, first.epoch + count):
        now = Identity(first.producer_id, epoch)
        batches = dict.fromkeys(case.places, requests.stamped(batch, now, 0))
        made.append(encode_request(requests.produce(name, TIMEOUT_MS, case.places, batches), PRODUCE, 0, CLIENT))
        if member is not None:
            offsets = dict.fromkeys(case.places, Committed(epoch + 1))
            owner = Committer(member.member_id, member.generation)
            asked = requests.offset_commit(name, now, member.group, offsets, owner)
            made.append(encode_request(asked, OFFSETS, 0, CLIENT))
        ended = EndTxnRequest(
            transactional_id=name, producer_id=now.producer_id, producer_epoch=now.epoch, committed=True
        )
        made.append(encode_request(ended, END, 0, CLIENT))
    return made


# -- latencies


def _latencies(run: Run, servers: Sequence[Server]) -> None:
    count = QUICK_LATENCY if run.quick else LATENCY

    def once(server: Server) -> Values:
        words = ["transact", server.bootstrap, TOPIC, str(count)]
        command = [sys.executable, "-m", "bench._librdkafka", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300, text=True)
        found: Values = json.loads(done.stdout)
        return found

    for _ in range(run.rounds):
        for server in servers:
            run.measure(
                LATENCY_ROW,
                server,
                lambda server=server: once(server),
                lambda done, cpu: {
                    **{name: value for name, value in done.items() if name.endswith("_us")},
                    "latency_cpu_us": cpu / (count + UNCOUNTED) * 1e6,
                    "client_us": done["own_cpu"] / count * 1e6,
                },
            )


TABLES = (
    Table("CPU of the server per transaction, µs", lambda v: f"{v.get('cpu_us', v.get('latency_cpu_us', 0)):.0f}"),
    Table("Transactions a second", lambda v: f"{v['rate']:,.0f}"),
    Table("Commit: median and 99th percentile of EndTxn's answers, ms", lambda v: times(v, "last_")),
    Table("Whole transactions: the same times, ms", lambda v: times(v)),
    Table("librdkafka's commit_transaction(): the same times, ms", lambda v: times(v, "commit_")),
    Table("From produce() to a consumer with read_committed: the same times, ms", lambda v: times(v, "read_")),
    Table("CPU of the client per transaction, µs", lambda v: f"{v['client_us']:.0f}"),
    LOAD_SHARE,
)
PANELS = (
    Panel("CPU per transaction, 50 producers", "20 records, 10 partitions, offsets, 50 producers", "cpu_us", "µs"),
    Panel("Transactions, 50 producers", "20 records, 10 partitions, offsets, 50 producers", "rate", "1/s"),
)
COLUMNS = {**{name: TITLES[name] for name in ("compiled", "pure", "kafka")}, "synced": "Apache Kafka, synced"}
SUBJECT = Subject("transactions", measure, TABLES, PANELS, COLUMNS, Figures.typical, needs_load=True)
