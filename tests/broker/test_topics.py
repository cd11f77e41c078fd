"""Topics: CreateTopics, DeleteTopics, CreatePartitions, Metadata, DescribeTopicPartitions, DescribeCluster."""

from __future__ import annotations

import pytest
from group_driver import stable
from wire_driver import Connection, Wire, delete_topics, fetch_request

from kohort.broker.topics.catalog import JOURNAL_TOPIC, OFFSETS_TOPIC
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kohort.wire.schemas.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest
from kohort.wire.schemas.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

ABSENT = bytes(15) + b"\x09"
"""The id of no topic."""


def metadata(client: Connection, *names: str, version: int = 9, **options: bool) -> MetadataResponse:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    response: MetadataResponse = client.ask(MetadataRequest(topics=topics, **options), version)
    return response


def create(
    client: Connection, name: str = "t", version: int = 7, validate_only: bool = False, **fields: object
) -> CreatableTopicResult:
    topic = CreatableTopic(name=name, **({"num_partitions": 1, "replication_factor": 1} | fields))  # type: ignore[arg-type]
    response = client.ask(CreateTopicsRequest(topics=(topic,), validate_only=validate_only), version)
    result: CreatableTopicResult = response.topics[0]
    return result


# -- Metadata


def test_metadata_lists_brokers_and_the_internal_topics(client: Connection, wire: Wire) -> None:
    stable(client)
    response = client.ask(MetadataRequest(topics=None), 12)
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [(1, "127.0.0.1", 9092)]
    assert response.controller_id == 1
    assert response.cluster_id == wire.broker.state.catalog.cluster_id
    assert len(wire.broker.state.catalog.cluster_id) == 22
    offsets, journal = response.topics
    assert (offsets.name, offsets.is_internal, len(offsets.partitions)) == (OFFSETS_TOPIC, True, 5)
    assert offsets.topic_authorized_operations == -2147483648
    assert (journal.name, journal.is_internal, len(journal.partitions)) == (JOURNAL_TOPIC, True, 1)


def names(client: Connection) -> list[str | None]:
    listed = [topic.name for topic in client.ask(MetadataRequest(topics=None), 9).topics]
    described = client.ask(DescribeTopicPartitionsRequest(topics=()), 0)
    assert listed == [topic.name for topic in described.topics]
    return listed


def test_own_topics_are_listed_when_they_are_used(client: Connection, wire: Wire) -> None:
    """Clients see `__consumer_offsets` when the first client has looked for its coordinator, as in Kafka."""
    client.create_topic("t")
    client.ask(FindCoordinatorRequest(key="x", key_type=2), 2)
    assert names(client) == ["t"]
    client.ask(FindCoordinatorRequest(key="g"), 2)
    assert names(client) == [OFFSETS_TOPIC, "t"]
    stable(client)
    assert names(client) == [OFFSETS_TOPIC, JOURNAL_TOPIC, "t"]
    again = wire.restarted()
    assert names(again.connect()) == [OFFSETS_TOPIC, JOURNAL_TOPIC, "t"]


def test_an_own_topic_that_is_not_listed_can_be_named(client: Connection) -> None:
    [topic] = metadata(client, OFFSETS_TOPIC).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 5)


@pytest.mark.parametrize(("version", "topics", "all_topics"), [(0, (), True), (1, None, True), (1, (), False)])
def test_which_metadata_request_means_all_topics(
    client: Connection, version: int, topics: tuple[MetadataRequestTopic, ...] | None, all_topics: bool
) -> None:
    client.create_topic("t")
    response = client.ask(MetadataRequest(topics=topics), version)
    assert bool(response.topics) is all_topics


def test_metadata_creates_an_unknown_topic_with_the_brokers_defaults() -> None:
    client = Wire(num_partitions=3).connect()
    (topic,) = metadata(client, "fresh").topics
    assert (topic.error_code, len(topic.partitions)) == (0, 3)
    (again,) = metadata(client, "fresh", version=10).topics
    assert len(again.partitions) == 3
    assert again.topic_id != bytes(16)


