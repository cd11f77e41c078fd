"""OffsetCommit, OffsetFetch, OffsetDelete. The group's shard keeps offsets under topic names.

Here topics are checked to exist, topic ids (version 10 on) become names and names ids again, and the older forms of
OffsetFetch are put into that of one group. Unknown partitions get their error and the others go on (O8).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kohort.broker.change_log import tell_change
from kohort.broker.handlers.groups import ask_shard
from kohort.broker.lag.told_lag import ROW_BYTES as LAG_BYTES
from kohort.broker.lag.told_lag import ToldLag
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, InSteps, RequestContext, Room, in_steps, rows
from kohort.broker.security.audit import listed
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic
from kohort.broker.turn import Complaint
from kohort.coordinator.classic.checks import Repeats
from kohort.coordinator.offsets.offsets import TOPIC_IDS
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kohort.wire.schemas.txn_offset_commit import TxnOffsetCommitRequestTopic

_Topic = TypeVar("_Topic", OffsetCommitRequestTopic, OffsetDeleteRequestTopic, TxnOffsetCommitRequestTopic)

MOST_PARTITIONS = 10_000
"""Partitions of one commit, or of one deletion. Kafka has a similar limit: the records of a commit
are one batch, of up to message.max.bytes."""
DELETE_STEP = 150
"""Partitions of a deletion above which it is made in steps."""
COMMIT_STEP = 500
"""Partitions of a commit above which it is made in steps. If the group refuses a step, the earlier ones count: each
partition has its own error."""
GROUPS = 8
"""The first version of OffsetFetch that names several groups."""


def offset_commit(state: BrokerState, request: OffsetCommitRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if state.coordinator_of(shard) != context.broker_id:
        return OffsetCommitResponse(
            topics=tuple(_commit_errors(topic, ErrorCode.NOT_COORDINATOR) for topic in request.topics)
        )
    size = sum(len(topic.partitions) for topic in request.topics)
    if size > MOST_PARTITIONS:
        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return OffsetCommitResponse(topics=tuple(_commit_errors(topic, error) for topic in request.topics))
    if size > COMMIT_STEP:
        return InSteps(_commit_in_steps(state, shard, request, context))
    return _commit(state, shard, request, context)


def _commit_in_steps(
    state: BrokerState, shard: int, request: OffsetCommitRequest, context: RequestContext
) -> Generator[int, None, OffsetCommitResponse]:
    answered: dict[tuple[str, bytes], list[OffsetCommitResponsePartition]] = {}
    for topics in parts(request.topics, COMMIT_STEP):
        response = _commit(state, shard, changed(request, topics=topics), context)
        for made in response.topics:
            answered.setdefault((made.name, made.topic_id), []).extend(made.partitions)
        yield COMMIT_STEP * ROW_BYTES
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=tuple(partitions))
            for (name, topic_id), partitions in answered.items()
        )
    )


def parts(topics: Sequence[_Topic], most: int) -> Iterator[tuple[_Topic, ...]]:
    """The topics with their partitions, `most` of these or up to twice as many at a time."""
    part: list[_Topic] = []
    size = 0
    for topic in topics:
        for first in range(0, len(topic.partitions), most):
            partitions = topic.partitions[first : first + most]
            part.append(changed(topic, partitions=partitions))
            size += len(partitions)
            if size >= most:
                yield tuple(part)
                part, size = [], 0
    if part:
        yield tuple(part)


def _commit(state: BrokerState, shard: int, request: OffsetCommitRequest, context: RequestContext) -> Any:
    asked, refused = for_shard(state, request, context.api_version)
    if asked is None:
        return OffsetCommitResponse(topics=tuple(refused))
    response = ask_shard(state, shard, asked, context)
    if not refused and context.api_version < TOPIC_IDS:
        return response
    return _merged_commit(response, asked.topics, refused)


def for_shard(
    state: BrokerState, request: OffsetCommitRequest, version: int
) -> tuple[OffsetCommitRequest | None, list[OffsetCommitResponseTopic]]:
    """The request with the topics and partitions that exist, None if there are none; and the answers for the others."""
    known, refused = _known_topics(state, request, version)
    if not known:
        return None, refused
    # Consumer groups look up partitions by their topic's id, also those of members that commit by name.
    return changed(request, topics=tuple(known)), refused


def _known_topics(
    state: BrokerState, request: OffsetCommitRequest, version: int
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """The request's topics that exist, with their names and ids, and the answers for the others."""
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    catalog = state.catalog
    for wanted in request.topics:
        topic: Topic | None
        if version >= TOPIC_IDS:
            topic, error = catalog.by_id.get(wanted.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic, error = catalog.topics.get(wanted.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            refused.append(_commit_errors(wanted, error))
            continue
        count = len(topic.partitions)
        unknown = [asked for asked in wanted.partitions if not 0 <= asked.partition_index < count]
        if unknown:
            absent = changed(wanted, partitions=tuple(unknown))
            refused.append(_commit_errors(absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            partitions = tuple(asked for asked in wanted.partitions if 0 <= asked.partition_index < count)
            if not partitions:
                continue
            wanted = changed(wanted, partitions=partitions)
        known.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=wanted.partitions))
    return known, refused


def _commit_errors(wanted: OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=wanted.name,
        topic_id=wanted.topic_id,
        partitions=tuple(
            OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
            for asked in wanted.partitions
        ),
    )


def _merged_commit(
    response: OffsetCommitResponse, known: Sequence[OffsetCommitRequestTopic], refused: list[OffsetCommitResponseTopic]
) -> OffsetCommitResponse:
    """One entry for each topic: the shard's answers and the refusals, with the topic ids that version 10 needs."""
    ids = {topic.name: topic.topic_id for topic in known}
    merged: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for answered in response.topics:
        topic_id = ids[answered.name]
        merged[answered.name, topic_id] = changed(answered, topic_id=topic_id)
    for topic in refused:
        name = topic.name or next((name for name, topic_id in ids.items() if topic_id == topic.topic_id), "")
        topic_id = ids.get(name, topic.topic_id)
        earlier = merged.get((name, topic_id))
        if earlier is not None:
            topic = changed(earlier, partitions=earlier.partitions + topic.partitions)
        merged[name, topic_id] = topic
    return OffsetCommitResponse(topics=tuple(merged.values()))


@in_steps
def offset_fetch(
    state: BrokerState, request: OffsetFetchRequest, context: RequestContext
) -> Generator[int, None, OffsetFetchResponse]:
    answer = _Answer(state, context, stable=request.require_stable, with_lag=request.with_lag)
    if context.api_version < GROUPS:
        return (yield from _fetch_older(answer, request, context.api_version))
    groups: list[OffsetFetchResponseGroup] = []
    repeats = Repeats()
    for group in request.groups:
        yield ROW_BYTES
        if not repeats.too_many(group.group_id):
            groups.append((yield from answer.group(group)))
    return OffsetFetchResponse(groups=tuple(groups))


def _fetch_older(
    answer: _Answer, request: OffsetFetchRequest, version: int
) -> Generator[int, None, OffsetFetchResponse]:
    """The versions whose request is about one group."""
    wanted = None
    if request.topics is not None:
        wanted = tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        )
    group = yield from answer.group(OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted))
    topics = []
    if not group.error_code:
        for found in group.topics:
            partitions = yield from rows(found.partitions, _older)
            topics.append(OffsetFetchResponseTopic(name=found.name, partitions=partitions))
    elif version < 2:
        # Version 1 has no error for the whole response, so every partition carries the error (O17).
        error = group.error_code
        for asked in wanted or ():
            refused = yield from rows(asked.partition_indexes, lambda index: _no_offset(index, error))
            topics.append(OffsetFetchResponseTopic(name=asked.name, partitions=refused))
        return OffsetFetchResponse(topics=tuple(topics))
    return OffsetFetchResponse(error_code=group.error_code, topics=tuple(topics), as_of_ms=group.as_of_ms)


