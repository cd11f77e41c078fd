"""ElectLeaders: moves leadership back to the preferred leader, the first replica of a partition.

Every broker of the process is up, so no partition is without a leader, and an unclean election is never needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.moves import move_partition
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import not_too_often
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1


def elect_leaders(state: BrokerState, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """For all partitions (null), those that have their preferred leader are left out of the answer, as in Kafka."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=())
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        asked = [(topic.name, range(len(topic.partitions))) for topic in state.topics.listed()]
    else:
        named = not_too_often(request.topic_partitions, lambda wanted: wanted.topic)
        asked = [(wanted.topic, dict.fromkeys(wanted.partitions)) for wanted in named]
    everything = request.topic_partitions is None
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=name,
                partition_result=tuple(
                    result
                    for index in indexes
                    if (result := _elect(state, name, index, request.election_type)).error_code
                    != ErrorCode.ELECTION_NOT_NEEDED
                    or not everything
                ),
            )
            for name, indexes in asked
        ),
    )


def _elect(state: BrokerState, name: str, index: int, election: int) -> PartitionResult:
    topic = state.topic(name)
    if topic is None:
        return _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        return _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    assignment = topic.partitions[index]
    preferred = assignment.replicas[0]
    if election == UNCLEAN or assignment.leader == preferred:
        return _failed(index, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message)
    if preferred not in state.node_by_id:
        error = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return _failed(index, error, error.message)
    move_partition(state, name, index, preferred)
    return PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)


def _failed(index: int, error: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error, error_message=message)
