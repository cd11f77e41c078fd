"""The contents of topics: read by a plain consumer, and deleted as retention does."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kohort.client.cluster import Cluster


def servers_of(cluster: Cluster) -> str:
    return ",".join(node.address for node in cluster.nodes().values())


def consumed(cluster: Cluster, topic: str) -> list[Any]:
    """All messages of a topic, in the order of partition and offset."""
    places = [(topic, index) for index in range(len(cluster.topics([topic])[topic].partitions))]
    left = sum(cluster.offsets(places, "latest").values())
    consumer = Consumer({"bootstrap.servers": servers_of(cluster), "group.id": "judge"})
    try:
        consumer.assign([TopicPartition(*place, 0) for place in places])
        messages: list[Any] = []
        while len(messages) < left:
            messages += consumer.consume(10_000, 1.0)
    finally:
        consumer.close()
    assert all(message.error() is None for message in messages)
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def delete_before(cluster: Cluster, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers_of(cluster)})
    [deleted] = admin.delete_records([TopicPartition(topic, partition, offset)]).values()
    deleted.result(10)
