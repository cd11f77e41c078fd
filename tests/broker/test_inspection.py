"""What tools ask: sizes, the quorum, resources with configs, elections, and features that kohort does not have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from group_driver import heartbeat, stable
from wire_driver import GROUP, SET, Connection, Wire

from kohort.broker.topics.catalog import JOURNAL_TOPIC, OFFSETS_TOPIC
from kohort.broker.turn import BrokerPresence, MoveGroup, MovePartition
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_acls import DescribeAclsRequest
from kohort.wire.schemas.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from kohort.wire.schemas.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kohort.wire.schemas.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from kohort.wire.schemas.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kohort.wire.schemas.elect_leaders import ElectLeadersRequest, TopicPartitions
from kohort.wire.schemas.list_config_resources import ListConfigResourcesRequest
from kohort.wire.schemas.list_partition_reassignments import ListPartitionReassignmentsRequest

Sizes = dict[tuple[str, int], int]


# -- DescribeLogDirs


def sizes(client: Connection, *asked: tuple[str, tuple[int, ...]]) -> Sizes:
    """Of all topics if none is named."""
    topics = tuple(DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in asked)
    response = client.ask(DescribeLogDirsRequest(topics=topics or None), 5)
    [result] = response.results
    assert (response.error_code, result.error_code, result.is_cordoned) == (0, 0, False)
    return {(t.name, p.partition_index): p.partition_size for t in result.topics for p in t.partitions}


def test_sizes_are_the_bytes_of_the_logs(client: Connection) -> None:
    client.create_topic("t", 2)
    assert sizes(client) == {("t", 0): 0, ("t", 1): 0}
    client.produce("t", "a" * 1000)
    grown = sizes(client)
    assert 1000 < grown["t", 0] < 1200
    client.produce("t", "b" * 1000)
    assert sizes(client, ("t", (0, 0, 7)), ("absent", (0,)), ("t", (1,))) == {("t", 0): 2 * grown["t", 0], ("t", 1): 0}
    assert sizes(client, ("t", ())) == {}
    stable(client)
    assert {topic for topic, _ in sizes(client)} == {"t", OFFSETS_TOPIC, JOURNAL_TOPIC}


def test_a_broker_tells_the_sizes_of_its_own_replicas() -> None:
    wire = Wire(brokers=3)
    wire.connect(1).create_topic("t", 3, 2)
    assert [sorted(sizes(wire.connect(broker))) for broker in (1, 2, 3)] == [
        [("t", 0), ("t", 2)],
        [("t", 0), ("t", 1)],
        [("t", 1), ("t", 2)],
    ]


@pytest.mark.parametrize(("data_dir", "log_dir"), [("", "memory"), ("absent", str(Path("absent").absolute()))])
def test_the_log_directory_is_the_data_directory(data_dir: str, log_dir: str) -> None:
    response = Wire(data_dir=data_dir).connect().ask(DescribeLogDirsRequest(topics=None), 4)
    [result] = response.results
    assert (result.log_dir, result.topics, result.total_bytes, result.usable_bytes) == (log_dir, (), -1, -1)


def test_the_size_of_the_volume_is_told(tmp_path: Path) -> None:
    response = Wire(data_dir=str(tmp_path)).connect().ask(DescribeLogDirsRequest(topics=None), 4)
    [result] = response.results
    assert result.total_bytes == shutil.disk_usage(tmp_path).total
    assert 0 < result.usable_bytes <= result.total_bytes


# -- DescribeQuorum


def quorum(client: Connection, *asked: tuple[str, int], version: int = 2) -> DescribeQuorumResponse:
    topics = tuple(
        DescribeQuorumRequestTopic(topic_name=name, partitions=(DescribeQuorumRequestPartition(partition_index=index),))
        for name, index in asked
    )
    response: DescribeQuorumResponse = client.ask(DescribeQuorumRequest(topics=topics), version)
    assert response.error_code == 0
    return response


def test_the_controller_is_the_only_voter() -> None:
    wire = Wire(brokers=3)
    client = wire.connect(2)
    client.create_topic("t")
    response = quorum(client, ("__cluster_metadata", 0))
    [partition] = response.topics[0].partitions
    end = wire.broker.state.topics.metadata.end_offset
    assert end > 1
    assert (partition.error_code, partition.leader_id, partition.high_watermark) == (0, 1, end)
    assert [(voter.replica_id, voter.log_end_offset) for voter in partition.current_voters] == [(1, end)]
    assert [observer.replica_id for observer in partition.observers] == [2, 3]
    assert partition.current_voters[0].last_caught_up_timestamp == wire.now
    [node] = response.nodes
    assert (node.node_id, node.listeners[0].host, node.listeners[0].port) == (1, "127.0.0.1", 9092)


@pytest.mark.parametrize(
    "asked", [(("t", 0),), (("__cluster_metadata", 1),), (("__cluster_metadata", 0), ("__cluster_metadata", 0))]
)
def test_other_partitions_have_no_quorum(client: Connection, asked: tuple[tuple[str, int], ...]) -> None:
    response = quorum(client, *asked)
    assert [partition.error_code for topic in response.topics for partition in topic.partitions] == [3] * len(asked)


def test_a_broker_that_is_away_is_neither_voter_nor_listed() -> None:
    wire = Wire(brokers=3)
    client = wire.connect(2)
    wire.step(BrokerPresence(1, present=False))
    response = quorum(client, ("__cluster_metadata", 0))
    [partition] = response.topics[0].partitions
    assert partition.leader_id == 2
    assert [voter.replica_id for voter in partition.current_voters] == [2]
    assert [observer.replica_id for observer in partition.observers] == [3]
    assert [node.node_id for node in response.nodes] == [2]
    assert [name for kind, name in resources(client, 4) if kind == 4] == ["2", "3"]


# -- ListConfigResources


def resources(client: Connection, *types: int, version: int = 1) -> list[tuple[int, str]]:
    response = client.ask(ListConfigResourcesRequest(resource_types=types), version)
    assert response.error_code == 0
    return [(found.resource_type, found.resource_name) for found in response.config_resources]


def test_resources_with_configs_are_listed_by_type() -> None:
    client = Wire(brokers=2).connect()
    client.create_topic("t")
    assert client.alter_configs("g", GROUP, ("consumer.session.timeout.ms", SET, "50000"))[0] == 0
    assert resources(client) == [(32, "g"), (4, "1"), (4, "2"), (2, "t")]
    assert resources(client, 2) == [(2, "t")]
    assert resources(client, 2, 32, 2) == [(32, "g"), (2, "t")]
    assert resources(client, 8, 16) == []
    assert resources(client, version=0) == [], "version 0 lists client metrics"


def test_resources_of_an_unknown_type_are_refused(client: Connection) -> None:
    response = client.ask(ListConfigResourcesRequest(resource_types=(2, 64)), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())


# -- ElectLeaders


def elected(client: Connection, *asked: tuple[str, tuple[int, ...]], kind: int = 0) -> list[tuple[str, int, int]]:
    """Of all partitions if none is named."""
    topics = tuple(TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in asked)
    response = client.ask(ElectLeadersRequest(election_type=kind, topic_partitions=topics or None), 2)
    assert response.error_code == 0
    return [
        (topic.topic, partition.partition_id, partition.error_code)
        for topic in response.replica_election_results
        for partition in topic.partition_result
    ]


@pytest.mark.parametrize("kind", [0, 1])
def test_partitions_with_their_preferred_leader_need_no_election(client: Connection, kind: int) -> None:
    client.create_topic("t", 2)
    assert elected(client, ("t", (0, 5)), ("x", (0,)), kind=kind) == [("t", 0, 84), ("t", 5, 3), ("x", 0, 3)]
    assert elected(client, kind=kind) == []


def test_an_election_returns_leadership_to_the_first_replica() -> None:
    wire = Wire(brokers=2)
    client = wire.connect()
    client.create_topic("t", 2, 2)
    wire.step(MovePartition("t", 0, 2))
    assert elected(client, ("t", (0,)), kind=1) == [("t", 0, 84)], "it has a leader"
    assert elected(client) == [("t", 0, 0)]
    [first, _] = wire.broker.state.catalog.topics["t"].partitions
    assert (first.leader, first.leader_epoch) == (1, 2)
    assert elected(client, ("t", (0,))) == [("t", 0, 84)]


def test_a_preferred_leader_that_is_gone_is_not_elected() -> None:
    wire = Wire(brokers=2)
    wire.connect().create_topic("t", 2, 2)
    client = wire.restarted(brokers=1).connect()
    assert elected(client, ("t", (0, 1))) == [("t", 0, 84), ("t", 1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


def test_an_unknown_kind_of_election_is_refused(client: Connection) -> None:
    response = client.ask(ElectLeadersRequest(election_type=7, topic_partitions=None), 1)
    assert response.error_code == ErrorCode.INVALID_REQUEST


# -- features that kohort does not have


def test_there_are_no_acls_quotas_users_and_reassignments(client: Connection) -> None:
    acls = client.ask(DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), 3)
    assert (acls.error_code, acls.error_message) == (54, "No Authorizer is configured on the broker")
    component = ComponentData(entity_type="user", match_type=2, match=None)
    quotas = client.ask(DescribeClientQuotasRequest(components=(component,), strict=False), 1)
    assert (quotas.error_code, quotas.entries) == (0, ()), "not null, which means an error to Java's client"
    moves = client.ask(ListPartitionReassignmentsRequest(), 0)
    assert (moves.error_code, moves.topics) == (0, ())
    users = client.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert (users.error_code, users.results) == (0, ())


def test_users_that_are_named_do_not_exist(client: Connection) -> None:
    asked = tuple(UserName(name=name) for name in ("a", "b", "a"))
    results = client.ask(DescribeUserScramCredentialsRequest(users=asked), 0).results
    assert [(result.user, result.error_code) for result in results] == [("a", 92), ("b", 91)]


# -- limits


def test_a_request_names_a_limited_number_of_partitions(client: Connection) -> None:
    """All clients wait for a request, so its cost is bounded."""
    many = TopicPartitions(topic="t", partitions=tuple(range(20_001)))
    refused = client.ask(ElectLeadersRequest(topic_partitions=(many,)), 2)
    assert (refused.error_code, refused.replica_election_results) == (ErrorCode.INVALID_REQUEST, ())
    partitions = tuple(DescribeQuorumRequestPartition(partition_index=index) for index in range(1_001))
    topic = DescribeQuorumRequestTopic(topic_name="__cluster_metadata", partitions=partitions)
    response = client.ask(DescribeQuorumRequest(topics=(topic,)), 2)
    assert (response.error_code, response.topics) == (ErrorCode.INVALID_REQUEST, ())


def test_elections_of_a_topic_are_one_record() -> None:
    wire = Wire(brokers=2)
    client = wire.connect()
    client.create_topic("t", 10, 2)
    for index in range(0, 10, 2):
        wire.step(MovePartition("t", index, 2))
    before = wire.broker.state.topics.version
    assert len(elected(client)) == 5
    assert wire.broker.state.topics.version == before + 1


def test_an_election_moves_the_coordinator_of_groups() -> None:
    wire = Wire(brokers=2, offsets_topic_replication_factor=2)
    home = wire.coordinator("g")
    wire.step(MoveGroup("g", 3 - home))
    joined = stable(wire.connect(3 - home))
    assert len(elected(wire.connect())) == 1
    assert wire.coordinator("g") == home
    assert heartbeat(wire.connect(3 - home), joined) == ErrorCode.NOT_COORDINATOR
    assert heartbeat(wire.connect(home), joined) == 0


def test_a_refused_election_tells_a_part_of_a_long_name(client: Connection) -> None:
    request = ElectLeadersRequest(
        election_type=0, topic_partitions=(TopicPartitions(topic="x" * 32_767, partitions=(0,)),), timeout_ms=1000
    )
    [[result]] = [topic.partition_result for topic in client.ask(request, 1).replica_election_results]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(result.error_message) < 1_000
