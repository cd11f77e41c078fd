"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets, rows SH12 to SH14."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from kohort.broker.change_log import tell_change
from kohort.broker.handlers.groups import ask_shard
from kohort.broker.handlers.shares.groups import refusal
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, ROWS, RequestContext, in_steps
from kohort.broker.shares.reports import report
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import LONGEST_NAME, not_too_often
from kohort.coordinator.events import JournalEntry, RequestId, What
from kohort.coordinator.shares.events import RESET, Redeliver, ShareKey
from kohort.coordinator.shares.redelivery import MOST_RANGES
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.alter_share_group_offsets import (
    NOT_SET,
    AlteredOffset,
    AlteredOffsetsTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    NewOffset,
    OffsetRange,
)
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
MOST_REDELIVERED = 10
"""Partitions in which one request makes records available again."""
NO_RECORDS = -1
SHOWN = 5
"""Places that an entry of the journal names."""


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
            most = request.records_most if state.config.deviations.extensions else NO_RECORDS
            topics = yield from _described(state, asked, most)
            groups.append(DescribedOffsetsGroup(group_id=asked.group_id, topics=topics))
        yield ROW_BYTES
    return DescribeShareGroupOffsetsResponse(groups=tuple(groups))


def _described(
    state: BrokerState, asked: OffsetsAskedGroup, most: int
) -> Generator[int, None, tuple[DescribedOffsetsTopic, ...]]:
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
            key = ShareKey(asked.group_id, topic_id, index)
            row = _offset(state, key)
            if most >= 0:
                row = yield from _with_records(state, key, row, most)
            rows.append(row)
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


def _with_records(
    state: BrokerState, key: ShareKey, row: DescribedOffset, most: int
) -> Generator[int, None, DescribedOffset]:
    topic = state.catalog.by_id.get(key.topic_id)
    shard, partition = state.shares.find(key), state.partition(topic, key.partition) if topic is not None else None
    stored = shard.states.get(key) if shard is not None else None
    if stored is None or partition is None:
        return row
    records = yield from report(state, key, stored, partition, most)
    yield len(records)
    return changed(row, records=records)


def alter_offsets(state: BrokerState, request: AlterShareGroupOffsetsRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    error = refusal(state, shard, context)
    if not error and len(request.group_id) > LONGEST_NAME:
        error = ErrorCode.INVALID_GROUP_ID
    if not error and sum(len(topic.partitions) for topic in request.topics) > MOST_OFFSETS:
        error = ErrorCode.INVALID_REQUEST
    if error:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=error.message)
    if any(partition.redeliver for topic in request.topics for partition in topic.partitions):
        return _redeliver(state, shard, request, context)
    state.groups.tell_topics()
    answer = ask_shard(state, shard, request, context)
    if not answer.error_code:
        tell_change(state, context, "offsets set", group=request.group_id, partitions=_count(request))
        places = [
            f"{topic.topic_name}[{one.partition_index}] to {one.start_offset}"
            for topic in request.topics
            for one in topic.partitions
        ]
        _journal(state, context, request.group_id, "share offsets set", places)
    return answer


def _redeliver(
    state: BrokerState, shard: int, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Records that are finished become available again, also while the group has members."""
    error = ErrorCode.NONE
    if request.group_id not in state.shards[shard].shares.groups:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif _count(request) > MOST_REDELIVERED:
        error = ErrorCode.INVALID_REQUEST
    if error:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=error.message)
    rows, places, total = [], [], 0
    for topic in request.topics:
        found = state.topic(topic.topic_name)
        topic_id = found.topic_id if found is not None else NO_UUID
        partitions = []
        for wanted in topic.partitions:
            index = wanted.partition_index
            outcome = _redelivered(state, ShareKey(request.group_id, topic_id, index), wanted, context.request_id)
            if isinstance(outcome, ErrorCode):
                partitions.append(
                    AlteredOffset(partition_index=index, error_code=outcome, error_message=outcome.message)
                )
                continue
            total += outcome
            partitions.append(AlteredOffset(partition_index=index, redelivered=outcome))
            if outcome:
                ranges = [_words(one) for one in wanted.redeliver[:SHOWN]]
                places.append(f"{topic.topic_name}[{index}] {' '.join(ranges)}")
        rows.append(AlteredOffsetsTopic(topic_name=topic.topic_name, topic_id=topic_id, partitions=tuple(partitions)))
    if total:
        tell_change(state, context, "records redelivered", group=request.group_id, records=total)
        places[0] = f"{total} records: {places[0]}" if total > 1 else f"1 record: {places[0]}"
        _journal(state, context, request.group_id, "records redelivered", places)
    return AlterShareGroupOffsetsResponse(responses=tuple(rows))


def _words(one: OffsetRange) -> str:
    return str(one.first_offset) if one.first_offset == one.last_offset else f"{one.first_offset}-{one.last_offset}"


def _redelivered(state: BrokerState, key: ShareKey, wanted: NewOffset, request_id: RequestId) -> ErrorCode | int:
    topic = state.catalog.by_id.get(key.topic_id)
    partition = state.partition(topic, key.partition) if topic is not None else None
    if partition is None or state.shares.find(key) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ranges = tuple((one.first_offset, one.last_offset) for one in wanted.redeliver)
    is_formed = all(0 <= first <= last for first, last in ranges) and len(ranges) <= MOST_RANGES
    if not state.config.deviations.extensions or wanted.start_offset != NOT_SET or not is_formed:
        return ErrorCode.INVALID_REQUEST
    event = Redeliver(key, ranges, partition.start_offset, request_id)
    outcome: ErrorCode | int = state.shares.ask(key, event, request_id)
    return outcome


def _journal(state: BrokerState, context: RequestContext, group_id: str, what: What, places: list[str]) -> None:
    more = f", and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    client = context.client
    entry = JournalEntry(
        group=group_id,
        what=what,
        cause=", ".join(places[:SHOWN]) + more,
        client_id=client.client_id,
        host=client.host,
        principal=client.principal,
    )
    state.journal.tell([entry], state.now)


def _count(request: AlterShareGroupOffsetsRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


def delete_offsets(state: BrokerState, request: DeleteShareGroupOffsetsRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if error := refusal(state, shard, context):
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=error.message)
    answer = ask_shard(state, shard, request, context)
    if not answer.error_code:
        tell_change(state, context, "offsets deleted", group=request.group_id, topics=len(request.topics))
        names = [row.topic_name for row in answer.responses if not row.error_code]
        if names:
            _journal(state, context, request.group_id, "share offsets deleted", names)
    return answer
