"""OffsetCommit and OffsetFetch requests, for topics by name or by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

Topic = TypeVar("Topic", str, bytes)


def commit_request(
    group: str, epoch: int, member_id: str, instance: str | None, offsets: Mapping[tuple[Topic, int], int]
) -> OffsetCommitRequest:
    topics = tuple(
        OffsetCommitRequestTopic(
            partitions=tuple(
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offsets[topic, index])
                for index in indexes
            ),
            **_named(topic),
        )
        for topic, indexes in _by_topic(offsets).items()
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance,
        topics=topics,
    )


def fetch_request(group: str, places: Iterable[tuple[Topic, int]], **member: Any) -> OffsetFetchRequest:
    """`member`: its `member_id` and `member_epoch`, if the request names them."""
    topics = tuple(
        OffsetFetchRequestTopics(partition_indexes=tuple(indexes), **_named(topic))
        for topic, indexes in _by_topic(places).items()
    )
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=topics, **member),))


def _by_topic(places: Iterable[tuple[Topic, int]]) -> dict[Topic, list[int]]:
    found: dict[Topic, list[int]] = {}
    for topic, index in places:
        found.setdefault(topic, []).append(index)
    return found


def _named(topic: str | bytes) -> dict[str, Any]:
    return {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
