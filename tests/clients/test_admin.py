"""The admin clients: create, describe, list and delete topics and groups, list and alter offsets."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType
from group import Group, until
from produce import create_topic, produce

from kohort.testing import KohortServer

pytestmark = [pytest.mark.client, pytest.mark.timeout(90)]


def commit_some(bootstrap: str, group: str, topic: str, offset: int = 5) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata="note")], asynchronous=False)
    consumer.close()


def test_confluent_topics(bootstrap: str, unique: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(unique, 2, 1, config={"retention.ms": "3600000"})])[unique].result(10)
    with pytest.raises(Exception, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(unique, 2, 1)])[unique].result(10)
    assert len(admin.list_topics(timeout=10).topics[unique].partitions) == 2
    admin.create_partitions([NewPartitions(unique, 4)])[unique].result(10)
    from confluent_kafka import TopicCollection

    described = admin.describe_topics(TopicCollection([unique]))[unique].result(10)
    assert len(described.partitions) == 4
    resource = ConfigResource(ResourceType.TOPIC, unique)
    config = admin.describe_configs([resource])[resource].result(10)
    assert config["retention.ms"].value == "3600000"
    assert not config["retention.ms"].is_default
    produce("confluent", bootstrap, unique, ["x"] * 40, 4)
    latest = admin.list_offsets({TopicPartition(unique, 0): OffsetSpec.latest()})
    assert next(iter(latest.values())).result(10).offset == 10
    deleted = admin.delete_records([TopicPartition(unique, 0, 4)])
    assert next(iter(deleted.values())).result(10).low_watermark == 4
    cluster = admin.describe_cluster().result(10)
    assert len(cluster.nodes) == 1
    admin.delete_topics([unique])[unique].result(10)
    assert unique not in admin.list_topics(timeout=10).topics


def test_confluent_alters_configs(bootstrap: str, unique: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    create_topic(bootstrap, unique, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(
        ResourceType.TOPIC,
        unique,
        incremental_configs=[ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([resource])[resource].result(10)
    asked = ConfigResource(ResourceType.TOPIC, unique)

    def is_compact() -> bool:
        policy = admin.describe_configs([asked])[asked].result(10)["cleanup.policy"].value
        return bool(policy == "compact")

    until(is_compact, "also the brokers of a cluster that learn of it later say so")
    bad = ConfigResource(
        ResourceType.TOPIC,
        unique,
        incremental_configs=[ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)],
    )
    with pytest.raises(Exception, match="INVALID_CONFIG"):
        admin.incremental_alter_configs([bad])[bad].result(10)


def test_confluent_and_kafka_python_alter_a_broker() -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigSource
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType, KafkaAdminClient

    with KohortServer() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})

        def change(broker: str, name: str, value: str) -> None:
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(10)

        change("1", "message.max.bytes", "2000")
        asked = ConfigResource(ResourceType.BROKER, "1")
        described = admin.describe_configs([asked])[asked].result(10)
        entry = described["message.max.bytes"]
        source = ConfigSource.DYNAMIC_BROKER_CONFIG.value
        assert (entry.value, entry.source, entry.is_read_only) == ("2000", source, False)
        assert described["num.partitions"].is_read_only
        with pytest.raises(KafkaException, match=r"Cannot update these configs dynamically: \[num.partitions\]"):
            change("1", "num.partitions", "2")
        python = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        try:
            python.alter_configs([PythonResource(ConfigResourceType.BROKER, "1", {"log.retention.ms": "9"})])
        finally:
            python.close()
        described = admin.describe_configs([asked])[asked].result(10)
        assert described["log.retention.ms"].value == "9"


def test_confluent_alters_settings_of_groups(bootstrap: str, unique: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigSource

    admin = AdminClient({"bootstrap.servers": bootstrap})
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    def change(name: str, value: str | None, operation: AlterConfigOpType = AlterConfigOpType.SET) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.GROUP, unique, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10)

    def described() -> dict[str, ConfigEntry]:
        asked = ConfigResource(ResourceType.GROUP, unique)
        found: dict[str, ConfigEntry] = admin.describe_configs([asked])[asked].result(10)
        return found

    assert described()[session].is_default
    change(session, "50000")
    found = described()
    assert (found[session].value, found[session].source, found[session].is_read_only) == ("50000", 8, False)
    assert {(synonym.value, synonym.source) for synonym in found[session].synonyms.values()} == {
        ("50000", 8),
        ("45000", ConfigSource.DEFAULT_CONFIG.value),
    }
    assert found[interval].value == "5000"
    for name, value in ((session, "1"), (session, "soon"), ("consumer.nope", "1")):
        with pytest.raises(Exception, match=rf"INVALID_CONFIG.*{name}"):
            change(name, value)
    change(session, None, AlterConfigOpType.DELETE)
    assert described()[session].is_default


def test_confluent_groups_and_offsets(bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, 1)
    produce("confluent", bootstrap, unique, ["x"] * 20, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with Group("confluent", bootstrap, unique, unique) as group:
        member = group.start("a")
        group.wait(lambda: len(member.records) == 20 and member.commits > 0, "20 records, committed")
        described = admin.describe_consumer_groups([unique])[unique].result(10)
        assert described.state == ConsumerGroupState.STABLE
        assert [p.partition for p in described.members[0].assignment.topic_partitions] == [0]
        listed = {g.group_id for g in admin.list_consumer_groups().result(10).valid}
        assert unique in listed
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([unique])[unique].result(10)
        group.close()
    wanted = ConsumerGroupTopicPartitions(unique, [TopicPartition(unique, 0, 7)])
    admin.alter_consumer_group_offsets([wanted])[unique].result(10)
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(unique)])[unique].result(10)
    assert [(p.topic, p.partition, p.offset) for p in offsets.topic_partitions] == [(unique, 0, 7)]
    admin.delete_consumer_groups([unique])[unique].result(10)
    assert unique not in {g.group_id for g in admin.list_consumer_groups().result(10).valid}


def test_kafka_python_describes_topics_and_reads_metadata_of_offsets(bootstrap: str, unique: str) -> None:
    """The matrix has its other administration."""
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as Partition

    create_topic(bootstrap, unique, 3)
    commit_some(bootstrap, unique, unique)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    assert len(admin.describe_topics([unique])[0]["partitions"]) == 3
    committed = admin.list_group_offsets({unique: None})[unique][Partition(unique, 0)]
    assert committed.offset == 5
    # confluent-kafka sends the end of its C string with the metadata.
    assert committed.metadata.rstrip("\0") == "note"
    admin.close()


def test_aiokafka_describes_topics_and_reads_offsets(bootstrap: str, unique: str) -> None:
    """The matrix has its other administration."""
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.structs import TopicPartition as Partition

    create_topic(bootstrap, unique, 3)
    commit_some(bootstrap, unique, unique)

    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            [described] = await admin.describe_topics([unique])
            assert len(described["partitions"]) == 3
            offsets = await admin.list_consumer_group_offsets(unique)
            assert offsets[Partition(unique, 0)].offset == 5
        finally:
            await admin.close()

    asyncio.run(scenario())
