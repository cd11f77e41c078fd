"""Metadata and DescribeTopicPartitions: topics, partitions, leaders. Metadata also creates the topics asked for."""

from __future__ import annotations

from collections.abc import Generator

from kohort.broker.authorization import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from kohort.broker.change_log import tell_change
from kohort.broker.quotas.mutations import Mutations, mutations_of
from kohort.broker.request import ROW_BYTES, ROWS, STEP_BYTES, RequestContext, in_steps, rows
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import INTERNAL_TOPICS, Topic, check_topic_name
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kohort.wire.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.schemas.metadata_records import PartitionAssignment

MAX_DESCRIBED_PARTITIONS = 2000
"""Kafka's max.request.partition.size.limit."""
MAX_CREATED_PARTITIONS = 5_000
"""Partitions that one Metadata request creates; each topic counts as TOPIC_COUNTS more."""
TOPIC_COUNTS = 9
PARTITION_BYTES = 150
"""The memory of a partition of an answer, about."""
METADATA_KEY = 3
NO_LEADER = -1


@in_steps
def metadata(
    state: BrokerState, request: MetadataRequest, context: RequestContext
) -> Generator[int, None, MetadataResponse]:
    version = context.api_version
    told = _Told(state, context)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (version == 0 and not request.topics):
        topics = []
        for topic in state.topics.listed():
            topics.append((yield from _known(topic, operations, told)))
    else:
        may_create = request.allow_auto_topic_creation and state.config.auto_create_topics_enable
        mutations = mutations_of(state, context, context.api_version) if may_create else None
        create = _Creation(may_create, mutations, context)
        asked = {(wanted.topic_id, wanted.name): wanted for wanted in request.topics}
        topics = []
        for wanted in asked.values():
            found = _found(state, wanted, version, create, operations)
            if isinstance(found, Topic):
                topics.append((yield from _known(found, operations, told)))
            else:
                topics.append(found)
                yield ROW_BYTES
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in state.nodes_at(context.listener)
        ),
        cluster_id=state.catalog.cluster_id,
        controller_id=state.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _found(
    state: BrokerState, wanted: MetadataRequestTopic, version: int, create: _Creation, operations: int
) -> Topic | MetadataResponseTopic:
    """The topic, which is created if that is allowed, or the answer that there is none."""
    name, topic_id = wanted.name, wanted.topic_id
    if topic_id != NO_UUID and version >= 12:
        topic = state.catalog.by_id.get(topic_id)
        return topic or _unknown(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id, operations)
    if name is None or topic_id != NO_UUID:
        # Before version 12 a topic is asked for by its name alone.
        return _unknown(ErrorCode.INVALID_REQUEST, name or "", topic_id, operations)
    topic = state.topic(name)
    if topic is None:
        error = create.topic(state, name) if create.is_allowed else _reason_unknown(name)
        if error:
            return _unknown(error, name, NO_UUID, operations)
        topic = state.catalog.topics[name]
    return topic


