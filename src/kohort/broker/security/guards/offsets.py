"""The guards of OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from kohort.broker.authorization import Operation, Resource
from kohort.broker.handlers.offsets import GROUPS
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES
from kohort.broker.security.guards.ask import DESCRIBE, GROUP, READ, TOPIC, Ask, Narrowed, Refused, Verdict
from kohort.broker.security.guards.rows import TopicRows, by_topic
from kohort.coordinator.classic.responses import commit_error
from kohort.coordinator.offsets.offsets import TOPIC_IDS
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import offset_commit as committed
from kohort.wire.schemas import offset_delete as deleted
from kohort.wire.schemas import offset_fetch as fetched

_O, _R = Operation, Resource
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED


# -- OffsetCommit


def _uncommitted(topic: committed.OffsetCommitRequestTopic, error: ErrorCode) -> committed.OffsetCommitResponseTopic:
    return committed.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            committed.OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
            for asked in topic.partitions
        ),
    )


COMMITTED = TopicRows("topics", "topics", _uncommitted, committed.OffsetCommitResponse, ids_from=TOPIC_IDS)


def offset_commit(ask: Ask, request: committed.OffsetCommitRequest) -> Verdict | Generator[int, None, Verdict]:
    if not ask.may(READ, GROUP, request.group_id):
        return Refused(commit_error(request, NO_GROUP))
    return by_topic(COMMITTED, READ, ask, request)


# -- OffsetDelete


def _undeleted(topic: deleted.OffsetDeleteRequestTopic, error: ErrorCode) -> deleted.OffsetDeleteResponseTopic:
    return deleted.OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=tuple(
            deleted.OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=error)
            for asked in topic.partitions
        ),
    )


DELETED = TopicRows("topics", "topics", _undeleted, partial(deleted.OffsetDeleteResponse, error_code=0))


def offset_delete(ask: Ask, request: deleted.OffsetDeleteRequest) -> Verdict | Generator[int, None, Verdict]:
    if not ask.may(_O.DELETE, GROUP, request.group_id):
        return Refused(deleted.OffsetDeleteResponse(error_code=NO_GROUP, topics=()))
    return by_topic(DELETED, READ, ask, request)


# -- OffsetFetch


def _older_row(topic: fetched.OffsetFetchRequestTopic, error: ErrorCode) -> fetched.OffsetFetchResponseTopic:
    return fetched.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=tuple(
            fetched.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=error)
            for index in topic.partition_indexes
        ),
    )


OLDER = TopicRows("topics", "topics", _older_row, fetched.OffsetFetchResponse)


def offset_fetch(ask: Ask, request: fetched.OffsetFetchRequest) -> Verdict | Generator[int, None, Verdict]:
    if ask.version >= GROUPS:
        return _of_groups(ask, request)
    if not ask.may(DESCRIBE, GROUP, request.group_id):
        # Version 1 has no error for the whole response, so every partition carries it (O17).
        topics = request.topics if ask.version < 2 else ()
        rows = tuple(_older_row(topic, NO_GROUP) for topic in topics or ())
        return Refused(fetched.OffsetFetchResponse(error_code=NO_GROUP, topics=rows))
    if request.topics is None:
        return Narrowed(request, partial(_visible_older, ask))
    return by_topic(OLDER, DESCRIBE, ask, request)


def _visible_older(ask: Ask, answer: fetched.OffsetFetchResponse) -> Generator[int, None, fetched.OffsetFetchResponse]:
    return changed(answer, topics=(yield from _visible(ask, answer.topics)))


def _visible(ask: Ask, topics: tuple[Any, ...]) -> Generator[int, None, tuple[Any, ...]]:
    kept = []
    for topic in topics:
        name = ask.topic_name(topic.topic_id) if ask.version >= TOPIC_IDS else topic.name
        if name is not None and ask.sees(DESCRIBE, TOPIC, name):
            kept.append(topic)
        yield 0
    return tuple(kept)


def _of_groups(ask: Ask, request: fetched.OffsetFetchRequest) -> Generator[int, None, Verdict]:
    kept: list[fetched.OffsetFetchRequestGroup] = []
    refused: dict[str, fetched.OffsetFetchResponseGroup] = {}
    hidden: dict[str, tuple[fetched.OffsetFetchRequestTopics, ...]] = {}
    all_of: set[str] = set()
    for group in request.groups:
        group_id = group.group_id
        yield 0
        if not ask.may(DESCRIBE, GROUP, group_id):
            refused[group_id] = fetched.OffsetFetchResponseGroup(group_id=group_id, error_code=NO_GROUP)
            continue
        if group.topics is None:
            all_of.add(group_id)
        else:
            seen, denied = yield from _split(ask, group.topics)
            if denied:
                hidden[group_id] = hidden.get(group_id, ()) + denied
                group = changed(group, topics=seen)
        kept.append(group)
    if not refused and not hidden and not all_of:
        return None
    finish = partial(_finished, ask, refused, hidden, all_of)
    return Narrowed(changed(request, groups=tuple(kept)), finish)


Asked = tuple[fetched.OffsetFetchRequestTopics, ...]


def _split(ask: Ask, topics: Asked) -> Generator[int, None, tuple[Asked, Asked]]:
    """The topics that it may describe, and the others."""
    seen: list[fetched.OffsetFetchRequestTopics] = []
    denied: list[fetched.OffsetFetchRequestTopics] = []
    for topic in topics:
        name = ask.topic_name(topic.topic_id) if ask.version >= TOPIC_IDS else topic.name
        (seen if name is None or ask.may(DESCRIBE, TOPIC, name) else denied).append(topic)
        yield 0
    return tuple(seen), tuple(denied)


def _finished(
    ask: Ask,
    refused: dict[str, fetched.OffsetFetchResponseGroup],
    hidden: dict[str, tuple[fetched.OffsetFetchRequestTopics, ...]],
    all_of: set[str],
    answer: fetched.OffsetFetchResponse,
) -> Generator[int, None, fetched.OffsetFetchResponse]:
    groups: list[fetched.OffsetFetchResponseGroup] = []
    for group in answer.groups:
        if group.group_id in refused:
            continue
        if group.group_id in all_of:
            group = changed(group, topics=(yield from _visible(ask, group.topics)))
        if group.group_id in hidden and not group.error_code:
            rows = tuple(map(_row, hidden[group.group_id]))
            gone = {(row.name, row.topic_id) for row in rows}
            shown = tuple(topic for topic in group.topics if (topic.name, topic.topic_id) not in gone)
            group = changed(group, topics=shown + rows)
        groups.append(group)
        yield ROW_BYTES
    return changed(answer, groups=(*groups, *refused.values()))


def _row(topic: fetched.OffsetFetchRequestTopics) -> fetched.OffsetFetchResponseTopics:
    return fetched.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            fetched.OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=NO_TOPIC)
            for index in topic.partition_indexes
        ),
    )
