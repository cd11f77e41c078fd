"""The guards of the APIs of share groups.

A share session goes on with topics of earlier requests. So the handlers of ShareFetch and ShareAcknowledge ask about
each topic when they need it (`RequestContext.may_read`): a right that is revoked ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from kohort.broker.authorization import Operation, Resource
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES
from kohort.broker.security.guards.ask import (
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    Ask,
    Guard,
    Narrowed,
    Refused,
    Verdict,
    denied_names,
)
from kohort.broker.security.guards.groups import with_operations
from kohort.broker.security.guards.rows import TopicRows, by_topic
from kohort.coordinator.share_groups.responses import share_heartbeat_error, undescribed_share_group
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import alter_share_group_offsets as altered
from kohort.wire.schemas import delete_share_group_offsets as deleted
from kohort.wire.schemas import describe_share_group_offsets as offsets
from kohort.wire.schemas import share_acknowledge as acknowledged
from kohort.wire.schemas import share_fetch as fetched
from kohort.wire.schemas import share_group_describe as described
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest

_O, _R = Operation, Resource
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def heartbeat(ask: Ask, request: ShareGroupHeartbeatRequest) -> Verdict | Generator[int, None, Verdict]:
    if not ask.may(READ, GROUP, request.group_id):
        return Refused(share_heartbeat_error(NO_GROUP, NO_GROUP.message))
    return _subscribed(ask, request.subscribed_topic_names) if request.subscribed_topic_names else None


def _subscribed(ask: Ask, names: tuple[str, ...]) -> Generator[int, None, Verdict]:
    denied = yield from denied_names(ask, names, DESCRIBE, TOPIC)
    return Refused(share_heartbeat_error(NO_TOPIC, NO_TOPIC.message)) if denied else None


def describe(ask: Ask, request: described.ShareGroupDescribeRequest) -> Generator[int, None, Verdict]:
    denied = yield from denied_names(ask, request.group_ids, DESCRIBE, GROUP)
    refused = [
        undescribed_share_group(NO_GROUP, name, NO_GROUP.message)
        for name in dict.fromkeys(request.group_ids)
        if name in denied
    ]
    narrowed = changed(request, group_ids=tuple(name for name in request.group_ids if name not in denied))
    return Narrowed(narrowed, partial(_described, ask, denied, refused))


def _described(
    ask: Ask, denied: set[str], refused: list[Any], answer: described.ShareGroupDescribeResponse
) -> Generator[int, None, described.ShareGroupDescribeResponse]:
    """A group with a topic that the client may not see is not described (SH11)."""
    groups = []
    for group in answer.groups:
        if group.group_id in denied:
            continue
        topics = {name for member in group.members for name in member.subscribed_topic_names}
        topics.update(one.topic_name for member in group.members for one in member.assignment.topic_partitions)
        if all(ask.sees(DESCRIBE, TOPIC, name) for name in sorted(topics)):
            groups.append(with_operations(ask, group))
        else:
            groups.append(undescribed_share_group(NO_TOPIC, group.group_id, NO_TOPIC.message))
        yield ROW_BYTES
    return changed(answer, groups=(*groups, *refused))


def _of_member(answer: Callable[..., Any]) -> Guard:
    def guard(ask: Ask, request: Any) -> Verdict:
        if request.group_id and not ask.may(READ, GROUP, request.group_id):
            return Refused(answer(error_code=NO_GROUP, error_message=NO_GROUP.message))
        ask.context.may_read = partial(ask.may, READ, TOPIC)
        return None

    return guard


fetch: Guard = _of_member(fetched.ShareFetchResponse)
acknowledge: Guard = _of_member(acknowledged.ShareAcknowledgeResponse)


# -- offsets


def describe_offsets(ask: Ask, request: offsets.DescribeShareGroupOffsetsRequest) -> Generator[int, None, Verdict]:
    denied = yield from denied_names(ask, [group.group_id for group in request.groups], DESCRIBE, GROUP)
    hidden: dict[str, tuple[Any, ...]] = {}
    kept = []
    for group in request.groups:
        if group.group_id in denied:
            continue
        if group.topics is not None:
            seen = [topic for topic in group.topics if ask.may(DESCRIBE, TOPIC, topic.topic_name)]
            hidden[group.group_id] = tuple(
                offsets.DescribedOffsetsTopic(
                    topic_name=topic.topic_name, topic_id=bytes(16), partitions=tuple(_hidden(topic.partitions))
                )
                for topic in group.topics
                if topic not in seen
            )
            group = changed(group, topics=tuple(seen))
        kept.append(group)
        yield ROW_BYTES
    refused = tuple(
        offsets.DescribedOffsetsGroup(group_id=name, topics=(), error_code=NO_GROUP, error_message=NO_GROUP.message)
        for name in sorted(denied)
    )
    return Narrowed(changed(request, groups=tuple(kept)), partial(_visible, ask, denied, refused, hidden))


def _hidden(partitions: tuple[int, ...]) -> Generator[Any, None, None]:
    for index in partitions:
        yield offsets.DescribedOffset(
            partition_index=index,
            start_offset=-1,
            leader_epoch=0,
            error_code=NO_TOPIC,
            error_message=NO_TOPIC.message,
        )


def _visible(
    ask: Ask,
    denied: set[str],
    refused: tuple[Any, ...],
    hidden: dict[str, tuple[Any, ...]],
    answer: offsets.DescribeShareGroupOffsetsResponse,
) -> Generator[int, None, offsets.DescribeShareGroupOffsetsResponse]:
    groups = []
    for group in answer.groups:
        if group.group_id in denied:
            continue
        topics = tuple(topic for topic in group.topics if ask.sees(DESCRIBE, TOPIC, topic.topic_name))
        groups.append(changed(group, topics=topics + hidden.get(group.group_id, ())))
        yield ROW_BYTES
    return changed(answer, groups=(*groups, *refused))


def _unaltered(topic: altered.NewOffsetsTopic, error: ErrorCode) -> altered.AlteredOffsetsTopic:
    return altered.AlteredOffsetsTopic(
        topic_name=topic.topic_name,
        topic_id=bytes(16),
        partitions=tuple(
            altered.AlteredOffset(partition_index=one.partition_index, error_code=error, error_message=error.message)
            for one in topic.partitions
        ),
    )


def _undeleted(topic: deleted.NamedTopic, error: ErrorCode) -> deleted.DeletedOffsetsTopic:
    return deleted.DeletedOffsetsTopic(
        topic_name=topic.topic_name, topic_id=bytes(16), error_code=error, error_message=error.message
    )


ALTERED = TopicRows("topics", "responses", _unaltered, altered.AlterShareGroupOffsetsResponse, name="topic_name")
DELETED = TopicRows("topics", "responses", _undeleted, deleted.DeleteShareGroupOffsetsResponse, name="topic_name")


def alter_offsets(ask: Ask, request: altered.AlterShareGroupOffsetsRequest) -> Verdict | Generator[int, None, Verdict]:
    if not ask.may(READ, GROUP, request.group_id):
        return Refused(altered.AlterShareGroupOffsetsResponse(error_code=NO_GROUP, error_message=NO_GROUP.message))
    return by_topic(ALTERED, READ, ask, request)


def delete_offsets(
    ask: Ask, request: deleted.DeleteShareGroupOffsetsRequest
) -> Verdict | Generator[int, None, Verdict]:
    if not ask.may(_O.DELETE, GROUP, request.group_id):
        return Refused(deleted.DeleteShareGroupOffsetsResponse(error_code=NO_GROUP, error_message=NO_GROUP.message))
    return by_topic(DELETED, READ, ask, request)


# -- the share coordinator


def states(ask: Ask, request: Any) -> Verdict:
    """83 to 87."""
    from kohort.broker.apis import APIS
    from kohort.broker.error_answers import error_answer

    if ask.may_cluster(_O.CLUSTER_ACTION):
        return None
    return Refused(error_answer(APIS[ask.context.api_key], request, ask.version, NO_CLUSTER))
