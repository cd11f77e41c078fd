"""Topics and their partitions: each operation decides a record of the metadata log and applies it to the catalog.

The records of a turn leave as one batch when it ends. Operations on a topic's logs (create, delete) leave with them.
"""

from __future__ import annotations

import base64
import random as random_module
from collections.abc import Callable, Mapping, Sequence

from kohort.broker.logs.partition import Partition
from kohort.broker.nodes import Node
from kohort.broker.topics.catalog import (
    INTERNAL_TOPICS,
    METADATA_LOG,
    OWN_TOPICS,
    TRANSACTIONS_TOPIC,
    Catalog,
    Topic,
    broker_record,
    producer_ids_record,
    topic_deleted_record,
    topic_record,
)
from kohort.broker.topics.topic_configs import TopicSettings, resolve
from kohort.broker.turn_builder import TurnBuilder
from kohort.broker.waits.fetch_waits import FetchWaits
from kohort.config import Config
from kohort.coordinator.events import Record
from kohort.coordinator.state_machine import LogName
from kohort.storage.protocol import CreateLog, DeleteLog, LogInfo, LogKey, Storage
from kohort.wire.schemas.metadata_records import PartitionAssignment

PRODUCER_ID_BLOCK = 1000


def _nothing(name: str) -> None:
    pass


