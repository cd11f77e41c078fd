"""The common part of the cells of one client: a server of their own, the relay in front of it, and the client's
driver.

A driver is a program in the client's language. Its one argument is a JSON object. With a `group` it is a member: it
consumes, commits after every batch, reports as tests/clients/worker.py does, and leaves on a line "close". Without a
`group` it carries out commands: one JSON object a line on its input ("do" names the command). It answers each with
{"done": …} or {"failed": …}. Its first line is {"version": …}.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway_server import UPSTREAM, before_upstream
from group import Group, kill_all_of
from matrix_secured import SecuredServer
from relay import OWN, Relay

from kohort.client.cluster import Cluster, Isolation
from kohort.client.records import data_batches, next_position, records
from kohort.testing import KohortServer
from kohort.wire.batches import BatchHeader

ANSWER_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The index of a codec is its number in batches."""
SETTINGS = {
    "group_min_session_timeout_ms": 1_000,
    "group_initial_rebalance_delay_ms": 200,
    "group_consumer_min_session_timeout_ms": 2_000,
    "group_consumer_session_timeout_ms": 6_000,
    "group_consumer_min_heartbeat_interval_ms": 200,
    "group_consumer_heartbeat_interval_ms": 500,
}
"""The server removes a killed member quickly."""
MEMBER = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 300}


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as the log has it, and the header of its batch."""

    partition: int
    offset: int
    key: str | None
    value: str
    headers: tuple[tuple[str, bytes | None], ...]
    batch: BatchHeader


class Driver:
    """The driver's process that carries out commands. An answer that does not come in time ends it."""

    def __init__(self, command: Sequence[str], log: Path, **options: Any) -> None:
        self._log = log
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.version: str = self._answer("start")["version"]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, do: str, **what: Any) -> Any:
        """The client's answer. AssertionError where it failed or was silent."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise AssertionError(f"{do}: the client's process has ended: {self._last_words()}") from None
        answer = self._answer(do)
        assert "failed" not in answer, f"{do}: {answer['failed']}"
        return answer["done"]

    def end(self) -> None:
        kill_all_of(self._process)
        self._reader.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def _answer(self, do: str) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            kill_all_of(self._process)
            raise AssertionError(f"{do}: no answer within {ANSWER_S:.0f} s: {self._last_words()}") from None
        assert answer is not None, f"{do}: the client's process has ended: {self._last_words()}"
        return answer

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-600:]


RECORDED: dict[str, Relay] = {}
"""The requests to the servers of the programs that ran."""
VERSIONS: dict[str, str] = {}
"""The versions of programs that differ from the version of Java's clients."""


@contextmanager
def recorded_server(
    program: str, of: Callable[[str], bool] = lambda client_id: client_id != "kohort", **settings: Any
) -> Iterator[KohortServer]:
    """A server whose requests are kept: those of the client ids `of` which are the program's."""
    relay = RECORDED[program] = Relay(of)
    relay.start()
    try:
        with KohortServer(advertised_listeners=f"127.0.0.1:{relay.port}", **settings) as server:
            relay.target = port_of(server)
            yield server
    finally:
        relay.stop()


def port_of(server: KohortServer) -> int:
    """The address on which it listens; clients get another address."""
    return int(server.listeners.rpartition(":")[2])


class Stage:
    """Started on first use by the thread that runs the client's cells; only that one uses it."""

    def __init__(
        self,
        client: str,
        command: Sequence[str],
        folder: Path,
        secured: SecuredServer,
        *,
        looks_for_topics: bool,
        codecs: tuple[str, ...],
    ) -> None:
        self.client = client
        self._secured = secured
        self.relay = Relay()
        self.relay.start()
        self._serving = ExitStack()
        self.bootstrap = f"127.0.0.1:{self.relay.port}"
        if UPSTREAM:
            gateway = self._serving.enter_context(before_upstream(dict(SETTINGS)))
            self.relay.target = gateway.advertise(self.relay.port)
        else:
            server = KohortServer(advertised_listeners=self.bootstrap, **SETTINGS)
            self.relay.target = port_of(self._serving.enter_context(server))
        self.cluster = Cluster(self.bootstrap, OWN)
        self._command = command
        self._log = folder / f"{client}.log"
        self._options = {"client": client, "bootstrap": self.bootstrap}
        self._driver: Driver | None = None
        self.looks_for_topics = looks_for_topics
        """Whether it does so again for a pattern, after it has subscribed."""
        self.codecs = codecs
        """Those that it can read."""
        self.version = ""

    @property
    def secured(self) -> SecuredServer:
        """Running."""
        self._secured.start()
        return self._secured

    @property
    def driver(self) -> Driver:
        if self._driver is None or not self._driver.alive:
            self._driver = Driver(self._command, self._log, **self._options)
            self.version = self._driver.version
        return self._driver

    def group(self, group: str, topic: str, **options: Any) -> Group:
        """Members are killed where they are left."""
        everything = {**self._options, **MEMBER, **options}
        client, bootstrap = everything.pop("client"), everything.pop("bootstrap")
        return Group(client, bootstrap, group, topic, command=self._command, **everything)

    def stored(self, topic: str, partitions: int, isolation: Isolation = "read_uncommitted") -> list[Stored]:
        """All records of a topic, as the server gives them to anybody."""
        places = {(topic, partition): 0 for partition in range(partitions)}
        ends = self.cluster.offsets(places, isolation=isolation)
        found: list[Stored] = []
        while behind := {place: at for place, at in places.items() if at < ends[place]}:
            for fetched in self.cluster.fetch(behind, max_wait_ms=100, isolation=isolation):
                place = (fetched.topic, fetched.partition)
                headers = [header for header, _ in data_batches(fetched, places[place])]
                for record in records(fetched, places[place]):
                    batch = next(h for h in headers if h.base_offset <= record.offset <= h.last_offset)
                    key = None if record.key is None else record.key.decode()
                    value = (record.value or b"").decode()
                    found.append(Stored(record.partition, record.offset, key, value, record.headers, batch))
                places[place] = next_position(fetched, places[place])
        return found

    def close(self) -> None:
        if self._driver is not None:
            self._driver.end()
        self.cluster.close()
        self._serving.close()
        self.relay.stop()
