"""TxnOffsetCommit: a producer commits a group's offsets in its transaction.

Four ask and answer in this order, as in Kafka: the topics (unknown partitions get their error and the others go on),
the log (which knows the producer's epoch), the coordinator of the transaction (`__consumer_offsets` must be in it; from
version 5 on it is added), the group's shard. If the log has an open transaction of the producer, the coordinator is not
asked. Then the offsets are pending until the transaction ends (coordinator/offsets/pending.py).

Older clients keep their epoch over many transactions, so a copy of a request that arrives late could be taken for one
of the present transaction. It is refused if it comes on a connection that the producer has given up
(broker/transactions/connections.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from kohort.broker.handlers.groups import ask_shard
from kohort.broker.handlers.offsets import MOST_PARTITIONS, parts
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, InSteps, RequestContext
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.coordinator.classic.responses import pending_commit_error
from kohort.coordinator.offsets.transactional import TOPIC_IDS
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING = 2
"""The first version that knows COORDINATOR_LOAD_IN_PROGRESS. Older producers end when they get it."""
ABORTABLE = 4
"""The first version that knows TRANSACTION_ABORTABLE."""
ADDS = 5
"""The first version that adds the group's partition to the transaction (KIP-890)."""
MOST_PENDING = 2 * MOST_PARTITIONS
"""Offsets of one transaction, which a marker commits at one instant: some ten milliseconds. A repeated commit of
MOST_PARTITIONS passes."""
STEP = 100
"""Partitions above which a commit is made in steps, some two milliseconds each."""
OF_A_PARTITION = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
"""Errors of one partition: other partitions of the request may have another one. Any other error is about the whole
request."""
LOADING_NOW = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
COORDINATOR_AWAY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Of the transaction. The client would look for the group's coordinator."""


def txn_offset_commit(state: BrokerState, request: TxnOffsetCommitRequest, context: RequestContext) -> Any:
    shard = state.shard_of(request.group_id)
    if state.coordinator_of(shard) != context.broker_id:
        return pending_commit_error(request, ErrorCode.NOT_COORDINATOR)
    count = sum(len(topic.partitions) for topic in request.topics)
    if count > MOST_PARTITIONS or count + state.groups.pending_offsets(request.producer_id) > MOST_PENDING:
        return pending_commit_error(request, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    if count > STEP:
        return InSteps(_commit_in_steps(state, request, shard, context))
    answered, refused = _commit(state, request, shard, context)
    return TxnOffsetCommitResponse(topics=_merged((*answered, *refused)) if refused else answered)


def _commit_in_steps(
    state: BrokerState, request: TxnOffsetCommitRequest, shard: int, context: RequestContext
) -> Generator[int, None, TxnOffsetCommitResponse]:
    """If a step is refused, so is the whole request; what earlier ones made pending waits for the producer to abort."""
    answered: list[TxnOffsetCommitResponseTopic] = []
    refused: list[TxnOffsetCommitResponseTopic] = []
    for topics in parts(request.topics, STEP):
        if state.groups.pending_offsets(request.producer_id) + STEP > MOST_PENDING:
            return pending_commit_error(request, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        made, unknown = _commit(state, changed(request, topics=topics), shard, context)
        error = next((ErrorCode(row.error_code) for topic in made for row in topic.partitions), ErrorCode.NONE)
        if error not in OF_A_PARTITION:
            return pending_commit_error(request, error)
        answered += made
        refused += unknown
        yield STEP * ROW_BYTES
    return TxnOffsetCommitResponse(topics=_merged((*answered, *refused)))


def _commit(
    state: BrokerState, request: TxnOffsetCommitRequest, shard: int, context: RequestContext
) -> tuple[tuple[TxnOffsetCommitResponseTopic, ...], list[TxnOffsetCommitResponseTopic]]:
    """The answers for the partitions that exist, all with one error if the request is refused; and for the others."""
    if state.coordinator_of(shard) != context.broker_id:  # it may move between two steps
        return pending_commit_error(request, ErrorCode.NOT_COORDINATOR).topics, []
    known, refused = _known_topics(state, request, context.api_version)
    if not known:
        return (), refused
    asked = changed(request, topics=tuple(known))
    error = _check(state, asked, shard, context)
    if not error and state.shards[shard].unavailable is LOADING_NOW and context.api_version < LOADING:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error:
        return pending_commit_error(asked, error).topics, refused
    if not state.groups.know_topics:
        state.groups.tell_topics()
    return ask_shard(state, shard, asked, context).topics, refused


def _known_topics(
    state: BrokerState, request: TxnOffsetCommitRequest, version: int
) -> tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitResponseTopic]]:
    """The topics with their partitions that exist, under their names, and the answers for the others."""
    known: list[TxnOffsetCommitRequestTopic] = []
    refused: list[TxnOffsetCommitResponseTopic] = []
    for wanted in request.topics:
        if version >= TOPIC_IDS:
            topic, error = state.catalog.by_id.get(wanted.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic, error = state.topic(wanted.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None:
            wanted = changed(wanted, name=topic.name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = len(topic.partitions) if topic is not None else 0
        present: list[TxnOffsetCommitRequestPartition] = []
        absent: list[TxnOffsetCommitRequestPartition] = []
        for asked in wanted.partitions:
            (present if 0 <= asked.partition_index < count else absent).append(asked)
        if present:
            known.append(changed(wanted, partitions=tuple(present)))
        if absent:
            refused.append(_refused(wanted, absent, error))
    return known, refused


def _check(state: BrokerState, request: TxnOffsetCommitRequest, shard: int, context: RequestContext) -> ErrorCode:
    """The error of the whole request that the group has no part in, or NONE."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if state.shards[shard].unavailable:
        return ErrorCode.NONE  # the shard refuses the request
    producer_id, epoch, version = request.producer_id, request.producer_epoch, context.api_version
    partition = state.topics.partition_named(state.shards[shard].log)
    if error := partition.check_epoch(producer_id, epoch, state.now):
        return error  # also if the coordinator knows nothing of the producer any more
    asks = version >= ADDS or state.config.transaction_partition_verification_enable
    if asks and not partition.has_open(producer_id, epoch):
        places = ((OFFSETS_TOPIC, shard),)
        transactional_id, adds = request.transactional_id, version >= ADDS
        error = state.transactions.check(context, transactional_id, producer_id, epoch, places, adds=adds)
        if error:
            return _for_version(error, version)
    if producer_id < 0 or epoch < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if version >= ADDS or not state.config.deviations.older_connection:
        return ErrorCode.NONE
    newest = state.transactions.connections
    is_late = newest.is_late(producer_id, epoch, context.broker_id, context.connection)
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_late else ErrorCode.NONE


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if error in COORDINATOR_AWAY:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= LOADING else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _refused(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], error: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
            for asked in partitions
        ),
    )


def _merged(topics: Iterable[TxnOffsetCommitResponseTopic]) -> tuple[TxnOffsetCommitResponseTopic, ...]:
    """One entry for each topic."""
    merged: dict[tuple[str, bytes], TxnOffsetCommitResponseTopic] = {}
    for topic in topics:
        key = (topic.name, topic.topic_id)
        earlier = merged.get(key)
        partitions = topic.partitions if earlier is None else earlier.partitions + topic.partitions
        merged[key] = changed(topic, partitions=partitions)
    return tuple(merged.values())
