"""A client's view of a cluster: the brokers and topics of the Metadata answers.

`ClusterView` is the cache. An answer with all topics replaces it; an answer with some topics updates those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.client.errors import error_code
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1
NO_NODE = -1

TopicPartition = tuple[str, int]
"""A topic's name and a partition's number."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, at its advertised address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a topic. `leader` is NO_LEADER while it has none."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; if `error` is not NONE, the reason why there is none. `topic_id` is None if the broker has no ids."""

    name: str
    partitions: tuple[Partition, ...]
    internal: bool = False
    topic_id: bytes | None = None
    error: ErrorCode = ErrorCode.NONE

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(slots=True)
class ClusterView:
    """The cache of one client. `fetched_at` is the monotonic time, in seconds, of its newest answer."""

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    fetched_at: float = float("-inf")

    def partition(self, topic: str, index: int) -> Partition | None:
        known = self.topics.get(topic)
        if known is None:
            return None
        if 0 <= index < len(known.partitions) and known.partitions[index].index == index:
            return known.partitions[index]
        return next((partition for partition in known.partitions if partition.index == index), None)

    def update(self, answer: MetadataResponse, *, all_topics: bool, now: float) -> None:
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        self.nodes = {row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in answer.brokers}
        if all_topics:
            self.topics = {}
        for row in answer.topics:
            if row.name is not None:
                self.topics[row.name] = _topic(row.name, row)
        self.fetched_at = now


def _topic(name: str, row: MetadataResponseTopic) -> Topic:
    partitions = tuple(
        Partition(
            name,
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            error_code(partition.error_code),
        )
        for partition in sorted(row.partitions, key=lambda partition: partition.partition_index)
    )
    return Topic(
        name,
        partitions,
        row.is_internal,
        row.topic_id if row.topic_id != NO_UUID else None,
        error_code(row.error_code),
    )