def _older(found: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=found.partition_index,
        committed_offset=found.committed_offset,
        committed_leader_epoch=found.committed_leader_epoch,
        metadata=found.metadata,
        error_code=found.error_code,
        end_offset=found.end_offset,
        lag_ms=found.lag_ms,
        burrow_status=found.burrow_status,
        last_stable_offset=found.last_stable_offset,
    )


def _no_offset(index: int, error: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=error)


class _Answer:
    """The parts of an answer to OffsetFetch, and the room in it."""

    def __init__(self, state: BrokerState, context: RequestContext, *, stable: bool, with_lag: bool) -> None:
        self._stable = stable
        self._told = ToldLag(state) if with_lag and state.config.deviations.extensions else None
        self._state = state
        self._context = context
        self._room = Room(state.most_answer_bytes)

    def group(self, group: OffsetFetchRequestGroup) -> Generator[int, None, OffsetFetchResponseGroup]:
        shard = self._state.shard_of(group.group_id)
        if self._state.coordinator_of(shard) != self._context.broker_id:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.NOT_COORDINATOR)
        before = self._room.left
        if self._context.api_version < TOPIC_IDS:
            found = yield from self._fetched(shard, group)
        else:
            found = yield from self._by_ids(shard, group)
        if found is not None:
            return found
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=self._refusal(group.group_id, before))

    def _refusal(self, group_id: str, before: int) -> ErrorCode:
        """Other groups are in the answer: the client asks again for this one alone. Otherwise it would never fit."""
        self._room.left = 0
        if before < self._room.most:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        what = f"the offsets of group {group_id} are more than an answer may have; see queued.max.response.bytes"
        self._state.turn.complain(Complaint("answer refused", what))
        return ErrorCode.INVALID_REQUEST

    def _fetched(
        self, shard: int, group: OffsetFetchRequestGroup
    ) -> Generator[int, None, OffsetFetchResponseGroup | None]:
        shard_of_group = self._state.shards[shard]
        version, take = self._context.api_version, self._room.take
        if self._told is None:
            return (yield from shard_of_group.fetch_offsets(group, version, take, stable=self._stable))
        instant = yield from self._told.instant(shard, group)
        found = yield from shard_of_group.fetch_offsets(
            group, version, take, stable=self._stable, offsets=instant.offsets
        )
        if found is None or found.error_code:
            return found
        if not take(LAG_BYTES * sum(len(topic.partitions) for topic in found.topics)):
            return None
        return (yield from self._told.told(found, instant))

    def _by_ids(
        self, shard: int, group: OffsetFetchRequestGroup
    ) -> Generator[int, None, OffsetFetchResponseGroup | None]:
        refused: list[OffsetFetchResponseTopics] = []
        if group.topics is not None:
            known = []
            for wanted in group.topics:
                yield ROW_BYTES
                topic = self._state.catalog.by_id.get(wanted.topic_id)
                if topic is not None:
                    known.append(changed(wanted, name=topic.name))
                else:
                    refused.append((yield from _unknown_id(wanted)))
            group = changed(group, topics=tuple(known))
        found = yield from self._fetched(shard, group)
        if found is None or found.error_code:
            return found
        by_id = []
        for answered in found.topics:
            yield ROW_BYTES
            topic = self._state.topic(answered.name)
            if topic is not None:
                by_id.append(changed(answered, topic_id=topic.topic_id))
        return changed(found, topics=(*by_id, *refused))