def _unknown(error: ErrorCode, name: str | None, topic_id: bytes, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _reason_unknown(name: str) -> ErrorCode:
    return ErrorCode.INVALID_TOPIC_EXCEPTION if check_topic_name(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Creation:
    """Creates the topics of a Metadata request, with the broker's defaults, up to a limit."""

    def __init__(self, is_allowed: bool, mutations: Mutations | None, context: RequestContext) -> None:
        self.is_allowed = is_allowed
        self._mutations = mutations
        self._context = context
        self._partitions = 0

    def topic(self, state: BrokerState, name: str) -> ErrorCode:
        config = state.config
        if check_topic_name(name) or state.catalog.colliding(name) or name in INTERNAL_TOPICS:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if state.catalog.partition_count + config.num_partitions > config.max_partitions:
            return ErrorCode.POLICY_VIOLATION
        if self._partitions >= MAX_CREATED_PARTITIONS:
            return ErrorCode.LEADER_NOT_AVAILABLE  # clients ask again and get more of them
        if self._mutations is not None and self._mutations.is_used_up(config.num_partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._partitions += TOPIC_COUNTS + config.num_partitions
        if state.slots is not None and not state.topics.may_decide:
            state.slots.asks.create_topic(name, self._context)
            return ErrorCode.LEADER_NOT_AVAILABLE
        assignments = state.topics.place(config.num_partitions, config.default_replication_factor)
        state.topics.create(name, assignments, {})
        replicas = config.default_replication_factor
        who, count = self._context, len(assignments)
        tell_change(state, who, "topic created", topic=name, partitions=count, replicas=replicas)
        return ErrorCode.NONE if config.deviations.instant_topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Told:
    """The brokers whose addresses the client of a request gets: those of the listener it came by."""

    def __init__(self, state: BrokerState, context: RequestContext) -> None:
        self._known = state.nodes_by_listener.at(context.listener)
        self._error = ErrorCode.LEADER_NOT_AVAILABLE
        if state.slots is None and (context.api_version >= 6 or context.api_key != METADATA_KEY):
            self._error = ErrorCode.LISTENER_NOT_FOUND

    def leader(self, assignment: PartitionAssignment) -> tuple[ErrorCode, int]:
        """The partition's error, and its leader; Source: KRaftMetadataCache.getPartitionMetadata."""
        return (ErrorCode.NONE, assignment.leader) if assignment.leader in self._known else (self._error, NO_LEADER)

    def offline(self, assignment: PartitionAssignment) -> tuple[int, ...]:
        return tuple(replica for replica in assignment.replicas if replica not in self._known)


def _known(topic: Topic, operations: int, told: _Told) -> Generator[int, None, MetadataResponseTopic]:
    assignments = topic.partitions
    partitions: list[MetadataResponsePartition] = []
    for first in range(0, len(assignments), ROWS):
        partitions += [
            MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=assignment.leader_epoch,
                replica_nodes=assignment.replicas,
                isr_nodes=assignment.replicas,
                offline_replicas=told.offline(assignment) if error else (),
            )
            for index, assignment in enumerate(assignments[first : first + ROWS], first)
            for error, leader in (told.leader(assignment),)
        ]
        yield ROW_BYTES + PARTITION_BYTES * (len(partitions) - first)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=operations,
    )


@in_steps
def describe_topic_partitions(
    state: BrokerState, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Generator[int, None, DescribeTopicPartitionsResponse]:
    """Topics in the order of their names, from the cursor on, up to a number of partitions; a new cursor for the
    rest."""
    cursor, told = request.cursor, _Told(state, context)
    first_name = cursor.topic_name if cursor is not None else ""
    names = {topic.name for topic in request.topics or state.topics.listed()}
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)):
        return DescribeTopicPartitionsResponse(
            topics=tuple(_undescribed(ErrorCode.INVALID_REQUEST, topic.name) for topic in request.topics)
        )
    left = max(1, min(request.response_partition_limit, MAX_DESCRIBED_PARTITIONS))
    described: list[DescribeTopicPartitionsResponseTopic] = []
    for name in sorted(name for name in names if name >= first_name):
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if described:
            yield STEP_BYTES
        topic = state.topic(name)
        if topic is None:
            if request.topics:
                described.append(_undescribed(_reason_unknown(name), name))
            continue
        if left == 0:
            return DescribeTopicPartitionsResponse(
                topics=tuple(described), next_cursor=Cursor(topic_name=name, partition_index=first)
            )
        indexes = range(first, min(len(topic.partitions), first + left))
        left -= len(indexes)
        described.append((yield from _described(topic, indexes, told)))
        if indexes.stop < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=tuple(described), next_cursor=Cursor(topic_name=name, partition_index=indexes.stop)
            )
    return DescribeTopicPartitionsResponse(topics=tuple(described))


def _undescribed(error: ErrorCode, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_id=NO_UUID, is_internal=name in INTERNAL_TOPICS, partitions=()
    )


def _described(topic: Topic, indexes: range, told: _Told) -> Generator[int, None, DescribeTopicPartitionsResponseTopic]:
    def described(index: int) -> DescribeTopicPartitionsResponsePartition:
        assignment = topic.partitions[index]
        error, leader = told.leader(assignment)
        return DescribeTopicPartitionsResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=assignment.leader_epoch,
            replica_nodes=assignment.replicas,
            isr_nodes=assignment.replicas,
            offline_replicas=told.offline(assignment) if error else (),
            eligible_leader_replicas=(),
            last_known_elr=(),
        )

    partitions = yield from rows(indexes, described)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
