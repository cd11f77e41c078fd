"""Two gateways on one PostgreSQL, as processes: one serves, the other takes over, on its own addresses."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest
from bench._kafka import free_ports
from group import Group
from process import Serve
from produce import produce

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
COMMAND = [sys.executable, "-c", "from kohort.cli.main import main; main()", "gateway"]
LEASE_MS = 3_000
PARTITIONS = 4


def values(first: int, count: int) -> list[str]:
    return [f"v{number}" for number in range(first, first + count)]


def test_another_gateway_takes_over(upstream: KohortServer, postgres_url: str, unique: str) -> None:
    """Members, offsets and the journal are there; a partition that moved has moved for the kill alone."""
    ports = free_ports(8)
    settings = {
        "broker.session.timeout.ms": LEASE_MS,
        "broker.heartbeat.interval.ms": 500,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
    }
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]

    def words(number: int) -> list[str]:
        first, *others = ports[4 * number - 4 : 4 * number]
        where = ["--listen", f"127.0.0.1:{first}", "--broker-ports", ",".join(map(str, others))]
        return ["--upstream", upstream.bootstrap_servers, "--storage", postgres_url, *where, *flags, "--set",
                f"broker.id={number}"]  # fmt: skip

    upstream.create_topic(unique, PARTITIONS)
    bootstrap = f"127.0.0.1:{ports[0]},127.0.0.1:{ports[4]}"
    with ExitStack() as stack:
        serving = stack.enter_context(Serve(*words(1), command=COMMAND))
        stack.enter_context(Serve(*words(2), command=COMMAND, until="waiting as a stand-by"))
        group = stack.enter_context(Group("confluent", bootstrap, unique, unique))
        a, b = group.share([2, 2], "a", "b")
        produce("confluent", upstream.bootstrap_servers, unique, values(0, 100), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 100, "100 values")
        serving.process.kill()
        produce("confluent", upstream.bootstrap_servers, unique, values(100, 100), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 200, "200 values")
        group.wait_assigned([2, 2], a, b)
        group.close()
        with Cluster(f"127.0.0.1:{ports[4]}") as through:
            assert sum(entry.offset for entry in through.committed(unique).values()) == 200
            assert {node.port for node in through.nodes().values()} == set(ports[5:])