def _unknown_id(wanted: OffsetFetchRequestTopics) -> Generator[int, None, OffsetFetchResponseTopics]:
    refused = partial(OffsetFetchResponsePartitions, committed_offset=-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    partitions = yield from rows(wanted.partition_indexes, lambda index: refused(partition_index=index))
    return OffsetFetchResponseTopics(topic_id=wanted.topic_id, partitions=partitions)


def offset_delete(state: BrokerState, request: OffsetDeleteRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if state.coordinator_of(shard) != context.broker_id:
        return OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR, topics=())
    size = sum(len(topic.partitions) for topic in request.topics)
    if size > MOST_PARTITIONS:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_REQUEST, topics=())
    if size > DELETE_STEP:
        return InSteps(_delete_in_steps(state, shard, request, context))
    return _delete(state, shard, request, context)


def _delete_in_steps(
    state: BrokerState, shard: int, request: OffsetDeleteRequest, context: RequestContext
) -> Generator[int, None, OffsetDeleteResponse]:
    answered: dict[str, list[OffsetDeleteResponsePartition]] = {}
    unique = [changed(topic, partitions=tuple(dict.fromkeys(topic.partitions))) for topic in request.topics]
    for at, topics in enumerate(parts(unique, DELETE_STEP)):
        response = _delete(state, shard, changed(request, topics=topics), context, may_be_gone=at > 0)
        if response.error_code:
            return OffsetDeleteResponse(error_code=response.error_code, topics=())
        for made in response.topics:
            answered.setdefault(made.name, []).extend(made.partitions)
        yield DELETE_STEP * ROW_BYTES
    return _delete_response(answered)


