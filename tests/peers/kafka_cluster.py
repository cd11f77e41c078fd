"""Three brokers of Apache Kafka, for tests of what stands before a cluster.

`python tests/peers/kafka_cluster.py COMMAND…`: the command, beside such a cluster. Tests of clients then run through a
gateway before it: they find its address in GATEWAY_UPSTREAM.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS / "java")]

import java_libraries  # noqa: E402
from bench import _kafka  # noqa: E402
from kafka_peer import LIKE_KOHORT  # noqa: E402

BROKERS = 3
AUTO_CREATED = {"num.partitions": "1", "auto.create.topics.enable": "true"}


class Cluster:
    """The first node is the controller too."""

    def __init__(self, class_path: str, settings: Mapping[str, str] | None = None, brokers: int = BROKERS) -> None:
        controller, *ports = _kafka.free_ports(1 + brokers)
        voters = f"1@127.0.0.1:{controller}"
        self.nodes = []
        for number, port in enumerate(ports, 1):
            of_clients = f"PLAINTEXT://127.0.0.1:{port}"
            is_first = number == 1
            node = _kafka.Node(
                class_path,
                {
                    **LIKE_KOHORT,
                    **AUTO_CREATED,
                    **(settings or {}),
                    "process.roles": "broker,controller" if is_first else "broker",
                    "node.id": str(number),
                    "broker.rack": f"rack-{number}",
                    "listeners": of_clients + (f",CONTROLLER://127.0.0.1:{controller}" if is_first else ""),
                    "advertised.listeners": of_clients,
                    "controller.quorum.voters": voters,
                },
                java_options=_kafka.BRIEF,
            )
            node.address = ("127.0.0.1", port)
            node.bootstrap_servers = f"127.0.0.1:{port}"
            self.nodes.append(node)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)


@contextmanager
def cluster(class_path: str, settings: Mapping[str, str] | None = None, brokers: int = BROKERS) -> Iterator[Cluster]:
    """They run."""
    found = Cluster(class_path, settings, brokers)
    with ExitStack() as stack:
        for node in found.nodes:
            stack.callback(node.remove)
        for node in found.nodes:
            node.start()
        yield found


def main() -> int:
    with cluster(java_libraries.kafka()) as running:
        environment = os.environ | {"GATEWAY_UPSTREAM": running.bootstrap_servers}
        return subprocess.run(sys.argv[1:], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