@pytest.mark.parametrize(("server", "asked"), [(False, True), (True, False)])
def test_metadata_creates_nothing_unless_both_sides_want_it(server: bool, asked: bool) -> None:
    client = Wire(auto_create_topics_enable=server).connect()
    (topic,) = metadata(client, "fresh", allow_auto_topic_creation=asked).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert all(topic.is_internal for topic in client.ask(MetadataRequest(topics=None), 9).topics)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b", "__transaction_state"])
def test_metadata_does_not_create_topics_of_illegal_names(client: Connection, name: str) -> None:
    assert metadata(client, name).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- CreateTopics


def test_a_created_topic_is_described_in_the_answer_and_in_metadata(client: Connection) -> None:
    result = create(client, num_partitions=4, configs=(CreatableTopicConfig(name="retention.ms", value="1000"),))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)
    assert result.configs is not None
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.ms"] == ("1000", 1)
    assert configs["cleanup.policy"] == ("delete", 5)
    options = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    response = metadata(client, "t", version=8, **options)
    assert response.topics[0].topic_authorized_operations == 0b110111111000
    assert response.cluster_authorized_operations == 0b1111110100000
    assert metadata(client, "t", version=12).topics[0].topic_id == result.topic_id


@pytest.mark.parametrize("version", [2, 4, 5, 6, 7])
def test_errors_of_creation_never_have_null_configs(client: Connection, version: int) -> None:
    assert create(client, version=version).error_code == 0
    result = create(client, version=version)
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    if version >= 5:
        assert result.configs == ()


def test_defaults_of_creation() -> None:
    client = Wire(brokers=2, num_partitions=3, default_replication_factor=2).connect()
    result = create(client, num_partitions=-1, replication_factor=-1)
    assert (result.num_partitions, result.replication_factor) == (3, 2)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 2_000_000_000}, ErrorCode.POLICY_VIOLATION),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"name": OFFSETS_TOPIC}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": JOURNAL_TOPIC}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"configs": (CreatableTopicConfig(name="nope", value="1"),)}, ErrorCode.INVALID_CONFIG),
        ({"configs": (CreatableTopicConfig(name="retention.ms", value="x"),)}, ErrorCode.INVALID_CONFIG),
        ({"configs": (CreatableTopicConfig(name="retention.ms", value=None),)}, ErrorCode.INVALID_CONFIG),
        ({"configs": (CreatableTopicConfig(name="cleanup.policy", value="burn"),)}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_refusals_of_topic_creation(client: Connection, fields: dict[str, object], error: ErrorCode) -> None:
    before = client.ask(MetadataRequest(topics=None), 9)
    result = create(client, **fields)  # type: ignore[arg-type]
    assert result.error_code == error
    assert result.error_message
    assert client.ask(MetadataRequest(topics=None), 9) == before


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a.b"}, "Topic 'a.b' already exists."),
        ({"name": "a_b"}, "Topic 'a_b' collides with existing topic: a.b"),
        ({"name": ""}, "Topic name is invalid: the empty string is not allowed"),
        ({"name": "."}, "Topic name is invalid: '.' is not allowed"),
        (
            {"name": "a b"},
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics",
        ),
        ({"num_partitions": 0}, "Number of partitions was set to an invalid non-positive value."),
        ({"replication_factor": 0}, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            {"replication_factor": 3},
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
            "only 1 broker(s) are registered.",
        ),
    ],
)
def test_refusals_say_what_kafka_says(client: Connection, fields: dict[str, object], message: str) -> None:
    """`kafka-topics` prints the message, and people look for it."""
    client.create_topic("a.b")
    result = create(client, **fields)  # type: ignore[arg-type]
    assert str(result.error_message).startswith(message)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic t currently has 2 partition(s); 1 would not be an increase."),
    ],
)
def test_refused_partitions_say_what_kafka_says(client: Connection, count: int, message: str) -> None:
    client.create_topic("t", 2)
    request = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=count),), timeout_ms=1)
    assert client.ask(request, 3).results[0].error_message == message