class TopicStore:
    def __init__(
        self,
        config: Config,
        storage: Storage,
        nodes: Sequence[Node],
        random: random_module.Random,
        turn: TurnBuilder,
        fetch_waits: FetchWaits,
    ) -> None:
        self.catalog = Catalog(config)
        self.partitions: dict[bytes, list[Partition]] = {}
        """Topic id: its partitions, by index."""
        self.changed: dict[str, None] = {}
        """Names of the topics that may have changed since this was last cleared."""
        self.used: set[str] = set()
        """Own topics of the broker that a client has asked for."""
        self.is_created: Callable[[str], None] = _nothing
        """Called before a topic of this name is created."""
        self._config = config
        self._storage = storage
        self._nodes = nodes
        self._random = random
        self._turn = turn
        self._fetch_waits = fetch_waits
        self.metadata = self._open_metadata(None)
        """The metadata log."""
        self._decided: list[Record] = []
        self._next_producer_id = 0

    # -- reading

    @property
    def version(self) -> int:
        """The number of metadata records decided so far: while it is the same, topics and partitions are the same."""
        return self.metadata.end_offset + len(self._decided)

    def listed(self) -> list[Topic]:
        """All topics, by name. A topic of the broker's own is not among them before it is used: clients know that such
        topics are created when they are first needed."""
        return [topic for name, topic in sorted(self.catalog.topics.items()) if self.is_used(topic)]

    def is_used(self, topic: Topic) -> bool:
        if topic.name not in OWN_TOPICS or topic.name == TRANSACTIONS_TOPIC or topic.name in self.used:
            return True
        return any(partition.end_offset for partition in self.partitions[topic.topic_id])

    def partition(self, topic: Topic, index: int) -> Partition | None:
        partitions = self.partitions[topic.topic_id]
        return partitions[index] if 0 <= index < len(partitions) else None

    def partition_of(self, log: LogKey) -> Partition | None:
        """The partition of a log, also that of the metadata log; None when its topic is gone."""
        if log == METADATA_LOG:
            return self.metadata
        partitions = self.partitions.get(log.topic_id)
        return partitions[log.partition] if partitions is not None else None

    def partition_named(self, name: LogName) -> Partition:
        return self.partitions[self.catalog.topics[name.topic].topic_id][name.partition]

    def all_partitions(self) -> list[Partition]:
        return [self.metadata, *(partition for partitions in self.partitions.values() for partition in partitions)]

    # -- operations

    def decide(self, record: Record) -> None:
        self.catalog.apply(record)
        self._decided.append(record)

    def create(self, name: str, assignments: Sequence[PartitionAssignment], configs: dict[str, str]) -> Topic:
        self.is_created(name)
        topic_id = self.new_topic_id()
        self.decide(topic_record(name, topic_id, assignments, configs))
        self.changed[name] = None
        self.partitions[topic_id] = []
        topic = self.catalog.topics[name]
        self._open_new_partitions(topic)
        if name not in INTERNAL_TOPICS:
            replicas = len(assignments[0].replicas)
            self._turn.tell("topic created", topic=name, partitions=len(assignments), replicas=replicas)
        return topic

    def change(
        self,
        topic: Topic,
        *,
        assignments: Sequence[PartitionAssignment] | None = None,
        configs: dict[str, str] | None = None,
    ) -> Topic:
        """Grow a topic, move its partitions or change its configs. Returns the changed topic."""
        self.decide(
            topic_record(
                topic.name,
                topic.topic_id,
                topic.partitions if assignments is None else assignments,
                topic.configs if configs is None else configs,
            )
        )
        self.changed[topic.name] = None
        changed = self.catalog.topics[topic.name]
        for partition, assignment in zip(self.partitions[topic.topic_id], changed.partitions, strict=False):
            partition.configure(self.catalog.settings_of(changed, assignment.leader), assignment.leader_epoch)
        self._open_new_partitions(changed)
        return changed

    def delete(self, topic: Topic) -> None:
        self.decide(topic_deleted_record(topic.name))
        self.changed[topic.name] = None
        self._turn.tell("topic deleted", topic=topic.name)
        for partition in self.partitions.pop(topic.topic_id):
            self._turn.operations.append(DeleteLog(partition.log))
            self._fetch_waits.wake((partition.log,))

    def configure_broker(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace what is set on a broker, or, with the name "", on all brokers."""
        former = self.catalog.broker_configs.get(broker, {})
        self.decide(broker_record(broker, configs))
        names = sorted(name for name in former.keys() | configs.keys() if former.get(name) != configs.get(name))
        self._turn.tell("broker configs changed", broker=broker or "all", names=",".join(names))
        for topic in self.catalog.topics.values():
            of_leader: dict[int, TopicSettings] = {}
            for partition, assignment in zip(self.partitions[topic.topic_id], topic.partitions, strict=True):
                if assignment.leader not in of_leader:
                    of_leader[assignment.leader] = self.catalog.settings_of(topic, assignment.leader)
                partition.configure(of_leader[assignment.leader], assignment.leader_epoch)

    def next_producer_id(self) -> int:
        """A producer id never given before, not even by a process that crashed: ids are reserved in durable blocks."""
        if self._next_producer_id >= self.catalog.next_producer_id:
            self._next_producer_id = self.catalog.next_producer_id
            self.decide(producer_ids_record(self._next_producer_id + PRODUCER_ID_BLOCK))
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def new_topic_id(self) -> bytes:
        """A random UUID (RFC 4122, version 4) whose text begins with no hyphen, which tools would take for a flag."""
        while True:
            raw = bytearray(self._random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            topic_id = bytes(raw)
            if not base64.urlsafe_b64encode(topic_id).startswith(b"-") and topic_id not in self.catalog.by_id:
                return topic_id

    def place(self, count: int, replication_factor: int, first_index: int = 0) -> tuple[PartitionAssignment, ...]:
        """Spread leaders round robin over the nodes, and the replicas of a partition over the racks.

        A partition's replicas are its leader and the nodes after it. A rack has a second replica of a partition only
        when all racks have one, as far as they have nodes."""
        ring = across_racks(self._nodes)
        placed = [_replicas(ring[start:] + ring[:start], replication_factor) for start in range(len(ring))]
        return tuple(
            PartitionAssignment(leader=replicas[0], leader_epoch=0, replicas=replicas)
            for replicas in (placed[index % len(ring)] for index in range(first_index, first_index + count))
        )

    # -- logs

    def _open_new_partitions(self, topic: Topic) -> None:
        partitions = self.partitions[topic.topic_id]
        for index in range(len(partitions), len(topic.partitions)):
            self._turn.operations.append(CreateLog(topic.log_key(index)))
            partitions.append(self.open_partition(topic, index, None))

    def open_partition(self, topic: Topic, index: int, info: LogInfo | None) -> Partition:
        """`info` describes the stored log; None if this turn creates the log."""
        assignment = topic.partitions[index]
        settings = self.catalog.settings_of(topic, assignment.leader)
        return Partition(topic.log_key(index), settings, assignment.leader_epoch, self._storage, info)

    def _open_metadata(self, info: LogInfo | None) -> Partition:
        settings = resolve({"cleanup.policy": "compact"}, self._config)
        return Partition(METADATA_LOG, settings, 0, self._storage, info)

    def resume(self, metadata: LogInfo) -> None:
        """After the replay of the metadata log."""
        self.metadata = self._open_metadata(metadata)
        self.changed = dict.fromkeys(self.catalog.topics)
        # The rest of the last block may have been used before the stop.
        self._next_producer_id = self.catalog.next_producer_id

    def append_decided(self) -> None:
        """At the end of a turn."""
        if self._decided:
            self._turn.append_records(self.metadata, self._decided)
            self._decided.clear()


def across_racks(nodes: Sequence[Node]) -> list[Node]:
    """The first node of every rack, then the second of every rack, and so on. Nodes without a rack count as a rack."""
    places: dict[str | None, int] = {}
    ranked = []
    for node in nodes:
        places[node.rack] = places.get(node.rack, -1) + 1
        ranked.append((places[node.rack], node))
    return [node for _, node in sorted(ranked, key=lambda place: place[0])]


def _replicas(ring: Sequence[Node], count: int) -> tuple[int, ...]:
    return tuple(node.id for node in across_racks(ring)[:count])
