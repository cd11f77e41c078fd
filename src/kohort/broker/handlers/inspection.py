"""What tools ask about a cluster: DescribeLogDirs, DescribeQuorum, ListConfigResources, and the API of a feature that
kohort does not have, whose list is empty: ListPartitionReassignments.

The answers are those of an Apache Kafka broker without reassignments.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from functools import partial
from pathlib import Path

from kohort.broker.handlers.config_resources import BROKER, GROUP, TOPIC
from kohort.broker.request import ROW_BYTES, ROWS, STEP_BYTES, RequestContext, in_steps, rows
from kohort.broker.state import BrokerState
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kohort.wire.schemas.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    QuorumListener,
    QuorumNode,
    ReplicaState,
)
from kohort.wire.schemas.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kohort.wire.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

IN_MEMORY = "memory"
IN_DATABASE = "database"
"""The log directory of a server without one."""
UNKNOWN = -1
"""The size of its volume."""
BROKER_LOGGER, CLIENT_METRICS = 8, 16
"""Resource types that Kafka lists and kohort has none of."""
METADATA_TOPIC = "__cluster_metadata"
MAX_QUORUMS = 1000
"""Partitions that one DescribeQuorum names; all but one of them have no quorum."""


# -- sizes


@in_steps
def describe_log_dirs(
    state: BrokerState, request: DescribeLogDirsRequest, context: RequestContext
) -> Generator[int, None, DescribeLogDirsResponse]:
    """The sizes of the partitions of which this broker has a replica, and of the volume. Unknown partitions are left
    out, as in Kafka."""
    if request.topics is None:
        asked = {topic.name: set(range(len(topic.partitions))) for topic in state.topics.listed()}
    else:
        asked = {}
        for wanted in request.topics:
            asked.setdefault(wanted.topic, set()).update(wanted.partitions)
    topics = []
    for name, indexes in asked.items():
        topics.append((yield from _sizes(state, name, indexes, context.broker_id)))
    data_dir = state.config.data_dir
    elsewhere = IN_DATABASE if state.config.storage else IN_MEMORY
    log_dir = str(Path(data_dir).expanduser().absolute()) if data_dir else elsewhere
    total, usable = _volume(log_dir) if data_dir else (UNKNOWN, UNKNOWN)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=log_dir,
        topics=tuple(topic for topic in topics if topic.partitions),
        total_bytes=total,
        usable_bytes=usable,
    )
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=(result,))


def _volume(log_dir: str) -> tuple[int, int]:
    """The size of the volume, and what is free for this user, in bytes (KIP-827)."""
    try:
        found = os.statvfs(log_dir)
    except OSError:
        return UNKNOWN, UNKNOWN
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _sizes(
    state: BrokerState, name: str, indexes: set[int], broker_id: int
) -> Generator[int, None, DescribeLogDirsTopic]:
    topic = state.topic(name)
    assignments = () if topic is None else topic.partitions

    def sized(index: int) -> DescribeLogDirsPartition:
        assert topic is not None
        info = state.storage.log_info(topic.log_key(index))  # None for a log that this turn creates or deletes
        size = info.size if info is not None else 0
        return DescribeLogDirsPartition(partition_index=index, partition_size=size, offset_lag=0, is_future_key=False)

    here = [index for index, one in enumerate(assignments) if index in indexes and broker_id in one.replicas]
    partitions = yield from rows(here, sized)
    yield STEP_BYTES + ROW_BYTES * (len(here) % ROWS)  # `rows` does not count the last, incomplete step
    return DescribeLogDirsTopic(name=name, partitions=partitions)


# -- the quorum


def describe_quorum(
    state: BrokerState, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """The controller is the only voter of the metadata log; the other brokers read what it wrote."""
    asked = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
    if len(asked) > MAX_QUORUMS:
        return DescribeQuorumResponse(error_code=ErrorCode.INVALID_REQUEST, topics=())
    if asked != [(METADATA_TOPIC, 0)]:
        topics = tuple(
            DescribeQuorumResponseTopic(
                topic_name=topic.topic_name,
                partitions=tuple(_no_quorum(part.partition_index) for part in topic.partitions),
            )
            for topic in request.topics
        )
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=topics)
    log = state.topics.metadata
    replicas = tuple(
        ReplicaState(
            replica_id=node.id,
            log_end_offset=log.end_offset,
            last_fetch_timestamp=state.now,
            last_caught_up_timestamp=state.now,
        )
        for node in state.present_nodes
    )
    partition = DescribeQuorumResponsePartition(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=state.controller_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=replicas[:1],
        observers=replicas[1:],
    )
    controller = state.node_at(context.listener, state.controller_id) or state.present_nodes[0]
    listener = QuorumListener(name=context.listener or "PLAINTEXT", host=controller.host, port=controller.port)
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=(DescribeQuorumResponseTopic(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=(QuorumNode(node_id=controller.id, listeners=(listener,)),),
    )


def _no_quorum(partition: int) -> DescribeQuorumResponsePartition:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponsePartition(
        partition_index=partition,
        error_code=error,
        error_message=error.message,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )


# -- what has configs


@in_steps
def list_config_resources(
    state: BrokerState, request: ListConfigResourcesRequest, context: RequestContext
) -> Generator[int, None, ListConfigResourcesResponse]:
    """In version 0 those of client metrics alone. Groups are listed that have configs of their own."""
    supported = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC) if context.api_version >= 1 else (CLIENT_METRICS,)
    if not set(supported).issuperset(request.resource_types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=())
    types = request.resource_types or supported
    found: list[ConfigResource] = []
    for type in supported:
        if type in types:
            found += yield from rows(list(_names(state, type)), partial(_resource, type))
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=tuple(found))


def _resource(type: int, name: str) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=type)


def _names(state: BrokerState, type: int) -> Iterable[str]:
    if type == GROUP:
        return state.catalog.group_configs
    if type == BROKER:
        return [str(node.id) for node in state.present_nodes]
    return [topic.name for topic in state.topics.listed()] if type == TOPIC else ()


# -- what kohort does not have


def list_partition_reassignments(
    state: BrokerState, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=())