def test_names_that_differ_in_periods_and_underscores_collide(client: Connection) -> None:
    client.create_topic("a.b")
    assert create(client, "a_b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert metadata(client, "a_b").topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    client.ask(delete_topics("a.b"), 5)
    assert create(client, "a_b").error_code == 0


def test_a_topic_named_twice_in_a_request_is_refused_and_the_others_are_created(client: Connection) -> None:
    topics = tuple(CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b", "a"))
    response = client.ask(CreateTopicsRequest(topics=topics), 7)
    assert {topic.name: topic.error_code for topic in response.topics} == {"a": ErrorCode.INVALID_REQUEST, "b": 0}


def test_validate_only_creates_nothing(client: Connection) -> None:
    assert create(client, validate_only=True).error_code == 0
    assert create(client, validate_only=True, replication_factor=9).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert metadata(client, "t", allow_auto_topic_creation=False).topics[0].error_code == 3


def test_manual_assignments() -> None:
    client = Wire(brokers=3).connect()

    def assigned(*replicas: tuple[int, ...], **fields: object) -> CreatableTopicResult:
        assignments = tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
        )
        return create(client, **({"num_partitions": -1, "replication_factor": -1, "assignments": assignments} | fields))  # type: ignore[arg-type]

    assert assigned((1, 2), num_partitions=1).error_code == ErrorCode.INVALID_REQUEST
    assert assigned((1, 9)).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assigned((1, 1)).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assigned((1, 2), (3,)).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assigned(()).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assigned((3, 1), (2, 3)).error_code == 0
    (topic,) = metadata(client, "t").topics
    assert [(part.leader_id, part.replica_nodes, part.isr_nodes) for part in topic.partitions] == [
        (3, (3, 1), (3, 1)),
        (2, (2, 3), (2, 3)),
    ]


# -- CreatePartitions


def grow(client: Connection, count: int, name: str = "t", validate_only: bool = False, **fields: object) -> int:
    topic = CreatePartitionsTopic(name=name, count=count, **fields)  # type: ignore[arg-type]
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1, validate_only=validate_only)
    error: int = client.ask(request, 3).results[0].error_code
    return error


def test_partitions_are_added_and_never_removed(client: Connection, wire: Wire) -> None:
    client.create_topic("t", 2)
    client.produce("t", "kept", partition=1)
    assert grow(client, 3, "absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(client, 2) == ErrorCode.INVALID_PARTITIONS
    assert grow(client, 1) == ErrorCode.INVALID_PARTITIONS
    one_of_two = (CreatePartitionsAssignment(broker_ids=(1,)),)
    assert grow(client, 4, assignments=one_of_two) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(client, 10, OFFSETS_TOPIC) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert grow(client, 2, JOURNAL_TOPIC) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert grow(client, 4, validate_only=True) == 0
    assert len(metadata(client, "t").topics[0].partitions) == 2
    assert grow(client, 4) == 0
    assert len(metadata(client, "t").topics[0].partitions) == 4
    assert client.produce("t", "new", partition=3) == 0
    again = wire.restarted().connect()
    assert again.values("t", partition=1) == [b"kept"]
    assert again.values("t", partition=3) == [b"new"]


# -- DeleteTopics


def test_a_deleted_topic_loses_its_records_and_a_namesake_is_a_new_topic(client: Connection, wire: Wire) -> None:
    first = client.create_topic("t")
    client.produce("t", "old")
    waiting = wire.connect()
    waiting.send(fetch_request("t", 1, max_wait_ms=60_000), 11)
    (result,) = client.ask(delete_topics("t"), 5).responses
    assert (result.name, result.error_code) == ("t", 0)
    assert waiting.take().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    second = client.create_topic("t")
    assert second != first
    assert client.values("t") == []
    wire.restarted()


def test_topics_are_found_and_deleted_by_id(client: Connection) -> None:
    topic_id = client.create_topic("t")
    topics = tuple(MetadataRequestTopic(topic_id=wanted, name=None) for wanted in (topic_id, ABSENT))
    known, unknown = client.ask(MetadataRequest(topics=topics), 12).topics
    assert (known.name, known.error_code) == ("t", 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, ABSENT, ErrorCode.UNKNOWN_TOPIC_ID)
    named = tuple(DeleteTopicState(topic_id=wanted, name=None) for wanted in (topic_id, ABSENT))
    known, unknown = client.ask(DeleteTopicsRequest(topics=named, timeout_ms=1), 6).responses
    assert (known.name, known.topic_id, known.error_code) == ("t", topic_id, 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, ABSENT, ErrorCode.UNKNOWN_TOPIC_ID)


def test_refusals_of_topic_deletion(client: Connection) -> None:
    topic_id = client.create_topic("t")
    client.create_topic("u")

    def delete(*topics: DeleteTopicState) -> list[int]:
        request = DeleteTopicsRequest(topics=topics, timeout_ms=1)
        return [result.error_code for result in client.ask(request, 6).responses]

    assert delete(DeleteTopicState(name="absent")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete(DeleteTopicState(name="t", topic_id=topic_id)) == [ErrorCode.INVALID_REQUEST]
    assert delete(DeleteTopicState(name=None)) == [ErrorCode.INVALID_REQUEST]
    assert delete(DeleteTopicState(name="t"), DeleteTopicState(name=None, topic_id=topic_id)) == [42, 42]
    for name in (OFFSETS_TOPIC, JOURNAL_TOPIC):
        assert delete(DeleteTopicState(name=name)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert delete(DeleteTopicState(name="t"), DeleteTopicState(name="u")) == [0, 0]


# -- racks


@pytest.mark.parametrize(
    ("racks", "factor", "replicas"),
    [
        ("aabb", 2, [(1, 3), (3, 2), (2, 4), (4, 1)]),
        ("aabb", 3, [(1, 3, 2), (3, 2, 4), (2, 4, 1), (4, 1, 3)]),
        ("aaab", 2, [(1, 4), (4, 2), (2, 4), (3, 4)]),
        ("aaaa", 2, [(1, 2), (2, 3), (3, 4), (4, 1)]),
        ("", 2, [(1, 2), (2, 3), (3, 4), (4, 1)]),
    ],
)
def test_replicas_are_spread_over_racks(racks: str, factor: int, replicas: list[tuple[int, ...]]) -> None:
    client = Wire(brokers=4, racks=racks, num_partitions=4, default_replication_factor=factor).connect()
    [automatic] = metadata(client, "t", allow_auto_topic_creation=True).topics
    assert [partition.replica_nodes for partition in automatic.partitions] == replicas
    assert [partition.leader_id for partition in automatic.partitions] == [first for first, *_ in replicas]
    client.create_topic("u", 2, factor)
    request = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="u", count=4),), timeout_ms=1)
    assert client.ask(request, 3).results[0].error_code == 0
    [grown] = metadata(client, "u").topics
    assert [partition.replica_nodes for partition in grown.partitions] == replicas


