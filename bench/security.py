"""The server's CPU for heartbeats, commits, produce and fetch without TLS, with TLS, and with TLS, SASL and 1,000 ACLs;
beside Apache Kafka. Handshakes, the memory of a connection, and a member's heartbeats during a storm of handshakes.

Each server runs twice: *open*, with a listener without TLS and one with TLS, and *guarded*, with ACLs, and a listener
with TLS and SASL besides. The load (_secured_load.py) is a program in Python: its rates say nothing, so the figures are
the CPU of the server. Apache Kafka's plain listener has no row with ACLs, because its brokers need all rights there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import _kafka as apache
from bench._joined import CLIENT, classic_members, commit, coordinators_ready, create_topic, heartbeat
from bench._load import Requests, warm_up, write_requests
from bench._peers import APACHE, COMPILED, PURE, SERVER_CORE, TITLES, Server, kafka_jars, pairs
from bench._process import Address, pinned, program
from bench._run import Panel, Run, Subject, Table, Values
from bench._secured_load import PASSWORD, PLAIN, SASL, TLS, USER, answer, opened
from kohort.client.admin.acls import ALLOW, LITERAL, OPERATIONS, PREFIXED, RESOURCES, AclBinding
from kohort.client.cluster import Cluster
from kohort.config import AUTHORIZER
from kohort.security.certificates import AUTHORITY, SERVER, development_certificates, write_certificates
from kohort.wire.batches import encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.records import NewRecord
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

SERVERS = ("compiled", "pure", "kafka")
CLIENTS = 50
ACLS = 1_000
TOPIC, GROUPS = "security", "secured"
RECORDS, VALUE_BYTES = 10, 100
ROOT = "root"
CONNECTIONS, QUICK_CONNECTIONS = 400, 100
"""Opened for the cost of a handshake and the memory of a connection."""
STORM = 1_000
HEARTBEAT_S = 0.01
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{MODULE} user_{ROOT}="{PASSWORD}" user_{USER}="{PASSWORD}" ;'
OPEN = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL"}
GUARDED = {**OPEN, "SASL": "SASL_SSL"}
PRODUCE, FETCH = 9, 12
WAYS = {
    "without TLS": (False, PLAIN),
    "TLS": (False, TLS),
    f"without TLS, {ACLS:,} ACLs": (True, PLAIN),
    f"TLS, SASL, {ACLS:,} ACLs": (True, SASL),
}
"""Whether the server is guarded, and the connection."""


@dataclass(frozen=True, slots=True)
class Secured:
    """A server, open or guarded, and the addresses of its listeners."""

    server: Server
    addresses: Mapping[str, Address]

    @property
    def guarded(self) -> bool:
        return SASL in self.addresses


def measure(run: Run) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_certificates(folder, *development_certificates(("localhost", "127.0.0.1"), (), 1))
        both = [
            stack.enter_context(_started(name, folder, listeners))
            for name in run.names(SERVERS)
            for listeners in (OPEN, GUARDED)
        ]
        requests = {secured.server: _requests(secured) for secured in both}
        for kind in next(iter(requests.values())):
            for way, (guarded, connection) in WAYS.items():
                ready = [
                    s for s in both if s.guarded is guarded and not (_is_apache(s) and guarded and connection == PLAIN)
                ]
                _rates(run, f"{kind}, {way}", ready, connection, {s.server: requests[s.server][kind] for s in ready})
        _connections(run, both)
        _storms(run, both)


def _is_apache(secured: Secured) -> bool:
    return secured.server.name in APACHE


# -- the servers


@contextmanager
def _started(name: str, folder: Path, protocols: Mapping[str, str]) -> Iterator[Secured]:
    ports = apache.free_ports(len(protocols))
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / SERVER),
        "listener.security.protocol.map": ",".join(
            f"{n}:{p}" for n, p in (protocols | {"CONTROLLER": "PLAINTEXT"}).items()
        ),
        "group.initial.rebalance.delay.ms": "0",
    }
    if protocols is GUARDED:
        settings |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": JAAS,
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ROOT}" + (";User:ANONYMOUS" if name in APACHE else ""),
        }
    at = dict(zip(protocols, (("127.0.0.1", port) for port in ports), strict=True))
    with ExitStack() as stack:
        with pinned(SERVER_CORE):
            if name in APACHE:
                listeners = {listener: port for listener, (_, port) in at.items() if listener != "PLAINTEXT"}
                pid, at["PLAINTEXT"] = stack.enter_context(apache.kafka(kafka_jars(), settings, listeners))
            else:
                settings["listeners"] = ",".join(f"{listener}://{host}:{port}" for listener, (host, port) in at.items())
                settings["listener.security.protocol.map"] = ",".join(f"{n}:{p}" for n, p in protocols.items())
                pid, _ = stack.enter_context(_kohort(name, settings))
        names = {"PLAINTEXT": PLAIN, "TLS": TLS, "SASL": SASL}
        secured = Secured(
            Server(name, pid, at["PLAINTEXT"]), {names[listener]: where for listener, where in at.items()}
        )
        if secured.guarded:
            _create_acls(secured, folder)
        yield secured


@contextmanager
def _kohort(name: str, settings: Mapping[str, str]) -> Iterator[tuple[int, Address]]:
    with tempfile.TemporaryDirectory() as fresh:
        command = [sys.executable, "-m", "kohort", "serve", "--data-dir", fresh, "--set", "log.format=logfmt"]
        for setting in pairs(settings):
            command += ["--set", setting]
        ready = r"listeners=[^ ]*?//([^ :]+):(\d+).* took_ms="
        with program(command, ready, PURE if name == "pure" else COMPILED) as running:
            yield running


def _create_acls(secured: Secured, folder: Path) -> None:
    """Those of the load's users, and others: about other topics and groups, and of other users about the same ones."""
    mine = [
        _acl(user, resource, name, operation, pattern)
        for user in (USER, "ANONYMOUS")
        for resource, name, pattern, operations in (
            ("topic", TOPIC, LITERAL, ("read", "write", "describe", "create")),
            ("group", GROUPS, PREFIXED, ("read",)),
        )
        for operation in operations
    ]
    others = [_other(n) for n in range(ACLS - len(mine))]
    bindings = [*mine, *others]
    root = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ROOT,
        "sasl.password": PASSWORD,
    }
    root |= {"ssl.ca.location": str(folder / AUTHORITY)}
    host, port = secured.addresses[SASL]
    with Cluster(f"{host}:{port}", security=root) as cluster:
        for first in range(0, len(bindings), 100):
            cluster.create_acls(bindings[first : first + 100])


