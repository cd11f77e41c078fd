"""ElectLeaders: moves leadership back to the preferred leader, the first replica of a partition.

Every broker of the process is up, so no partition is without a leader, and an unclean election is never needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from kohort.broker.moves import move_partitions
from kohort.broker.request import ROW_BYTES, ROWS, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic
from kohort.coordinator.journal.story import cut
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1
MAX_NAMED_PARTITIONS = 20_000
"""Partitions that one request names. All partitions are asked for without naming them."""


@in_steps
def elect_leaders(
    state: BrokerState, request: ElectLeadersRequest, context: RequestContext
) -> Generator[int, None, ElectLeadersResponse]:
    """For all partitions (null), those that have their preferred leader are left out of the answer, as in Kafka."""
    named: dict[str, dict[int, None]] = {}
    for topic in request.topic_partitions or ():
        named.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    is_too_large = sum(map(len, named.values())) > MAX_NAMED_PARTITIONS
    if is_too_large or request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=())
    preferred = request.election_type == PREFERRED
    asked: Iterable[tuple[str, list[int]]]
    if request.topic_partitions is None:
        listed = state.topics.listed()
        asked = ((topic.name, _without_preferred(topic) if preferred else []) for topic in listed)
    else:
        asked = ((name, list(indexes)) for name, indexes in named.items())
    results: list[ReplicaElectionResult] = []
    for name, indexes in asked:
        partitions: list[PartitionResult] = []
        if results:
            yield ROW_BYTES
        for first in range(0, len(indexes), ROWS):
            if partitions:
                yield ROWS * ROW_BYTES
            partitions += _elect(state, name, indexes[first : first + ROWS], preferred=preferred)
        results.append(ReplicaElectionResult(topic=name, partition_result=tuple(partitions)))
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=tuple(results))


def _without_preferred(topic: Topic) -> list[int]:
    return [index for index, partition in enumerate(topic.partitions) if partition.leader != partition.replicas[0]]


def _elect(state: BrokerState, name: str, indexes: Sequence[int], *, preferred: bool) -> list[PartitionResult]:
    topic = state.topic(name)
    present = {node.id for node in state.present_nodes}
    results = []
    leaders: dict[int, int] = {}
    for index in indexes:
        if topic is None:
            result = _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {cut(name)}")
        elif not 0 <= index < len(topic.partitions):
            result = _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
        elif not preferred or topic.partitions[index].leader == topic.partitions[index].replicas[0]:
            result = _failed(index, ErrorCode.ELECTION_NOT_NEEDED)
        elif topic.partitions[index].replicas[0] not in present:
            result = _failed(index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        else:
            leaders[index] = topic.partitions[index].replicas[0]
            result = PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
        results.append(result)
    if topic is not None and leaders:
        move_partitions(state, topic, leaders)
    return results


def _failed(index: int, error: ErrorCode, message: str | None = None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error, error_message=message or error.message)