def _deleted(topics: Sequence[OffsetDeleteRequestTopic]) -> OffsetDeleteResponse:
    """There is nothing to delete."""
    partition = OffsetDeleteResponsePartition
    return _delete_response(
        {
            topic.name: [partition(partition_index=asked.partition_index, error_code=0) for asked in topic.partitions]
            for topic in topics
        }
    )


def _delete_response(topics: Mapping[str, Sequence[OffsetDeleteResponsePartition]]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=tuple(
            OffsetDeleteResponseTopic(name=name, partitions=tuple(partitions)) for name, partitions in topics.items()
        ),
    )


def _delete(
    state: BrokerState,
    shard: int,
    request: OffsetDeleteRequest,
    context: RequestContext,
    *,
    may_be_gone: bool = False,
) -> Any:
    """`may_be_gone`: a group of offsets alone is gone with the last of them."""
    known = []
    refused: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for wanted in request.topics:
        topic = state.topic(wanted.name)
        count = len(topic.partitions) if topic is not None else 0
        present = tuple(asked for asked in wanted.partitions if 0 <= asked.partition_index < count)
        for asked in wanted.partitions:
            if not 0 <= asked.partition_index < count:
                refused.setdefault(wanted.name, []).append(
                    OffsetDeleteResponsePartition(
                        partition_index=asked.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                )
        if present:
            known.append(changed(wanted, partitions=present))
    held = state.shards[shard].hard.offsets.get(request.group_id, {})
    places = [(wanted.name, asked.partition_index) for wanted in known for asked in wanted.partitions]
    before = {place: held[place].offset for place in places if place in held}
    response = ask_shard(state, shard, changed(request, topics=tuple(known)), context)
    _tell_deleted(state, request.group_id, before, context)
    if may_be_gone and response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        response = _deleted(known)
    if response.error_code or not refused:
        return response
    topics = {topic.name: list(topic.partitions) for topic in response.topics}
    for name, partitions in refused.items():
        topics.setdefault(name, []).extend(partitions)
    return _delete_response(topics)


def _tell_deleted(
    state: BrokerState, group_id: str, before: Mapping[tuple[str, int], int], context: RequestContext
) -> None:
    """`before`: the offsets that were asked to be deleted; some may have been refused."""
    left = state.shards[state.shard_of(group_id)].hard.offsets.get(group_id, {})
    gone = {place: offset for place, offset in before.items() if place not in left}
    if gone:
        offsets = listed(gone.items(), lambda one: f"{one[0][0]}-{one[0][1]}: {one[1]}")
        tell_change(state, context, "offsets deleted", group=group_id, partitions=len(gone), offsets=offsets)