def _other(n: int) -> AclBinding:
    name = f"{(TOPIC, GROUPS, 'other')[n % 3]}-{n // 3}"
    return _acl(f"user-{n}", ("topic", "group")[n % 2], name, "read", LITERAL if n % 5 else PREFIXED)


def _acl(user: str, resource: str, name: str, operation: str, pattern: int) -> AclBinding:
    return AclBinding(RESOURCES[resource], name, pattern, f"User:{user}", "*", OPERATIONS[operation], ALLOW)


# -- the requests


def _requests(secured: Secured) -> dict[str, tuple[Requests, int]]:
    """By kind: each connection's requests, and where their answers have an error."""
    server = secured.server
    coordinators_ready([server] if server.name in APACHE else [])
    create_topic(server, TOPIC, 1)
    members = classic_members(server, GROUPS, CLIENTS)
    batch = encode_batch([NewRecord(None, b"v" * VALUE_BYTES, int(time.time() * 1e3))] * RECORDS)
    with Cluster(server.bootstrap) as cluster:
        cluster.produce(TOPIC, 0, batch)
    data = (PartitionProduceData(index=0, records=batch),)
    produced = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=(TopicProduceData(name=TOPIC, partition_data=data),)
    )
    place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=len(batch))
    fetched = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic=TOPIC, partitions=(place,)),), session_epoch=-1
    )
    of_topic = 5 + 1 + 1 + len(TOPIC) + 1 + 4
    return {
        "heartbeat": ([[heartbeat(m)] for m in members], 9),
        "commit": ([[commit(m, TOPIC, 1, offset) for offset in (41, 42)] for m in members], -5),
        f"produce {RECORDS} records": ([[encode_request(produced, PRODUCE, 1, CLIENT)]] * CLIENTS, of_topic),
        f"fetch {RECORDS} records": ([[encode_request(fetched, FETCH, 1, CLIENT)]] * CLIENTS, 9),
    }


# -- the rounds


def _rates(
    run: Run, row: str, ready: Sequence[Secured], way: str, requests: Mapping[Server, tuple[Requests, int]]
) -> None:
    def once(secured: Secured) -> Values:
        frames, error_at = requests[secured.server]
        with tempfile.NamedTemporaryFile() as file:
            write_requests(Path(file.name), frames)
            return _load(secured, "rounds", way, run.seconds, error_at, file.name)

    for secured in ready:
        warm_up(run, secured.server, lambda secured=secured: once(secured)["cpu_us"])
    for _ in range(run.rounds):
        for secured in ready:
            run.measure(row, secured.server, lambda secured=secured: once(secured))