# -- DescribeTopicPartitions, DescribeCluster


def test_partitions_are_described_page_by_page(client: Connection) -> None:
    client.create_topic("a", 3)
    client.create_topic("b", 2)
    pages = []
    cursor: Cursor | None = Cursor(topic_name="a", partition_index=0)
    while cursor is not None:
        asked = tuple(TopicRequest(name=name) for name in "ba")
        request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=2, cursor=cursor)
        response = client.ask(request, 0)
        pages.append([(topic.name, [part.partition_index for part in topic.partitions]) for topic in response.topics])
        cursor = response.next_cursor
    assert pages == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1])]]


def test_describing_all_partitions_and_absent_topics(client: Connection) -> None:
    client.create_topic("a")
    everything = client.ask(DescribeTopicPartitionsRequest(topics=()), 0)
    assert [topic.name for topic in everything.topics] == ["a"]
    assert everything.next_cursor is None
    named = client.ask(DescribeTopicPartitionsRequest(topics=(TopicRequest(name="x"), TopicRequest(name="a b"))), 0)
    assert [(topic.name, topic.error_code) for topic in named.topics] == [("a b", 17), ("x", 3)]
    cursor = Cursor(topic_name="a", partition_index=-1)
    refused = client.ask(DescribeTopicPartitionsRequest(topics=(TopicRequest(name="a"),), cursor=cursor), 0)
    assert refused.topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_describe_cluster() -> None:
    wire = Wire(brokers=3)
    response = wire.connect(2).ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert response.cluster_id == wire.broker.state.catalog.cluster_id
    assert response.controller_id == 1
    assert [broker.broker_id for broker in response.brokers] == [1, 2, 3]
    assert response.cluster_authorized_operations == 0b1111110100000
    controllers = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    assert wire.connect().ask(controllers, 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
