"""Connections through a gateway: order, answers that are not due, requests without an answer, and what is refused."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from gateway_server import GatewayServer, wait_for

from kohort.broker.apis import OF_SHARE_GROUPS
from kohort.client.errors import ConnectionFailed, UnsupportedVersion
from kohort.client.wire.blocking_connection import Connection
from kohort.config import Config, ConfigError
from kohort.gateway.run import gateway_config
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

HELD_MS = 4_000
TRANSACTION = 1


@pytest.fixture(scope="module")
def gateway(upstream: KohortServer) -> Iterator[GatewayServer]:
    """Heartbeats are held for seconds."""
    intervals = {"group_consumer_heartbeat_interval_ms": 10_000, "group_consumer_min_heartbeat_interval_ms": 10_000}
    with GatewayServer(upstream.bootstrap_servers, group_consumer_heartbeat_hold_max_ms=HELD_MS, **intervals) as server:
        yield server.wait_for_upstream()


@pytest.fixture
def connection(gateway: GatewayServer) -> Iterator[Connection]:
    host, _, port = gateway.bootstrap_servers.rpartition(":")
    with closing(Connection(host, int(port))) as opened:
        yield opened


def joins(group: str, topic: str, **fields: object) -> ConsumerGroupHeartbeatRequest:
    first = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 5_000,
        "subscribed_topic_names": (topic,),
        "topic_partitions": (),
    }
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=group, **{**first, **fields})


def test_an_answer_of_the_upstream_does_not_wait_for_a_held_heartbeat(
    connection: Connection, upstream: KohortServer, unique: str
) -> None:
    upstream.create_topic(unique, 2)
    connection.request(MetadataRequest(topics=(MetadataRequestTopic(name=unique),)), MetadataResponse)
    joined = connection.request(joins(unique, unique), ConsumerGroupHeartbeatResponse)
    assert (joined.error_code, joined.member_epoch) == (0, 1), "the topic is known as soon as its metadata has passed"
    asked = ConsumerGroupHeartbeatRequest(group_id=unique, member_id=unique, member_epoch=1)
    began = time.monotonic()
    connection.send(asked)
    connection.send(MetadataRequest(topics=()))
    connection.send(FindCoordinatorRequest(coordinator_keys=(unique,)))
    connection.send(MetadataRequest(topics=()))
    assert connection.receive(ConsumerGroupHeartbeatResponse).member_epoch == 1
    assert connection.receive(MetadataResponse).brokers
    assert connection.receive(FindCoordinatorResponse).coordinators[0].error_code == 0
    assert connection.receive(MetadataResponse).brokers
    assert time.monotonic() - began < HELD_MS / 2_000


def test_all_addresses_are_the_gateways(connection: Connection, gateway: GatewayServer) -> None:
    ports = set(gateway.broker_ports())
    assert len(ports) == 3
    assert {b.port for b in connection.request(MetadataRequest(topics=()), MetadataResponse).brokers} == ports
    asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
    assert {broker.port for broker in connection.request(asked, DescribeClusterResponse).brokers} == ports
    for kind in (0, TRANSACTION):
        found = FindCoordinatorRequest(key_type=kind, coordinator_keys=("k",))
        row = connection.request(found, FindCoordinatorResponse).coordinators[0]
        assert row.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert row.port in ports or row.error_code
        older = connection.request(FindCoordinatorRequest(key="k", key_type=kind), FindCoordinatorResponse, version=2)
        assert older.port in ports or older.error_code


def test_a_group_is_listed_once(gateway: GatewayServer, connection: Connection, unique: str) -> None:
    connection.request(joins(unique, unique), ConsumerGroupHeartbeatResponse)
    listed = []
    for port in gateway.broker_ports():
        with closing(Connection("127.0.0.1", port)) as one:
            listed += [group.group_id for group in one.request(ListGroupsRequest(), ListGroupsResponse).groups]
    assert listed.count(unique) == 1


def produced(topic: str, acks: int, size: int = 10) -> ProduceRequest:
    batch = encode_batch([NewRecord(None, b"v" * size, 1)])
    data = (TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=batch),)),)
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=5_000, topic_data=data)


def test_a_produce_without_an_answer(connection: Connection, upstream: KohortServer, unique: str) -> None:
    upstream.create_topic(unique, 1)
    leader = leader_of(connection, unique)
    with closing(leader):
        for _ in range(3):
            leader.send_unanswered(produced(unique, 0))
        asked = MetadataRequest(topics=())
        assert leader.request(asked, MetadataResponse).brokers, "the next answer is that of the next request"
    with upstream._cluster() as cluster:
        wait_for(lambda: cluster.offsets([(unique, 0)])[unique, 0] == 3, "three records")


def leader_of(connection: Connection, topic: str) -> Connection:
    """A connection to the listener of the leader."""
    answer = connection.request(MetadataRequest(topics=(MetadataRequestTopic(name=topic),)), MetadataResponse)
    leader = answer.topics[0].partitions[0].leader_id
    broker = next(broker for broker in answer.brokers if broker.node_id == leader)
    return Connection(broker.host, broker.port)


def test_a_client_that_does_not_read_stops_the_upstream(
    connection: Connection, gateway: GatewayServer, upstream: KohortServer, unique: str
) -> None:
    """What waits for the client is a megabyte or two, however much it asks for."""
    upstream.create_topic(unique, 1, configs={"max.message.bytes": "5000000"})
    leader = leader_of(connection, unique)
    with closing(leader):
        for _ in range(8):
            with upstream._cluster() as cluster:
                cluster.produce(unique, 0, [NewRecord(None, b"v" * 1_000_000, 1)])
        address = leader._socket.getpeername()  # type: ignore[union-attr]
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=4_000_000)
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=4_000_000, topics=(FetchTopic(topic=unique, partitions=(part,)),)
    )
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        slow.connect(address)
        for number in range(20):
            slow.sendall(encode_request(fetch, 12, number, "slow"))
        wait_for(lambda: any(link.unsent > 500_000 for link in gateway.gateway.links), "answers that nobody reads")
        whole = 0
        slow.settimeout(10)
        while whole < 40_000_000:
            whole += len(slow.recv(1 << 16))
            assert max(link.unsent for link in gateway.gateway.links) < 6_000_000


def test_a_client_that_asks_and_never_reads_is_not_read(gateway: GatewayServer) -> None:
    """The gateway makes these answers itself."""
    host, _, port = gateway.bootstrap_servers.rpartition(":")
    frame = encode_request(FindCoordinatorRequest(coordinator_keys=tuple(f"group-{n}" for n in range(50))), 4, 1, "c")
    with socket.create_connection((host, int(port))) as slow:
        slow.settimeout(0.3)
        sent, found = 0, []
        while not found:
            try:
                sent += slow.send(frame * 100)
            except TimeoutError:
                found = [link.unsent for link in gateway.gateway.links if link.unsent > 500_000]
            assert sent < 60_000_000
        assert max(found) < 6_000_000


def test_collected_requests_count(gateway: GatewayServer) -> None:
    """Many clients that send a part of a large request have one limit."""
    host, _, port = gateway.bootstrap_servers.rpartition(":")
    inflow = gateway.gateway._connections.inflow
    frame = encode_request(FindCoordinatorRequest(coordinator_keys=tuple(map(str, range(20_000)))), 4, 1, "c")
    wait_for(lambda: inflow.total == 0, "the clients of other tests have gone", 30)
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(frame[:60_000])
        wait_for(lambda: inflow.total == 60_000, "the part counts")
        slow.sendall(frame[60_000:])
        assert slow.recv(1)
        wait_for(lambda: inflow.total == 0, "the request is handled")
        slow.sendall(frame[:70_000])
        wait_for(lambda: inflow.total == 70_000, "another one counts")
    wait_for(lambda: inflow.total == 0 and not inflow.promised, "the client has gone")


def test_offsets_in_transactions_are_refused(connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    asked = AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g")
    with pytest.raises(UnsupportedVersion, match="AddOffsetsToTxn"):
        connection.request(asked, object)
    with caplog.at_level("INFO", "kohort"), pytest.raises(ConnectionFailed):
        connection.request(asked, object, version=3)
    assert "offsets in transactions do not pass a gateway" in caplog.text


def test_share_groups_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the cluster has them."""
    with KohortServer(group_share_enable=True) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        joins_shares = ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=("t",)
        )
        with closing(Connection(host, int(port))) as direct:
            assert direct.request(joins_shares, ShareGroupHeartbeatResponse).error_code == 0
        with GatewayServer(cluster.bootstrap_servers) as server:
            host, _, port = server.wait_for_upstream().bootstrap_servers.rpartition(":")
            with closing(Connection(host, int(port))) as passed:
                told = passed.request(ApiVersionsRequest(), ApiVersionsResponse, version=4)
                assert not {api.api_key for api in told.api_keys} & OF_SHARE_GROUPS
                assert "share.version" not in {one.name for one in told.finalized_features}
                with pytest.raises(UnsupportedVersion, match="ShareGroupHeartbeat"):
                    passed.request(joins_shares, ShareGroupHeartbeatResponse)
                with caplog.at_level("INFO", "kohort"), pytest.raises(ConnectionFailed):
                    passed.request(joins_shares, ShareGroupHeartbeatResponse, version=1)
    assert "share groups do not pass a gateway" in caplog.text
    with pytest.raises(ConfigError, match=r"group\.share\.enable has no meaning for a gateway"):
        gateway_config(Config(group_share_enable=True))


def test_no_request_stops_the_gateway(gateway: GatewayServer) -> None:
    """Any API in any version, with a body that makes no sense."""
    host, _, port = gateway.bootstrap_servers.rpartition(":")
    for key in range(-1, 95):
        for version in (-1, 0, 1, 5, 14, 99):
            head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(4)
            with socket.create_connection((host, int(port))) as client:
                client.sendall((len(head) + 40).to_bytes(4, "big") + head + b"\xff\xff" + b"\x01" * 38)
    with closing(Connection(host, int(port))) as sane:
        assert sane.request(MetadataRequest(topics=()), MetadataResponse).brokers
