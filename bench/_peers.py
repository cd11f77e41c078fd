"""The servers that `make bench` compares, all pinned to one core; the load has the other core.

    compiled   kohort with compiled hot modules, if there are any
    pure       kohort in pure Python
    kafka      Apache Kafka (needs Maven and Java 17)
    synced     Apache Kafka that syncs each append to its disk before it answers, as kohort does
    kfake      franz-go's kfake (needs Go)
    mock       librdkafka's mock cluster
    floor      a loop in C that answers the same bytes to everything (needs gcc); only where one answer fits all

A missing peer is left out and reported once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import bench._kafka as apache
from bench._machine import cpu_seconds, descendants, memory_mb
from bench._process import Address, pinned, program, serving

TITLES = {
    "compiled": "kohort, compiled",
    "pure": "kohort, pure Python",
    "kafka": "Apache Kafka",
    "kfake": "kfake",
    "mock": "librdkafka's mock",
    "floor": "C floor",
}
APACHE = ("kafka", "synced")
GO, C = Path(__file__).parent / "go", Path(__file__).parent / "native"
COMPILER = "gcc"
COMPILED, PURE = (
    # Bytecode is cached, as in an installation by pip.
    {"KOHORT_PURE": pure, "PYTHONDONTWRITEBYTECODE": ""}
    for pure in "01"
)
ALLOWED = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = ALLOWED[0], ALLOWED[-1]
"""Equal on a machine with one core."""


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    pid: int
    address: Address

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.address)

    def cpu_seconds(self) -> float:
        """CPU seconds of the process and its children."""
        return sum(map(cpu_seconds, descendants(self.pid)))

    def memory_mb(self) -> float:
        return sum(map(memory_mb, descendants(self.pid)))


Settings = Mapping[str, Mapping[str, str]]
"""Settings for each server (kohort, kafka, kfake); all other settings have the server's defaults."""
LONG_SESSIONS = {
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
}
MANY_CONNECTIONS = {"max.connections": "12000", "max.connections.per.ip": "12000"}
SYNCED = {"log.flush.interval.messages": "1"}
"""Kafka syncs a log when this many records are not synced, in the append and thus before the answer; of its internal
topics too, because none of their own settings replaces this one."""
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}


@cache
def why_not_compiled() -> str:
    """Why kohort's compiled modules cannot be used here; empty if they can, whatever this process uses."""
    asked = "from kohort import compiled; print('' if compiled.in_use else compiled.why_pure)"
    command = [sys.executable, "-c", asked]
    said = subprocess.run(command, env={**os.environ, **COMPILED}, capture_output=True, text=True, check=True)
    return said.stdout.strip()


@cache
def missing() -> dict[str, str]:
    """The servers that cannot be started here, with the reasons."""
    found = {}
    if why := why_not_compiled():
        found["compiled"] = f"kohort's compiled modules: {why} (make compiled)"
    if not (shutil.which("mvn") and shutil.which("java")):
        found |= dict.fromkeys(APACHE, "Apache Kafka needs Maven and Java 17")
    if not shutil.which("go"):
        found["kfake"] = "kfake needs Go"
    if not shutil.which(COMPILER):
        found["floor"] = f"the C floor needs {COMPILER}"
    return found


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kohort-peers-")


@cache
def kafka_jars() -> str:
    """The class path. KAFKA_JARS names a folder to keep the jars in; else they are fetched once a run."""
    into = Path(os.environ.get("KAFKA_JARS") or Path(_folder().name) / "lib")
    return f"{into}/*" if any(into.glob("kafka-clients-*.jar")) else apache.fetch_jars(into)


@cache
def c_program(name: str) -> Path:
    """The program in C, compiled once a run."""
    built = Path(_folder().name) / name
    command = [COMPILER, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(built), str(C / f"{name}.c")]
    subprocess.run(command, check=True, timeout=60)
    return built


@cache
def _kfake_program() -> Path:
    built = Path(_folder().name) / "kfake"
    subprocess.run(["go", "build", "-o", str(built), "."], cwd=GO, check=True, timeout=600)
    return built


def versions(names: set[str]) -> dict[str, str]:
    """Also fetches and builds the peers, so that no figure includes it."""
    found = {}
    if names & {*APACHE}:
        found["Apache Kafka"] = apache.version(kafka_jars())
        said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
        found["Java"] = said.split('"')[1]
    if "kfake" in names:
        _kfake_program()
        asked = ["go", "list", "-m", "-f", "{{.Version}}", "github.com/twmb/franz-go/pkg/kfake"]
        found["kfake"] = subprocess.run(asked, cwd=GO, capture_output=True, text=True, check=True).stdout.strip()
    return found


@contextmanager
def started(name: str, settings: Settings, *, data: str = "", answer: bytes = b"") -> Iterator[Server]:
    """`data`: kohort's data directory; "" for a new one. `answer`: the floor's, a whole frame."""
    with ExitStack() as stack:
        with pinned(SERVER_CORE):
            pid, address = stack.enter_context(_starting(name, settings, data, answer))
        yield Server(name, pid, address)


def _starting(name: str, settings: Settings, data: str, answer: bytes) -> AbstractContextManager[tuple[int, Address]]:
    match name:
        case "compiled" | "pure":
            environment = PURE if name == "pure" else COMPILED
            return serving(*pairs(settings.get("kohort", {})), data=data, environment=environment)
        case "kafka":
            return apache.kafka(kafka_jars(), settings.get("kafka", {}))
        case "synced":
            return apache.kafka(kafka_jars(), {**settings.get("kafka", {}), **SYNCED})
        case "kfake":
            command = [str(_kfake_program()), *pairs(settings.get("kfake", {}))]
            return program(command, environment={"GOMAXPROCS": "1"})
        case "mock":
            return program([sys.executable, "-m", "bench._librdkafka", "mock"])
        case "floor":
            return program([str(c_program("echo")), answer.hex()])
        case _:
            raise ValueError(name)


def pairs(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]
