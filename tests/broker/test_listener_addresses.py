"""What the clients of a listener learn when brokers have no address of it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from wire_driver import START_MS, Connection, Wire, batch, fetch_request, produce_request

from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.broker.turn import ConnectionId, Opened
from kohort.config import Config
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest
from kohort.wire.schemas.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic

PLACES = ({"INT": ("int1", 1), "EXT": ("ext1", 11)}, {"INT": ("int2", 2)})
"""The second broker has no address of the listener EXT."""


@pytest.fixture
def wire() -> Wire:
    wire = Wire(brokers=2)
    wire.broker = Broker(
        Config(brokers=2, listeners="a:1,b:2", offsets_topic_num_partitions=5),
        wire.storage,
        now=START_MS,
        random=random.Random(1),
        endpoints=[Endpoint("int", 1, None, places) for places in PLACES],
    ).load()
    wire.step()
    return wire


def connect(wire: Wire, listener: str, broker_id: int = 1) -> Connection:
    wire._next_connection += 1
    connection = Connection(wire, ConnectionId(wire._next_connection), "client")
    wire.connections[connection.id] = connection
    wire.step(Opened(connection.id, broker_id, "127.0.0.1", listener=listener))
    return connection


def metadata(client: Connection, version: int) -> Any:
    return client.ask(MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), version)


@pytest.mark.conformance("AU15")
def test_the_answers_tell_addresses_of_the_listener(wire: Wire) -> None:
    inside, outside = connect(wire, "INT"), connect(wire, "EXT")
    inside.create_topic("t", 2)
    for client, known in ((inside, {(1, "int1", 1), (2, "int2", 2)}), (outside, {(1, "ext1", 11)})):
        brokers = metadata(client, 12).brokers
        assert {(node.node_id, node.host, node.port) for node in brokers} == known
        brokers = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0).brokers
        assert {(node.broker_id, node.host, node.port) for node in brokers} == known


@pytest.mark.conformance("AU15")
@pytest.mark.parametrize(("version", "error"), [(5, 5), (6, 72), (12, 72)])
def test_a_leader_without_the_listener_is_not_found(wire: Wire, version: int, error: int) -> None:
    connect(wire, "INT").create_topic("t", 2)
    client = connect(wire, "EXT")
    partitions = metadata(client, version).topics[0].partitions
    found = {p.leader_id: (p.error_code, p.offline_replicas) for p in partitions}
    assert found == {1: (0, ()), -1: (error, (2,))}
    [topic] = client.ask(DescribeTopicPartitionsRequest(topics=(TopicRequest(name="t"),)), 0).topics
    assert {(p.leader_id, p.error_code) for p in topic.partitions} == {(1, 0), (-1, 72)}


@pytest.mark.conformance("AU15")
def test_a_coordinator_without_the_listener_is_not_available(wire: Wire) -> None:
    inside, outside = connect(wire, "INT"), connect(wire, "EXT")
    groups = {wire.coordinator(f"g{n}"): f"g{n}" for n in range(20)}
    for key_type in (0, 1):
        names = tuple(groups.values()) if key_type == 0 else tuple(f"x{n}" for n in range(20))
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=names)
        places = {(c.node_id, c.host, c.port) for c in inside.ask(request, 4).coordinators}
        assert places == {(1, "int1", 1), (2, "int2", 2)}
        answers = outside.ask(request, 4).coordinators
        assert {(c.node_id, c.host, c.error_code) for c in answers} == {(1, "ext1", 0), (-1, "", 15)}


@pytest.mark.conformance("AU15")
def test_node_endpoints_are_those_of_the_listener(wire: Wire) -> None:
    connect(wire, "INT").create_topic("t", 2)
    leaders = {p.leader_id: p.partition_index for p in metadata(connect(wire, "INT"), 12).topics[0].partitions}
    for listener, wanted in (("INT", [("int2", 2)]), ("EXT", [])):
        client = connect(wire, listener)
        produced = client.ask(produce_request("t", batch("x"), leaders[2]), 10)
        [answer] = produced.responses[0].partition_responses
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [(node.host, node.port) for node in produced.node_endpoints] == wanted
        fetched = client.ask(fetch_request("t", 0, leaders[2]), 12)
        assert fetched.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
