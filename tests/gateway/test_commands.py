"""`kohort gateway` as a process, and the copies of offsets."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest
from gateway_server import GatewayServer, wait_for
from process import Serve
from typer.testing import CliRunner, Result

from kohort.cli.commands import app
from kohort.client.cluster import Cluster
from kohort.client.wire.blocking_connection import Connection
from kohort.testing import KohortServer
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

COMMAND = [sys.executable, "-c", "from kohort.cli.main import main; main()", "gateway"]


def test_the_process_of_a_gateway(upstream: KohortServer, tmp_path: Path, unique: str) -> None:
    where = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "gateway"))
    with Serve("--upstream", upstream.bootstrap_servers, *where, command=COMMAND) as gateway:
        wait_for(lambda: sum("a broker has a listener" in line for line in gateway.lines) == 3, "three listeners")
        with Cluster(gateway.addresses[0]) as cluster:
            cluster.create_topic(unique, 1)
            cluster.commit(unique, {(unique, 0): 3})
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.ended() == 0, gateway.errors
        assert gateway.errors == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--upstream"),
        (("--upstream", "127.0.0.1:1"), "--data-dir"),
        (("--upstream", "a:b", "--in-memory"), "a:b"),
        (("--upstream", "localhost", "--in-memory"), "--upstream localhost:9092 is the gateway's own listener"),
        (("--upstream", "127.0.0.1:1", "--in-memory", "--broker-ports", "1,a"), "'a', which is no port"),
        (("--upstream", "127.0.0.1:1", "--in-memory", "--set", "brokers=2"), "brokers"),
        (("--upstream", "127.0.0.1:1", "--storage", "postgresql://x", "--set", "cluster.serving=all"), "serving=all"),
        (("--upstream", "127.0.0.1:1", "--in-memory", "--listen", "SASL_PLAINTEXT://127.0.0.1:0"), "SASL passes"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], said: str) -> None:
    ran = CliRunner().invoke(app, ["gateway", *words])
    assert ran.exit_code == 2
    assert said in " ".join(ran.stderr.split())


def copied(command: str, upstream: KohortServer, gateway: GatewayServer, *words: str) -> Result:
    addresses = ("--upstream", upstream.bootstrap_servers, "--gateway", gateway.bootstrap_servers)
    return CliRunner().invoke(app, ["gateway", command, *addresses, *words])


def test_offsets_go_there_and_back(upstream: KohortServer, gateway: GatewayServer, unique: str) -> None:
    upstream.create_topic(unique, 3)
    groups = f"{unique}-*"
    with upstream._cluster() as direct, gateway._cluster() as through:
        through.topics([unique])
        direct.commit(f"{unique}-a", {(unique, 0): 5, (unique, 1): 6})
        direct.commit(f"{unique}-b", {(unique, 2): 7})
        dry = copied("import-offsets", upstream, gateway, groups)
        assert dry.exit_code == 0, dry.stderr
        assert f"{unique}-0: none -> 5" in dry.stdout
        assert "dry run" in dry.stdout
        assert not through.committed(f"{unique}-a")
        done = copied("import-offsets", upstream, gateway, groups, "--execute", "--yes")
        assert done.exit_code == 0, done.stderr
        assert through.committed(f"{unique}-a") == direct.committed(f"{unique}-a")
        assert through.committed(f"{unique}-b") == direct.committed(f"{unique}-b")
        through.commit(f"{unique}-a", {(unique, 0): 50})
        again = copied("import-offsets", upstream, gateway, groups, "--execute", "--yes")
        assert f"{unique}-0: stays at 50, not 5" in again.stdout
        assert "there is nothing to copy" in again.stdout
        assert copied("export-offsets", upstream, gateway, groups, "--execute", "--yes").exit_code == 0
        assert direct.committed(f"{unique}-a")[unique, 0].offset == 50


def test_groups_with_members_are_left_out(upstream: KohortServer, gateway: GatewayServer, unique: str) -> None:
    upstream.create_topic(unique, 1)
    with upstream._cluster() as direct, gateway._cluster() as through:
        through.topics([unique])
        direct.commit(unique, {(unique, 0): 5})
        host, _, port = gateway.bootstrap_servers.rpartition(":")
        with closing(Connection(host, int(port))) as member:
            joins = ConsumerGroupHeartbeatRequest(
                group_id=unique, member_id="m", member_epoch=0, rebalance_timeout_ms=5_000,
                subscribed_topic_names=(unique,), topic_partitions=(),
            )  # fmt: skip
            assert not member.request(joins, ConsumerGroupHeartbeatResponse).error_code
            ran = copied("import-offsets", upstream, gateway, unique, "--execute", "--yes")
        assert ran.exit_code == 1
        assert "it has members at the gateway" in ran.stdout
        assert not through.committed(unique)


def test_two_clusters_are_not_mixed_up(gateway: GatewayServer) -> None:
    with KohortServer() as other:
        ran = copied("import-offsets", other, gateway)
        assert ran.exit_code == 1
        assert "nothing was changed" in str(ran.exception or ran.output) + ran.stderr


def test_a_cluster_that_cannot_be_reached(gateway: GatewayServer) -> None:
    words = ["gateway", "export-offsets", "--upstream", "127.0.0.1:1", "--gateway", gateway.bootstrap_servers]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 3
    assert "127.0.0.1:1: connection refused" in ran.stderr
    assert "check --upstream and --gateway" in ran.stderr
