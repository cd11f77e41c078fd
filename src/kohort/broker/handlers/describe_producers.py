"""DescribeProducers: the producers of partitions, with the transactions that are open there (KIP-664).

Tools find with it which producer holds up the readers of committed records.
"""

from __future__ import annotations

from collections.abc import Generator

from kohort.broker.logs.partition import Partition
from kohort.broker.logs.producers import ProducerState as Known
from kohort.broker.request import ROW_BYTES, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic, check_topic_name
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@in_steps
def describe_producers(
    state: BrokerState, request: DescribeProducersRequest, context: RequestContext
) -> Generator[int, None, DescribeProducersResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            yield ROW_BYTES
            partitions.append((yield from _partition(state, topic.name, index, context)))
        topics.append(TopicResponse(name=topic.name, partitions=tuple(partitions)))
    return DescribeProducersResponse(topics=tuple(topics))


def _partition(
    state: BrokerState, name: str, index: int, context: RequestContext
) -> Generator[int, None, PartitionResponse]:
    topic = state.topic(name)
    partition = state.partition(topic, index) if topic is not None else None
    error = _error(name, topic, partition, index, context)
    if error or partition is None:
        return PartitionResponse(partition_index=index, error_code=error, active_producers=())
    described: list[ProducerState] = []
    for ids in partition.producer_ids():
        states = [partition.producer_state(producer_id, state.now) for producer_id in ids]
        described += [_described(known) for known in states if known is not None]
        yield len(states) * ROW_BYTES
    return PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=tuple(described))


def _error(
    name: str, topic: Topic | None, partition: Partition | None, index: int, context: RequestContext
) -> ErrorCode:
    if check_topic_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic is None or partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_led = topic.partitions[index].leader == context.broker_id
    return ErrorCode.NONE if is_led else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _described(known: Known) -> ProducerState:
    return ProducerState(
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.last_timestamp,
        coordinator_epoch=known.coordinator_epoch,
        current_txn_start_offset=known.open_since,
    )
