"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets, rows SH12 to SH14."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from kohort.broker.change_log import tell_change
from kohort.broker.handlers.groups import ask_shard
from kohort.broker.handlers.shares.groups import refusal
from kohort.broker.request import ROW_BYTES, ROWS, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import LONGEST_NAME, not_too_often
from kohort.coordinator.shares.events import RESET, ShareKey
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from kohort.wire.schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribedOffset,
    DescribedOffsetsGroup,
    DescribedOffsetsTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    OffsetsAskedGroup,
)

MOST_OFFSETS = 500
"""Partitions whose offsets one request sets."""


@in_steps
def describe_offsets(
    state: BrokerState, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> Generator[int, None, DescribeShareGroupOffsetsResponse]:
    groups = []
    for asked in not_too_often(request.groups, lambda group: group.group_id):
        error = refusal(state, state.shard_of(asked.group_id), context)
        if error:
            groups.append(
                DescribedOffsetsGroup(group_id=asked.group_id, topics=(), error_code=error, error_message=error.message)
            )
        else:
            topics = yield from _described(state, asked)
            groups.append(DescribedOffsetsGroup(group_id=asked.group_id, topics=topics))
        yield ROW_BYTES
    return DescribeShareGroupOffsetsResponse(groups=tuple(groups))


def _described(state: BrokerState, asked: OffsetsAskedGroup) -> Generator[int, None, tuple[DescribedOffsetsTopic, ...]]:
    wanted: list[tuple[str, Iterable[int]]] = []
    if asked.topics is None:
        group = state.shards[state.shard_of(asked.group_id)].shares.groups.get(asked.group_id)
        if group is not None:
            infos = (info for info in group.initialized.values() if info.topic_id not in group.deleting)
            wanted += [(info.topic_name, info.partitions) for info in infos]
    else:
        wanted += [(topic.topic_name, topic.partitions) for topic in asked.topics]
    topics = []
    for name, indexes in wanted:
        topic = state.topic(name)
        topic_id = topic.topic_id if topic is not None else NO_UUID
        rows = []
        for index in indexes:
            rows.append(_offset(state, ShareKey(asked.group_id, topic_id, index)))
            if len(rows) % ROWS == 0:
                yield ROWS * ROW_BYTES
        topics.append(DescribedOffsetsTopic(topic_name=name, topic_id=topic_id, partitions=tuple(rows)))
    return tuple(topics)


def _offset(state: BrokerState, key: ShareKey) -> DescribedOffset:
    shard = state.shares.find(key)
    stored = shard.states.get(key) if shard is not None else None
    if stored is None:
        return DescribedOffset(partition_index=key.partition, start_offset=RESET, leader_epoch=0, lag=-1)
    topic = state.catalog.by_id.get(key.topic_id)
    partition = state.partition(topic, key.partition) if topic is not None else None
    lag = -1
    if stored.start != RESET and partition is not None:
        # What a trim has taken is not behind.
        start = max(stored.start, partition.start_offset)
        lag = max(partition.high_watermark - start - stored.complete, 0)
    return DescribedOffset(
        partition_index=key.partition, start_offset=stored.start, leader_epoch=stored.leader_epoch, lag=lag
    )


def alter_offsets(state: BrokerState, request: AlterShareGroupOffsetsRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    error = refusal(state, shard, context)
    if not error and len(request.group_id) > LONGEST_NAME:
        error = ErrorCode.INVALID_GROUP_ID
    if not error and sum(len(topic.partitions) for topic in request.topics) > MOST_OFFSETS:
        error = ErrorCode.INVALID_REQUEST
    if error:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=error.message)
    state.groups.tell_topics()
    answer = ask_shard(state, shard, request, context)
    if not answer.error_code:
        tell_change(state, context, "offsets set", group=request.group_id, partitions=_count(request))
    return answer


def _count(request: AlterShareGroupOffsetsRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


def delete_offsets(state: BrokerState, request: DeleteShareGroupOffsetsRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if error := refusal(state, shard, context):
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=error.message)
    answer = ask_shard(state, shard, request, context)
    if not answer.error_code:
        tell_change(state, context, "offsets deleted", group=request.group_id, topics=len(request.topics))
    return answer
