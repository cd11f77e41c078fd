"""What a consumer asks of the cluster by way of `Cluster`, which blocks: functions for a thread (`worker_thread`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.client.admin.groups import Committed, Committer
from kohort.client.cluster import Cluster, Isolation
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember
from kohort.wire.errors import ErrorCode


def commit(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int | Committed], committer: Committer
) -> dict[TopicPartition, ErrorCode]:
    return cluster.commit_as(group_id, offsets, committer)


def committed(cluster: Cluster, group_id: str, partitions: list[TopicPartition]) -> dict[TopicPartition, Committed]:
    return cluster.committed(group_id, partitions)


def offsets(
    cluster: Cluster, partitions: list[TopicPartition], at: Any, isolation: Isolation
) -> dict[TopicPartition, int]:
    return cluster.offsets(partitions, at, isolation=isolation)


def fetch(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    limits: Mapping[str, int],
    isolation: Isolation,
    reader: GroupMember | None,
) -> list[FetchedPartition]:
    return cluster.fetch(positions, isolation=isolation, as_member=reader, **limits)


def names(cluster: Cluster, topics: tuple[str, ...] | None) -> dict[bytes, str]:
    """By id."""
    found = cluster.topics(topics, internal=True)
    return {topic.topic_id: name for name, topic in found.items() if topic.topic_id is not None and not topic.error}


def sizes(cluster: Cluster, topics: tuple[str, ...]) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in cluster.topics(topics).items() if not topic.error}


def all_topics(cluster: Cluster) -> list[str]:
    return [name for name, topic in cluster.topics().items() if not topic.error]
