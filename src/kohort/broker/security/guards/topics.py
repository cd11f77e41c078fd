"""The guards of Metadata, DescribeTopicPartitions, CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from kohort.broker.authorization import TOPIC_OPERATIONS, Operation, Resource
from kohort.broker.handlers.topics_admin import TOPIC_IDS as DELETE_IDS
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, ROWS
from kohort.broker.security.guards.ask import Ask, Narrowed, Refused, Verdict
from kohort.broker.security.guards.rows import DENIED, TopicRows, by_topic
from kohort.broker.topics.catalog import INTERNAL_TOPICS
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas import create_partitions as grown
from kohort.wire.schemas import create_topics as created
from kohort.wire.schemas import delete_topics as deleted
from kohort.wire.schemas import describe_topic_partitions as described
from kohort.wire.schemas import metadata as known

_O, _R = Operation, Resource
METADATA_IDS = 12
"""The first version of Metadata that finds topics by their ids."""


# -- Metadata


def metadata(ask: Ask, request: known.MetadataRequest) -> Generator[int, None, Verdict]:
    """Topics of which it may not know are left out of the list of all; one that it names gets a row without an id. A
    topic that would be created needs the right to create it."""
    if request.topics is None or (ask.version == 0 and not request.topics):
        yield 0
        return Narrowed(request, partial(_finished, ask, request, {}, True))
    creates = request.allow_auto_topic_creation and ask.state.config.auto_create_topics_enable
    kept: list[known.MetadataRequestTopic] = []
    refused: dict[tuple[bytes, str | None], known.MetadataResponseTopic] = {}
    for at, wanted in enumerate(request.topics, 1):
        row = _refused(ask, wanted, creates)
        if row is None:
            kept.append(wanted)
        else:
            refused[wanted.topic_id, wanted.name] = row
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
    asks = request.include_topic_authorized_operations or request.include_cluster_authorized_operations
    if not refused and not asks:
        return None
    narrowed = changed(request, topics=tuple(kept))
    if not kept and ask.version == 0:
        narrowed = changed(request, topics=(known.MetadataRequestTopic(name=""),))  # none would stand for all
    return Narrowed(narrowed, partial(_finished, ask, request, refused, False))


def _refused(ask: Ask, wanted: known.MetadataRequestTopic, creates: bool) -> known.MetadataResponseTopic | None:
    name, topic_id = wanted.name, wanted.topic_id
    if topic_id != NO_UUID:
        name = ask.topic_name(topic_id) if ask.version >= METADATA_IDS else None
        if name is None or ask.may(_O.DESCRIBE, _R.TOPIC, name):
            return None
        return _row(None, topic_id)  # whoever names an id knows it
    if name is None:
        return None
    if not ask.may(_O.DESCRIBE, _R.TOPIC, name):
        return _row(name, NO_UUID)
    if not creates or ask.state.topic(name) is not None:
        return None
    if ask.sees_cluster(_O.CREATE) or ask.may(_O.CREATE, _R.TOPIC, name):
        return None
    return changed(_row(name, NO_UUID), is_internal=name in INTERNAL_TOPICS)


def _row(name: str | None, topic_id: bytes) -> known.MetadataResponseTopic:
    return known.MetadataResponseTopic(error_code=DENIED, name=name, topic_id=topic_id, partitions=())


def _finished(
    ask: Ask,
    request: known.MetadataRequest,
    refused: dict[tuple[bytes, str | None], known.MetadataResponseTopic],
    is_all: bool,
    answer: known.MetadataResponse,
) -> Generator[int, None, known.MetadataResponse]:
    topics = []
    hidden = {row.name for row in refused.values() if row.name is not None}
    hidden_ids = {row.topic_id for row in refused.values()} - {NO_UUID}
    if not is_all and len(refused) == len(request.topics or ()):
        answer = changed(answer, topics=())
    for at, topic in enumerate(answer.topics, 1):
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
        if topic.name in hidden or topic.topic_id in hidden_ids:
            continue
        if is_all and (topic.name is None or not ask.sees(_O.DESCRIBE, _R.TOPIC, topic.name)):
            continue
        if request.include_topic_authorized_operations and topic.name is not None:
            bits = ask.operations(_R.TOPIC, topic.name, TOPIC_OPERATIONS)
            topic = changed(topic, topic_authorized_operations=bits)
        topics.append(topic)
    if request.include_cluster_authorized_operations:
        answer = changed(answer, cluster_authorized_operations=ask.cluster_operations())
    return changed(answer, topics=(*topics, *refused.values()))


# -- DescribeTopicPartitions


def describe_topic_partitions(
    ask: Ask, request: described.DescribeTopicPartitionsRequest
) -> Generator[int, None, Verdict]:
    """A request for all topics becomes one for those that it may describe: the next cursor must not name another."""
    denied: set[str] = set()
    visible: list[str] = []
    is_all = not request.topics
    names = (topic.name for topic in (ask.state.topics.listed() if is_all else request.topics))
    for at, name in enumerate(dict.fromkeys(names), 1):
        if ask.sees(_O.DESCRIBE, _R.TOPIC, name) if is_all else ask.may(_O.DESCRIBE, _R.TOPIC, name):
            visible.append(name)
        else:
            denied.add(name)
        if at % ROWS == 0:
            yield 0
    cursor = request.cursor
    if is_all and cursor is not None and cursor.topic_name not in visible:
        following = [name for name in visible if name >= cursor.topic_name]
        visible = following
        cursor = described.Cursor(topic_name=min(following), partition_index=0) if following else None
    rows = () if is_all else tuple(_undescribed(topic.name) for topic in request.topics if topic.name in denied)
    if not visible or (cursor is not None and not is_all and cursor.topic_name in denied):
        return Refused(described.DescribeTopicPartitionsResponse(topics=rows))
    topics = tuple(described.TopicRequest(name=name) for name in visible)
    return Narrowed(changed(request, topics=topics, cursor=cursor), partial(_described, ask, denied, rows))


def _described(
    ask: Ask,
    denied: set[str],
    rows: tuple[Any, ...],
    answer: described.DescribeTopicPartitionsResponse,
) -> Generator[int, None, described.DescribeTopicPartitionsResponse]:
    topics = []
    for topic in answer.topics:
        yield 0
        if topic.name is None or topic.name in denied:
            continue
        bits = ask.operations(_R.TOPIC, topic.name, TOPIC_OPERATIONS)
        topics.append(changed(topic, topic_authorized_operations=bits))
    cursor = answer.next_cursor
    if cursor is not None and cursor.topic_name in denied:
        cursor = None
    return changed(answer, topics=(*topics, *rows), next_cursor=cursor)


def _undescribed(name: str) -> described.DescribeTopicPartitionsResponseTopic:
    return described.DescribeTopicPartitionsResponseTopic(error_code=DENIED, name=name, topic_id=NO_UUID, partitions=())


# -- CreateTopics, CreatePartitions


def _uncreated(topic: created.CreatableTopic, error: ErrorCode) -> created.CreatableTopicResult:
    return created.CreatableTopicResult(
        name=topic.name, error_code=error, error_message="Authorization failed.", configs=()
    )


CREATED = TopicRows("topics", "topics", _uncreated, created.CreateTopicsResponse)


def create_topics(ask: Ask, request: created.CreateTopicsRequest) -> Generator[int, None, Verdict]:
    """The configs of a new topic are told to those who may describe them."""
    verdict: Verdict = None
    if not ask.sees_cluster(_O.CREATE):
        found = by_topic(CREATED, _O.CREATE, ask, request)
        verdict = (yield from found) if isinstance(found, Generator) else found
    if isinstance(verdict, Refused):
        return verdict
    silent: set[str] = set()
    for at, topic in enumerate(request.topics, 1):
        if not ask.sees(_O.DESCRIBE_CONFIGS, _R.TOPIC, topic.name):
            silent.add(topic.name)
        if at % ROWS == 0:
            yield 0
    if not silent:
        return verdict
    narrowed, finish = (request, _same) if verdict is None else (verdict.request, verdict.finish)
    return Narrowed(narrowed, partial(_without_configs, silent, finish))


def _same(answer: Any) -> Any:
    return answer


def _without_configs(
    silent: set[str], finish: Callable[[Any], Any], answer: created.CreateTopicsResponse
) -> created.CreateTopicsResponse:
    answer = finish(answer)
    return changed(
        answer,
        topics=tuple(
            changed(topic, configs=(), num_partitions=-1, replication_factor=-1, topic_config_error_code=DENIED)
            if topic.name in silent and not topic.error_code
            else topic
            for topic in answer.topics
        ),
    )


def _ungrown(topic: grown.CreatePartitionsTopic, error: ErrorCode) -> grown.CreatePartitionsTopicResult:
    return grown.CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=error.message)


GROWN = TopicRows("topics", "results", _ungrown, grown.CreatePartitionsResponse)


def create_partitions(ask: Ask, request: grown.CreatePartitionsRequest) -> Verdict | Generator[int, None, Verdict]:
    return by_topic(GROWN, _O.ALTER, ask, request)


# -- DeleteTopics


def delete_topics(ask: Ask, request: deleted.DeleteTopicsRequest) -> Verdict | Generator[int, None, Verdict]:
    """The answers come in random order: places must not tell which topics exist."""
    return None if ask.sees_cluster(_O.DELETE) else _deletions(ask, request)


def _deletions(ask: Ask, request: deleted.DeleteTopicsRequest) -> Generator[int, None, Verdict]:
    by_id = ask.version >= DELETE_IDS
    asked = request.topics if by_id else tuple(deleted.DeleteTopicState(name=name) for name in request.topic_names)
    kept: list[deleted.DeleteTopicState] = []
    refused: list[deleted.DeletableTopicResult] = []
    for at, wanted in enumerate(asked, 1):
        row = _undeleted(ask, wanted)
        if row is None:
            kept.append(wanted)
        else:
            refused.append(row)
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
    names = tuple(wanted.name or "" for wanted in kept)
    narrowed = changed(request, topics=tuple(kept)) if by_id else changed(request, topic_names=names)
    return Narrowed(narrowed, partial(_shuffled, ask, tuple(refused)))


def _undeleted(ask: Ask, wanted: deleted.DeleteTopicState) -> deleted.DeletableTopicResult | None:
    name = wanted.name
    if name is None:
        found = ask.topic_name(wanted.topic_id)
        if found is None or ask.may(_O.DELETE, _R.TOPIC, found):
            return None
        name = found if ask.sees(_O.DESCRIBE, _R.TOPIC, found) else None
        return deleted.DeletableTopicResult(
            name=name, topic_id=wanted.topic_id, error_code=DENIED, error_message=DENIED.message
        )
    sees = ask.sees(_O.DESCRIBE, _R.TOPIC, name)
    if sees and ask.state.topic(name) is None:
        return None  # the handler says that there is no such topic
    if ask.may(_O.DELETE, _R.TOPIC, name) and sees:
        return None
    return deleted.DeletableTopicResult(name=name, error_code=DENIED, error_message=DENIED.message)


def _shuffled(
    ask: Ask, refused: tuple[deleted.DeletableTopicResult, ...], answer: deleted.DeleteTopicsResponse
) -> deleted.DeleteTopicsResponse:
    rows = [*answer.responses, *refused]
    ask.state.random.shuffle(rows)
    return changed(answer, responses=tuple(rows))