def _load(secured: Secured, what: str, way: str, *words: object) -> Values:
    """The CPU of the server for each answer, or for each connection and its share of the server's memory."""
    server = secured.server
    command = [sys.executable, "-m", "bench._secured_load", what, *map(str, (*secured.addresses[way], way, *words))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()
            cpu, memory = server.cpu_seconds(), server.memory_mb()
            process.stdin.write("\n")
            said = process.stdout.readline()
            assert said, "the load ended with an error"
            done = json.loads(said)
            answered = max(1, done["answered"])
            found = {"cpu_us": (server.cpu_seconds() - cpu) / answered * 1e6}
            found["seconds"] = done["seconds"]
            if what == "open":
                found = {"connection_us": found["cpu_us"], "kb": (server.memory_mb() - memory) / answered * 1e3}
            process.stdin.write("\n")
        except BaseException:
            process.kill()
            raise
    return found


def _connections(run: Run, both: Sequence[Secured]) -> None:
    """One at a time, so that a client's and the server's share of a handshake take turns."""
    count = QUICK_CONNECTIONS if run.quick else CONNECTIONS
    for way, title in ((PLAIN, "without TLS"), (TLS, "TLS"), (SASL, "TLS, SASL")):
        ready = [secured for secured in both if secured.guarded is (way == SASL)]
        for secured in ready:
            _load(secured, "open", way, count)  # later connections use memory that earlier ones have freed

        def once(secured: Secured, way: str = way) -> Values:
            return _load(secured, "open", way, count)

        for _ in range(run.rounds):
            for secured in ready:
                run.measure(f"a connection, {title}", secured.server, lambda secured=secured: once(secured))


def _storms(run: Run, both: Sequence[Secured]) -> None:
    """Clients that all connect in the same moment, and a member with TLS beside them."""
    count = QUICK_CONNECTIONS if run.quick else STORM

    def once(secured: Secured) -> Values:
        (member,) = classic_members(secured.server, f"{GROUPS}-storm", 1)
        with Beating(secured.addresses[TLS], heartbeat(member)) as beating:
            seconds = _load(secured, "storm", TLS, count)["seconds"]
        times = sorted(1e3 * took for took in beating.times)
        return {"p99_ms": times[len(times) * 99 // 100], "slowest_ms": times[-1], "seconds": seconds}

    ready = [secured for secured in both if not secured.guarded]
    for _ in range(run.rounds):
        for secured in ready:
            run.measure(f"{count:,} connections at once", secured.server, lambda secured=secured: once(secured))


class Beating(threading.Thread):
    """A member with TLS that sends a heartbeat every HEARTBEAT_S seconds."""

    def __init__(self, address: Address, frame: bytes) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self._frame = frame
        self._connection = opened(address, TLS)
        self._stopped = threading.Event()

    def __enter__(self) -> Beating:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopped.set()
        self.join()
        self._connection.close()

    def run(self) -> None:
        while not self._stopped.wait(HEARTBEAT_S):
            began = time.perf_counter()
            self._connection.sendall(self._frame)
            answer(self._connection)
            self.times.append(time.perf_counter() - began)


TABLES = (
    Table("CPU of the server for each request, µs", lambda v: f"{v['cpu_us']:.1f}"),
    Table(
        "A new connection: CPU of the server, µs; connections for each second of its CPU; memory, kB",
        lambda v: f"{v['connection_us']:,.0f}; {1e6 / v['connection_us']:,.0f}; {max(v['kb'], 0):,.0f}",
    ),
    Table(
        "A storm of connections with TLS: p99 and slowest heartbeat of a member, ms; until all are served, s",
        lambda v: f"{v['p99_ms']:.0f}; {v['slowest_ms']:.0f}; {v['seconds']:.1f}",
    ),
)
PANELS = (
    Panel("CPU per heartbeat, TLS, SASL, 1,000 ACLs", "heartbeat, TLS, SASL, 1,000 ACLs", "cpu_us", "µs"),
    Panel("CPU per commit, TLS, SASL, 1,000 ACLs", "commit, TLS, SASL, 1,000 ACLs", "cpu_us", "µs"),
)
COLUMNS = {name: TITLES[name] for name in SERVERS}
SUBJECT = Subject("security", measure, TABLES, PANELS, COLUMNS)
