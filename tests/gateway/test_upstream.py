"""The upstream cluster comes and goes, changes its topics, and is the right one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import gateway_server
import pytest
from gateway_server import GatewayServer, wait_for
from http_client import ask

from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.client.wire.blocking_connection import Connection
from kohort.gateway import versions
from kohort.storage.protocol import WrongDirectory
from kohort.testing import KohortServer
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

QUICK = {"group_consumer_heartbeat_hold_enable": False}


def heartbeat(connection: Connection, group: str, epoch: int, topic: str = "") -> tuple[int, int, int]:
    """Error, epoch, and the number of partitions if there is a new assignment, or -1."""
    first = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": (topic,), "topic_partitions": ()} if topic else {}
    asked = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch, **first)
    answer = connection.request(asked, ConsumerGroupHeartbeatResponse)
    rows = None if answer.assignment is None else answer.assignment.topic_partitions
    return answer.error_code, answer.member_epoch, -1 if rows is None else sum(len(row.partitions) for row in rows)


def connected(gateway: GatewayServer) -> Connection:
    host, _, port = gateway.bootstrap_servers.rpartition(":")
    return Connection(host, int(port))


def test_groups_outlive_the_upstream_and_the_gateway(tmp_path: Path) -> None:
    """The upstream goes, the gateway restarts without it, and members go on in their epoch."""
    upstream = KohortServer(data_dir=tmp_path / "upstream").start()
    upstream.create_topic("t", 3)
    upstream.produce("t", *["v"] * 30)
    gateway = GatewayServer(
        upstream.bootstrap_servers, data_dir=tmp_path / "gateway", http_listener="127.0.0.1:0", **QUICK
    )
    try:
        gateway.start().wait_for_upstream()
        with Cluster(gateway.bootstrap_servers) as cluster:
            cluster.topics()  # its metadata passes
            cluster.commit("g", {("t", 0): 4})
            assert ask(gateway.http_address, "/readyz")[0] == 200
        with closing(connected(gateway)) as member:
            assert heartbeat(member, "members", 0, "t")[:2] == (0, 1)
            upstream.stop()
            wait_for(lambda: ask(gateway.http_address, "/readyz")[0] == 503, "it is not ready")
            assert "failed upstream: the cluster" in ask(gateway.http_address, "/readyz")[2]
            assert ask(gateway.http_address, "/livez")[0] == 200
            assert heartbeat(member, "members", 1)[:2] == (0, 1)
        ports = gateway.broker_ports()
        gateway.restart()
        assert gateway.broker_ports() == ports
        with closing(connected(gateway)) as member:
            found = member.request(FindCoordinatorRequest(coordinator_keys=("members",)), FindCoordinatorResponse)
            assert found.coordinators[0].port == ports[0]
            assert heartbeat(member, "members", 1)[:2] == (0, 1), "no partition has moved"
        upstream.start()
        gateway.wait_for_upstream()
        with Cluster(gateway.bootstrap_servers) as cluster:
            assert cluster.committed("g")["t", 0].offset == 4
            wait_for(
                lambda: cluster.group_lags(["g"])["g"].partitions["t", 0].lag == 6, "the lag is that of the upstream"
            )
    finally:
        gateway.stop()
        upstream.stop()


def test_topics_come_grow_and_go(upstream: KohortServer, gateway: GatewayServer, unique: str) -> None:
    with closing(connected(gateway)) as member, upstream._cluster() as direct, gateway._cluster() as through:
        epoch = heartbeat(member, unique, 0, unique)[1]
        for size in (2, 5):
            if size == 2:
                upstream.create_topic(unique, size)
            else:
                direct.create_partitions(unique, size)
            sizes = []

            def grown(wanted: int = size, sizes: list[int] = sizes) -> bool:
                nonlocal epoch
                error, epoch, count = heartbeat(member, unique, epoch)
                assert not error
                sizes.append(count)
                return count == wanted

            wait_for(grown, f"the member gets {size} partitions, not {sizes}")
        through.topics()
        through.commit(f"{unique}-simple", {(unique, 4): 7})
        upstream_id = direct.topics([unique])[unique].topic_id
        direct.delete_topic(unique)
        wait_for(lambda: not through.committed(f"{unique}-simple"), "the offsets go with their topic")
        direct.create_topic(unique, 1)
        assert direct.topics([unique])[unique].topic_id != upstream_id
        wait_for(lambda: through.topics([unique])[unique].topic_id != upstream_id, "the new topic has passed")
        through.commit(f"{unique}-simple", {(unique, 0): 1})
        with pytest.raises(ServerError) as refused:
            through.commit(f"{unique}-simple", {(unique, 1): 1})
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_was_made_again_has_no_offsets(
    upstream: KohortServer, gateway: GatewayServer, unique: str
) -> None:
    """Also if it is there again before the gateway asks: its id is another one."""
    upstream.create_topic(unique, 1)
    with upstream._cluster() as direct, gateway._cluster() as through:
        through.topics([unique])
        through.commit(unique, {(unique, 0): 7})
        direct.delete_topic(unique)
        direct.create_topic(unique, 1)
        wait_for(lambda: not through.committed(unique), "the offsets of the old one are gone")


def test_offsets_of_a_topic_that_an_old_client_names_first(
    upstream: KohortServer, monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    """Its Metadata has no topic ids. Offsets stay when the gateway asks for the topic itself and learns of the id."""
    monkeypatch.setattr(gateway_server, "REFRESH_S", 60.0)
    with GatewayServer(upstream.bootstrap_servers) as gateway:
        gateway.wait_for_upstream()
        upstream.create_topic(unique, 1)
        with closing(connected(gateway)) as old, gateway._cluster() as through, upstream._cluster() as direct:
            asked = MetadataRequest(topics=(MetadataRequestTopic(name=unique),))
            assert old.request(asked, MetadataResponse, version=1).topics[0].name == unique
            through.commit("old", {(unique, 0): 7})
            assert gateway.gateway is not None
            view, topic_id = gateway.gateway._view, direct.topics([unique])[unique].topic_id
            assert view.topics[unique].topic_id != topic_id
            through.create_topic(f"{unique}-other", 1)  # the gateway asks for all topics then
            wait_for(lambda: view.topics[unique].topic_id == topic_id, "it learns of the id")
            wait_for(lambda: f"{unique}-other" in view.topics, "the round ends")
            assert through.committed("old")[unique, 0].offset == 7


def test_a_data_directory_belongs_to_one_cluster(tmp_path: Path, upstream: KohortServer) -> None:
    where = tmp_path / "gateway"
    with GatewayServer(upstream.bootstrap_servers, data_dir=where) as gateway:
        gateway.wait_for_upstream()
    with pytest.raises(WrongDirectory, match="that of a gateway"):
        KohortServer(data_dir=where).start()
    with KohortServer(data_dir=tmp_path / "server") as server:
        server.create_topic("t")
        with GatewayServer(server.bootstrap_servers, data_dir=where, http_listener="127.0.0.1:0") as gateway:
            other = "the upstream cluster is"
            wait_for(lambda: other in ask(gateway.http_address, "/readyz")[2], "it says that this is another cluster")
    with pytest.raises(WrongDirectory, match="that of a server"):
        GatewayServer(upstream.bootstrap_servers, data_dir=tmp_path / "server").start()


def test_before_it_has_seen_the_cluster_a_gateway_takes_no_clients() -> None:
    with GatewayServer("127.0.0.1:1", http_listener="127.0.0.1:0") as gateway:
        wait_for(lambda: "127.0.0.1:1" in ask(gateway.http_address, "/readyz")[2], "it says which address")
        assert ask(gateway.http_address, "/readyz")[0] == 503
        with pytest.raises(Exception, match=r"closed the connection|reset by peer"):
            connected(gateway)


def test_listeners_follow_the_brokers(tmp_path: Path) -> None:
    with KohortServer(brokers=3) as upstream, GatewayServer(upstream.bootstrap_servers) as gateway:
        gateway.wait_for_upstream()
        first = gateway.broker_ports()
        upstream.stop_broker(1, failover=True)
        wait_for(lambda: gateway.broker_ports() == first[1:], "the listener of broker 1 closes")
        with gateway._cluster() as through:
            assert {node.port for node in through.nodes().values()} == set(first[1:])
            assert through.describe_groups(["g"])["g"].coordinator == 2
        upstream.start_broker(1)
        wait_for(lambda: len(gateway.broker_ports()) == 3, "it listens again")


def test_a_cluster_that_is_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves only versions of Fetch that do not pass."""
    monkeypatch.setitem(versions.FORWARDED, 1, 3)  # type: ignore[arg-type]
    with (
        KohortServer() as upstream,
        GatewayServer(upstream.bootstrap_servers, http_listener="127.0.0.1:0") as gateway,
    ):
        said = "failed versions: the brokers serve Fetch from version 4, and the gateway passes it up to 3"
        wait_for(lambda: said in ask(gateway.http_address, "/readyz")[2], "it says which API")
        assert ask(gateway.http_address, "/readyz")[0] == 503
