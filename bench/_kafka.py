"""Apache Kafka for comparison: jars from Maven Central, a single node on loopback in a directory of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from bench._process import Address, wait_until_it_answers

JAVA = Path(__file__).parent / "java"
CONNECTOR = JAVA / "spark" / "pom.xml"
CONNECTOR_JARS = (
    *("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"),
    *("kafka-clients", "commons-pool2"),
)
USUAL = (
    *("-Xms512m", "-Xmx1g", "-server"),
    *("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
)
"""The options of Kafka's start script."""
BRIEF = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options for a JVM that lives for a minute or two: its start takes little more than half of the CPU time."""
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
CLUSTER_ID = "a29ob3J0LWJlbmNoLTAwMQ"
"""16 bytes in base 64."""
START_S = 180.0

WORKERS, PORTS_A_WORKER = 6, 2_000


def fetch_jars(into: Path) -> str:
    """A class path with Kafka's server and client, in the version of java/pom.xml."""
    copy = ["mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*copy, f"-DoutputDirectory={into}"], check=True, timeout=500)
    return f"{into}/*"


def fetch_spark_connector(into: Path, spark: str) -> None:
    """Spark's own Kafka connector, without what Spark has itself, for this version of Spark.

    A repository that does not have that version may have another: 4.2.0 runs on Spark 4.3. Older versions do not work,
    because classes that a streaming query needs have moved since. Raises RuntimeError where Maven cannot get them.
    """
    said = ""
    for profile in ("installed", "pinned"):
        command = ["mvn", "-q", "-B", "-f", str(CONNECTOR), "-P", profile, f"-Dspark={spark}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={into}"]
        command += [f"-DincludeArtifactIds={','.join(CONNECTOR_JARS)}"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
        if ran.returncode == 0:
            return
        said += ran.stdout
    raise RuntimeError(said)


def version(class_path: str) -> str:
    found = next(Path(class_path).parent.glob("kafka-clients-*.jar"))
    return found.stem.removeprefix("kafka-clients-")


def compile_java(source: Path, class_path: str, into: Path) -> str:
    """A class path with the compiled program."""
    subprocess.run(["javac", "-nowarn", "-cp", class_path, "-d", str(into), str(source)], check=True, timeout=300)
    return f"{into}:{class_path}"


class Node:
    """A broker and controller in one process, with the same ports after restarts. `remove` deletes its files.

    `listeners` are additional ones with their ports; `format_options` are arguments of the storage tool; `java_options`
    are arguments of the JVM, by default `USUAL`.
    """

    def __init__(
        self,
        class_path: str,
        settings: Mapping[str, str],
        listeners: Mapping[str, int] | None = None,
        format_options: Sequence[str] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        port, controller = free_ports(2)
        self.address: Address = ("127.0.0.1", port)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._class_path = class_path
        self._java_options = java_options or USUAL
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "log"
        self._properties = Path(self._folder.name) / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        of_clients = [f"{name}://127.0.0.1:{at}" for name, at in {"PLAINTEXT": port, **(listeners or {})}.items()]
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": ",".join((*of_clients, f"CONTROLLER://127.0.0.1:{controller}")),
            "advertised.listeners": ",".join(of_clients),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(Path(self._folder.name) / "data"),
            "offsets.topic.replication.factor": "1",
            **settings,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        prepare = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))
        command = ["java", *BRIEF, QUIET, "-cp", class_path, *prepare, *format_options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start, and return when the node answers. `settings` are added to its own for this start only."""
        options = [*self._java_options, QUIET, "-cp", self._class_path]
        added = [word for name, value in (settings or {}).items() for word in ("--override", f"{name}={value}")]
        command = ["java", *options, "kafka.Kafka", str(self._properties), *added]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until_it_answers(self.address, START_S, self._log)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        self.kill()
        self._folder.cleanup()


@contextmanager
def kafka(*arguments: Any, **options: Any) -> Iterator[tuple[int, Address]]:
    """A running `Node` with these arguments: its process id and address."""
    node = Node(*arguments, **options)
    try:
        node.start()
        yield node.pid, node.address
        node.stop()
    finally:
        node.remove()


def free_ports(count: int) -> list[int]:
    """Free ports, each returned only once, because a server binds its port seconds later.

    They are below the system's ephemeral ports, which a connection could take meanwhile, and each of pytest's parallel
    workers has a range of its own.
    """
    with _handing_out:
        ports = list(islice(_ports, count))
    assert len(ports) == count, "no port is free"
    return ports


def _own_ports() -> Iterator[int]:
    """Ports of this worker, starting at an offset of this process, since another test run may use the same range."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    given_away = Path("/proc/sys/net/ipv4/ip_local_port_range")
    end = int(given_away.read_text().split()[0]) if given_away.exists() else 32_768
    first = max(10_000, min(20_000, end - WORKERS * PORTS_A_WORKER)) + worker * PORTS_A_WORKER
    yield from (first + (37 * os.getpid() + n) % PORTS_A_WORKER for n in range(PORTS_A_WORKER))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_ports = filter(_is_free, _own_ports())
_handing_out = threading.Lock()
