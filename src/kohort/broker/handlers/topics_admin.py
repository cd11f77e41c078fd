"""CreateTopics, DeleteTopics, CreatePartitions. Any broker takes them; a topic's error leaves the others alone.

Tools print the messages and their users search for them, so they are those of Kafka (ReplicationControlManager.java)
wherever Kafka has the same check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from functools import partial

import msgspec

from kohort.broker.change_log import tell_change
from kohort.broker.handlers.config_resources import Refused
from kohort.broker.handlers.configs import described_for_creation
from kohort.broker.quotas.mutations import Mutations, mutations_of
from kohort.broker.request import ROW_BYTES, RequestContext, in_steps, rows
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OWN_TOPICS, Topic, check_topic_name
from kohort.broker.topics.topic_configs import parse, topic_configs_of
from kohort.broker.topics.topic_store import LOGS_A_TURN
from kohort.coordinator.settings.config_keys import InvalidConfig
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kohort.wire.schemas.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.wire.schemas.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kohort.wire.schemas.metadata_records import PartitionAssignment

TOPIC_IDS = 6
"""The first version of DeleteTopics that names topics by their ids."""
STRICT_CREATES, STRICT_DELETES, STRICT_GROWS = 6, 5, 3
"""The first versions that are refused above controller_mutation_rate (KIP-599)."""

MAX_CREATED_TOPICS = 500
MAX_CREATED_PARTITIONS = 5_000
"""Limits of one request. Kafka allows 10,000 partitions (ReplicationControlManager)."""
DELETED_TOPICS = 20
"""Topics that are deleted in one step, if they have no more than LOGS_A_TURN partitions together."""


@in_steps
def create_topics(
    state: BrokerState, request: CreateTopicsRequest, context: RequestContext
) -> Generator[int, None, CreateTopicsResponse]:
    times = Counter(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    created = _Created(mutations_of(state, context, STRICT_CREATES))
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        if results:
            yield ROW_BYTES
        try:
            if times[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results.append((yield from _create(state, topic, request.validate_only, created, context)))
        except Refused as refused:
            results.append(
                CreatableTopicResult(name=name, error_code=refused.error, error_message=refused.message, configs=())
            )
    return CreateTopicsResponse(topics=tuple(results))


class _Created(msgspec.Struct):
    """Counts what a request has created so far."""

    mutations: Mutations | None
    topics: int = 0
    partitions: int = 0
    without_configs: tuple[CreatableTopicConfigs, ...] | None = None
    """The configs in the answer for a topic that sets none."""

    def add(self, partitions: int) -> None:
        if self.topics == MAX_CREATED_TOPICS or self.partitions + partitions > MAX_CREATED_PARTITIONS:
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"A request creates up to {MAX_CREATED_TOPICS} topics and {MAX_CREATED_PARTITIONS} partitions",
            )
        if self.mutations is not None:
            self.mutations.take(partitions)
        self.topics += 1
        self.partitions += partitions

    def described(self, state: BrokerState, configs: dict[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        if configs:
            return described_for_creation(state, configs)
        if self.without_configs is None:
            self.without_configs = described_for_creation(state, {})
        return self.without_configs


def _check_new(state: BrokerState, name: str) -> None:
    if problem := check_topic_name(name):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in ("__cluster_metadata", *OWN_TOPICS) and state.topic(name) is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Clients do not create {name}")
    if state.topic(name) is not None:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if other := state.catalog.colliding(name):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _create(
    state: BrokerState, topic: CreatableTopic, validate_only: bool, created: _Created, context: RequestContext
) -> Generator[int, None, CreatableTopicResult]:
    name = topic.name
    _check_new(state, name)
    configs = _configs(state, topic)
    assignments = _assignments(state, topic, created)
    topic_id = NO_UUID
    if not validate_only and len(assignments) <= state.topics.logs_a_turn:
        topic_id = state.topics.create(name, assignments, configs).topic_id
    elif not validate_only:
        topic_id = yield from _create_large(state, name, assignments, configs)
    if not validate_only:
        tell_change(
            state,
            context,
            "topic created",
            topic=name,
            partitions=len(assignments),
            replicas=len(assignments[0].replicas),
            configs=", ".join(f"{key}: {value}" for key, value in configs.items()),
        )
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0].replicas),
        configs=created.described(state, configs),
    )


def _create_large(
    state: BrokerState, name: str, assignments: tuple[PartitionAssignment, ...], configs: dict[str, str]
) -> Generator[int, None, bytes]:
    """First the logs, some in each turn, then the topic. Another request may create it meanwhile."""
    topics, count = state.topics, len(assignments)
    topic_id = topics.new_topic_id()
    topics.begin_growth(topic_id)
    try:
        while (there := topics.spare_count(topic_id)) < count:
            _check_new(state, name)
            _check_room(state, count - there)
            topics.create_spare_logs(topic_id, 0, count)
            yield 0
        _check_new(state, name)
        _check_room(state, 0)
        topics.create(name, assignments, configs, topic_id)
    finally:
        topics.end_growth(topic_id)
    return topic_id


def _configs(state: BrokerState, topic: CreatableTopic) -> dict[str, str]:
    known = topic_configs_of(state.config)
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{config.name} needs a value")
        try:
            parse(config.name, config.value, known)
        except InvalidConfig as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        configs[config.name] = config.value
    return configs


def _assignments(state: BrokerState, topic: CreatableTopic, created: _Created) -> tuple[PartitionAssignment, ...]:
    if topic.assignments:
        return _manual_assignments(state, topic, created)
    factor, count = topic.replication_factor, topic.num_partitions
    if factor < -1 or factor == 0:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < -1 or count == 0:
        raise Refused(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    factor = state.config.default_replication_factor if factor == -1 else factor
    count = state.config.num_partitions if count == -1 else count
    _check_factor(state, factor)
    _check_room(state, count)
    created.add(count)
    return state.topics.place(count, factor)


def _manual_assignments(
    state: BrokerState, topic: CreatableTopic, created: _Created
) -> tuple[PartitionAssignment, ...]:
    if topic.replication_factor != -1 or topic.num_partitions != -1:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "An assignment of replicas says how many there are: partitions and replication factor are then -1",
        )
    by_index = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    _check_room(state, len(by_index))
    created.add(len(by_index))
    return _assigned(state, [by_index[index] for index in range(len(by_index))], len(by_index[0]))


def _assigned(
    state: BrokerState, replica_lists: Sequence[tuple[int, ...]], factor: int
) -> tuple[PartitionAssignment, ...]:
    for replicas in replica_lists:
        if not replicas or len(set(replicas)) != len(replicas):
            problem = "lists no broker or one twice"
        elif len(replicas) != factor:
            problem = f"has {len(replicas)} replicas where others have {factor}"
        elif unknown := set(replicas) - set(state.node_by_id):
            problem = f"names brokers that do not exist: {sorted(unknown)}"
        else:
            continue
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment {list(replicas)} {problem}")
    return tuple(
        PartitionAssignment(leader=replicas[0], leader_epoch=0, replicas=replicas) for replicas in replica_lists
    )


def _check_factor(state: BrokerState, factor: int) -> None:
    if factor > len(state.nodes):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {len(state.nodes)} broker(s) are registered.",
        )


def _check_room(state: BrokerState, additional: int) -> None:
    limit = state.config.max_partitions
    if state.catalog.partition_count + state.topics.growing_count + additional > limit:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            f"{additional} more partitions would pass the limit of {limit} (max.partitions)",
        )


@in_steps
def delete_topics(
    state: BrokerState, request: DeleteTopicsRequest, context: RequestContext
) -> Generator[int, None, DeleteTopicsResponse]:
    asked = request.topics
    if context.api_version < TOPIC_IDS:
        asked = tuple(DeleteTopicState(name=name) for name in request.topic_names)
    # All are looked up before any is deleted: a topic that is named twice, by name and by id, is refused.
    times = Counter((yield from rows(asked, partial(_name_of, state))))
    mutations = mutations_of(state, context, STRICT_DELETES)
    results: list[DeletableTopicResult] = []
    for part in _parts(state, asked):
        if results:
            yield len(part) * ROW_BYTES
        made = _deleted(state, part, times, mutations, context)
        results += made
        gone = [result.name for result in made if not result.error_code and result.name is not None]
        while state.groups.deletes_offsets_of(gone):
            yield 0
            state.groups.delete_offsets()
    return DeleteTopicsResponse(responses=tuple(results))


def _parts(state: BrokerState, asked: Sequence[DeleteTopicState]) -> Iterator[list[DeleteTopicState]]:
    """Those that are deleted in one step."""
    part: list[DeleteTopicState] = []
    logs = 0
    for wanted in asked:
        topic = _named(state, wanted)
        size = len(topic.partitions) if topic is not None else 0
        if part and (len(part) == DELETED_TOPICS or logs + size > LOGS_A_TURN):
            yield part
            part, logs = [], 0
        part.append(wanted)
        logs += size
    if part:
        yield part


def _deleted(
    state: BrokerState,
    asked: Sequence[DeleteTopicState],
    times: Counter[str | DeleteTopicState],
    mutations: Mutations | None,
    context: RequestContext,
) -> list[DeletableTopicResult]:
    results = []
    gone = []
    for wanted in asked:
        try:
            topic = _deletable(wanted, _named(state, wanted), times)
            if mutations is not None:
                mutations.take(len(topic.partitions))
        except Refused as refused:
            result = DeletableTopicResult(
                name=wanted.name, topic_id=wanted.topic_id, error_code=refused.error, error_message=refused.message
            )
        else:
            gone.append(topic)
            result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)
        results.append(result)
    for topic in gone:
        tell_change(state, context, "topic deleted", topic=topic.name, partitions=len(topic.partitions))
    state.delete_topics(gone)
    return results


def _name_of(state: BrokerState, wanted: DeleteTopicState) -> str | DeleteTopicState:
    topic = _named(state, wanted)
    return topic.name if topic is not None else wanted


def _named(state: BrokerState, wanted: DeleteTopicState) -> Topic | None:
    if wanted.name is not None:
        return state.topic(wanted.name)
    return state.catalog.by_id.get(wanted.topic_id)


def _deletable(wanted: DeleteTopicState, topic: Topic | None, times: Counter[str | DeleteTopicState]) -> Topic:
    if wanted.name is not None and wanted.topic_id != NO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "A topic is named by its name or by its id, not by both")
    if wanted.name is None and wanted.topic_id == NO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "The request names a topic neither by its name nor by its id")
    if times[topic.name if topic is not None else wanted] > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if topic is None:
        by_id = wanted.name is None
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if own := OWN_TOPICS.get(topic.name):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} holds {own.holds}; it cannot be deleted")
    return topic


@in_steps
def create_partitions(
    state: BrokerState, request: CreatePartitionsRequest, context: RequestContext
) -> Generator[int, None, CreatePartitionsResponse]:
    times = Counter(topic.name for topic in request.topics)
    results: list[CreatePartitionsTopicResult] = []
    created = _Created(mutations_of(state, context, STRICT_GROWS))
    for name, wanted in {topic.name: topic for topic in request.topics}.items():
        if results:
            yield ROW_BYTES
        error, message = ErrorCode.NONE, None
        try:
            if times[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            yield from _grow(state, wanted, request.validate_only, created, context)
        except Refused as refused:
            error, message = refused.error, refused.message
        results.append(CreatePartitionsTopicResult(name=name, error_code=error, error_message=message))
    return CreatePartitionsResponse(results=tuple(results))


def _grow(
    state: BrokerState, wanted: CreatePartitionsTopic, validate_only: bool, created: _Created, context: RequestContext
) -> Generator[int, None, None]:
    topic, additional = _growth(state, wanted)
    # First of all: a request may want two billion.
    _check_room(state, additional)
    created.add(additional)
    added = _added(state, topic, wanted, additional)
    if validate_only:
        return
    if additional <= state.topics.logs_a_turn:
        _add(state, topic, added, context)
        return
    topic_id = topic.topic_id
    state.topics.begin_growth(topic_id)
    try:
        while (found := state.catalog.by_id.get(topic_id)) is not None:
            # Another request may grow the topic meanwhile. Both create logs, and the first one takes what it needs.
            first = len(found.partitions)
            missing = wanted.count - first - state.topics.spare_count(topic_id)
            if missing <= 0:
                break
            _check_room(state, missing)
            state.topics.create_spare_logs(topic_id, first, wanted.count - first)
            yield 0
        topic, additional = _growth(state, wanted)
        if topic.topic_id != topic_id:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        _add(state, topic, _added(state, topic, wanted, additional), context)
    finally:
        state.topics.end_growth(topic_id)


def _add(state: BrokerState, topic: Topic, added: tuple[PartitionAssignment, ...], context: RequestContext) -> None:
    before = len(topic.partitions)
    state.topics.change(topic, assignments=topic.partitions + added)
    tell_change(state, context, "partitions added", topic=topic.name, before=before, after=before + len(added))


def _growth(state: BrokerState, wanted: CreatePartitionsTopic) -> tuple[Topic, int]:
    """The topic, and the number of partitions that it gets."""
    topic = state.topic(wanted.name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.name in OWN_TOPICS:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"The number of partitions of {topic.name} is fixed when it is created",
        )
    present = len(topic.partitions)
    additional = wanted.count - present
    if additional == 0:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if additional < 0:
        has = f"The topic {topic.name} currently has {present} partition(s)"
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"{has}; {wanted.count} would not be an increase.")
    return topic, additional


def _added(
    state: BrokerState, topic: Topic, wanted: CreatePartitionsTopic, additional: int
) -> tuple[PartitionAssignment, ...]:
    factor = len(topic.partitions[0].replicas)
    _check_factor(state, factor)  # the topic may have been created when there were more brokers
    if wanted.assignments is None:
        return state.topics.place(additional, factor, len(topic.partitions))
    if len(wanted.assignments) != additional:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
            "were specified.",
        )
    return _assigned(state, [assignment.broker_ids for assignment in wanted.assignments], factor)
