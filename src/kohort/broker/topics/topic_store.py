"""Topics and their partitions: each operation decides a record of the metadata log and applies it to the catalog.

The records of a turn leave as one batch when it ends. Operations on a topic's logs (create, delete) leave with them.

To create or delete thousands of logs in one turn would keep everybody waiting for the storage. So the logs of a large
topic, or of a large growth, are created before the topic's record, some in each turn, and those of a large topic are
deleted after it. Meanwhile they are *spare*: a record says from which partition on, so that a start finds them. Spare
logs that nobody is going to use are deleted, some in each turn, from the last one on.
"""

from __future__ import annotations

import base64
import random as random_module
from collections.abc import Callable, Iterable, Mapping, Sequence

from kohort.broker.logs.partition import Partition
from kohort.broker.logs.tails import NOWHERE, Tail, Tails
from kohort.broker.nodes import Node
from kohort.broker.sharing.slots import Slots
from kohort.broker.topics.catalog import (
    METADATA_LOG,
    OWN_TOPICS,
    SHARES_TOPIC,
    TRANSACTIONS_TOPIC,
    Catalog,
    Topic,
    broker_record,
    producer_ids_record,
    spare_logs_record,
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
CREATED_LATER = (TRANSACTIONS_TOPIC, SHARES_TOPIC)
"""Own topics that are there since a client needed them."""
MANY = 1 << 30
LOGS_A_TURN = 100
"""Logs that are created or deleted together: some five milliseconds of the storage."""


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
        tails: Tails | None,
        slots: Slots | None = None,
    ) -> None:
        """`slots`: of nodes that serve at once. Each has the logs of its own slots only."""
        self.catalog = Catalog(config, slots)
        self.slots = slots
        self.partitions: dict[bytes, list[Partition]] = {}
        """Topic id: its partitions, by index."""
        self.spare: dict[bytes, list[Partition]] = {}
        """Topic id: its spare logs, in order."""
        self._growing: dict[bytes, int] = {}
        """Topic id: how many requests create logs for it."""
        self.changed: dict[str, None] = {}
        """Names of the topics that may have changed since this was last cleared."""
        self.used: set[str] = set()
        """Own topics of the broker that a client has asked for."""
        self.is_created: Callable[[str], None] = _nothing
        """Called before a topic of this name is created."""
        self._config = config
        self._storage = storage
        self.nodes = nodes
        self._random = random
        self._turn = turn
        self._fetch_waits = fetch_waits
        self._tails = tails
        self.metadata = self._open_metadata(None)
        """The metadata log."""
        self._decided: list[Record] = []
        self._next_producer_id = 0
        self.producer_ids: list[range] = []
        """Blocks of ids that this node may give, of nodes that serve at once."""

    # -- nodes that serve at once

    def holds(self, log: LogKey) -> bool:
        """This node has the log."""
        return self.slots is None or self.slots.holds(log)

    @property
    def may_decide(self) -> bool:
        """This node writes the metadata log."""
        return self.slots is None or self.slots.controls

    @property
    def logs_a_turn(self) -> int:
        """How many logs one turn creates or deletes. There is no limit for nodes that serve at once: each node creates
        its own logs when it learns of the topic, so it cannot create some of them in an earlier turn."""
        return LOGS_A_TURN if self.slots is None else MANY

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
        if topic.name not in OWN_TOPICS or topic.name in CREATED_LATER or topic.name in self.used:
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
        """Those that have a log here."""
        by_id = self.catalog.by_id
        own = (partitions for topic_id, partitions in self.partitions.items() if not by_id[topic_id].is_followed)
        found = [self.metadata, *(partition for partitions in own for partition in partitions)]
        return found if self.slots is None else [partition for partition in found if self.holds(partition.log)]

    # -- operations

    def decide(self, record: Record) -> None:
        assert self.may_decide, "another node writes the metadata log"
        self.catalog.apply(record)
        self._decided.append(record)

    def create(
        self,
        name: str,
        assignments: Sequence[PartitionAssignment],
        configs: dict[str, str],
        topic_id: bytes | None = None,
    ) -> Topic:
        """`topic_id`: the one that logs have been created for."""
        self.is_created(name)
        topic_id = topic_id or self.new_topic_id()
        self.decide(topic_record(name, topic_id, assignments, configs))
        self.changed[name] = None
        self.partitions[topic_id] = []
        topic = self.catalog.topics[name]
        self._open_new_partitions(topic)
        return topic

    def follow(self, name: str, topic_id: bytes, assignments: Sequence[PartitionAssignment]) -> None:
        """Create or change a topic that another cluster has. Partitions are never fewer."""
        if name not in self.catalog.topics:
            self.is_created(name)
            self.partitions[topic_id] = []
        self.decide(topic_record(name, topic_id, assignments, {}, is_followed=True))
        self.changed[name] = None
        self.open_followed(self.catalog.topics[name])

    def open_followed(self, topic: Topic) -> None:
        partitions = self.partitions.setdefault(topic.topic_id, [])
        for index in range(len(partitions), len(topic.partitions)):
            partitions.append(Partition(topic.log_key(index), topic.settings, 0, self._storage))

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
        if configs is not None or assignments is None or assignments[: len(topic.partitions)] != topic.partitions:
            self._configure(self.partitions[topic.topic_id], changed, 0)
        self._open_new_partitions(changed)
        return changed

    def delete(self, topic: Topic) -> None:
        self.decide(topic_deleted_record(topic.name))
        self.changed[topic.name] = None
        self.drop(topic)

    def drop(self, topic: Topic) -> None:
        """The topic is gone from the catalog: delete its logs."""
        partitions = self.partitions.pop(topic.topic_id)
        self._fetch_waits.wake([partition.log for partition in partitions])
        for partition in partitions:
            if partition.tail is not None:
                partition.tail.drop_up_to(NOWHERE)
        if topic.is_followed:
            return
        partitions = [partition for partition in partitions if self.holds(partition.log)]
        if len(partitions) > self.logs_a_turn:
            self.spare[topic.topic_id] = partitions + self.spare.get(topic.topic_id, [])
            self.decide(spare_logs_record(topic.topic_id, 0))
        else:
            self._turn.operations.extend([DeleteLog(partition.log) for partition in partitions])

    def configure_broker(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace what is set on a broker, or, with the name "", on all brokers."""
        self.decide(broker_record(broker, configs))
        for topic in self.catalog.topics.values():
            self._configure(self.partitions[topic.topic_id], topic, 0)

    def next_producer_id(self) -> int:
        """A producer id never given before, not even by a process that crashed: ids are reserved in durable blocks.
        Check `has_producer_ids` first."""
        if self.slots is not None:
            block = self.producer_ids[0]
            self.producer_ids[:1] = [block[1:]] if len(block) > 1 else []
            return block[0]
        if self._next_producer_id >= self.catalog.next_producer_id:
            self._next_producer_id = self.catalog.next_producer_id
            self.decide(producer_ids_record(self._next_producer_id + PRODUCER_ID_BLOCK))
        self._next_producer_id += 1
        return self._next_producer_id - 1

    @property
    def has_producer_ids(self) -> bool:
        """False while a node waits for its next block."""
        return self.slots is None or bool(self.producer_ids)

    def skip_producer_ids(self, count: int, least: int) -> None:
        """Never give any of the next `count` ids, and none below `least`: another server may have given them."""
        self._next_producer_id = max(self.catalog.next_producer_id + count, least)
        self.decide(producer_ids_record(self._next_producer_id))

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
        ring = across_racks(self.nodes)
        placed = [_replicas(ring[start:] + ring[:start], replication_factor) for start in range(len(ring))]
        return tuple(
            PartitionAssignment(leader=replicas[0], leader_epoch=0, replicas=replicas)
            for replicas in (placed[index % len(ring)] for index in range(first_index, first_index + count))
        )

    # -- topics of another controller

    def learn_topic(self, name: str, record: Record) -> None:
        """The controller has created or changed a topic. This node creates the new logs that lie
        in its own slots."""
        if name not in self.catalog.topics:
            self.is_created(name)
        self.catalog.apply(record)
        self.changed[name] = None
        topic = self.catalog.topics[name]
        partitions = self.partitions.setdefault(topic.topic_id, [])
        self._configure(partitions, topic, 0)
        self._open_new_partitions(topic)

    def learn_deletion(self, topic: Topic, record: Record | None) -> None:
        """The controller has deleted a topic. `record`: None if it is still to come."""
        if record is not None:
            self.catalog.apply(record)
        self.changed[topic.name] = None
        self.drop(topic)

    def learn_broker(self, record: Record) -> None:
        """The controller has changed what is set on brokers."""
        self.catalog.apply(record)
        for topic in self.catalog.topics.values():
            self._configure(self.partitions[topic.topic_id], topic, 0)

    def put_partition(self, topic: Topic, index: int, info: LogInfo | None) -> Partition:
        """This node has the partition's log now, or has it no longer. `info`: the stored log; None if this turn
        creates it, or another node has it."""
        former = self.partitions[topic.topic_id][index]
        if former.tail is not None:
            former.tail.drop_up_to(NOWHERE)
        if info is None and self.holds(former.log):
            self._turn.operations.append(CreateLog(former.log))
        partition = self.partitions[topic.topic_id][index] = self.open_partition(topic, index, info)
        if not self.holds(former.log):
            partition.follow(former.high_watermark, former.start_offset)
        return partition

    def learn_end(self, log: LogKey, start_offset: int, end_offset: int) -> None:
        """What the node that has a log has said of it some time ago. It counts for the lag of groups."""
        partitions = self.partitions.get(log.topic_id, ())
        if log.partition < len(partitions) and not self.holds(log):
            partition = partitions[log.partition]
            partition.follow(max(end_offset, partition.end_offset), max(start_offset, partition.start_offset))

    # -- logs

    def _configure(self, partitions: Sequence[Partition], topic: Topic, first: int) -> None:
        """Give the topic's partitions from `first` on what it says of them."""
        of_leader: dict[int, TopicSettings] = {}
        for index, partition in enumerate(partitions, first):
            assignment = topic.partitions[index]
            if assignment.leader not in of_leader:
                of_leader[assignment.leader] = self.catalog.settings_of(topic, assignment.leader)
            partition.configure(of_leader[assignment.leader], assignment.leader_epoch)

    def _open_new_partitions(self, topic: Topic) -> None:
        topic_id, partitions = topic.topic_id, self.partitions[topic.topic_id]
        first, end = len(partitions), len(topic.partitions)
        spare = self.spare.get(topic_id, [])
        taken = spare[: end - first]
        del spare[: end - first]
        self._configure(taken, topic, first)
        partitions += taken
        for index in range(len(partitions), end):
            if self.holds(topic.log_key(index)):
                self._turn.operations.append(CreateLog(topic.log_key(index)))
            partitions.append(self.open_partition(topic, index, None))
        if first < end and topic_id in self.catalog.spare_logs:
            if not spare:
                self.spare.pop(topic_id, None)
            self.decide(spare_logs_record(topic_id, end if spare else None))

    # -- spare logs

    def begin_growth(self, topic_id: bytes) -> None:
        """A request creates logs for this topic. `end_growth` has to follow."""
        self._growing[topic_id] = self._growing.get(topic_id, 0) + 1

    def end_growth(self, topic_id: bytes) -> None:
        """Spare logs that are left are deleted, unless another request grows the topic."""
        self._growing[topic_id] -= 1
        if not self._growing[topic_id]:
            del self._growing[topic_id]

    def spare_count(self, topic_id: bytes) -> int:
        return len(self.spare.get(topic_id, ()))

    @property
    def growing_count(self) -> int:
        """Logs that are there for topics that are created or grow."""
        return sum(self.spare_count(topic_id) for topic_id in self._growing)

    def create_spare_logs(self, topic_id: bytes, first: int, count: int) -> None:
        """Create some logs, so that there are `count` of them from partition `first` on, after several calls.

        As long as there are unused ones, some of these are deleted instead: they count for no limit, and must not pile
        up."""
        if self.deletes_logs:
            self.delete_spare_logs()
            return
        if topic_id not in self.catalog.spare_logs:
            self.decide(spare_logs_record(topic_id, first))
        spare = self.spare.setdefault(topic_id, [])
        settings = resolve({}, self.catalog.config)
        for index in range(first + len(spare), first + min(count, len(spare) + LOGS_A_TURN)):
            log = LogKey(topic_id, index)
            self._turn.operations.append(CreateLog(log))
            spare.append(Partition(log, settings, 0, self._storage, None, self._tail()))

    @property
    def deletes_logs(self) -> bool:
        """There are spare logs that nobody is going to use."""
        return any(topic_id not in self._growing for topic_id in self.spare)

    def delete_spare_logs(self) -> None:
        """Delete some of them."""
        unused = (topic_id for topic_id in self.spare if topic_id not in self._growing)
        topic_id = next(unused, None)
        if topic_id is None:
            return
        spare = self.spare[topic_id]
        self._turn.operations.extend([DeleteLog(partition.log) for partition in spare[-LOGS_A_TURN:]])
        del spare[-LOGS_A_TURN:]
        if not spare:
            del self.spare[topic_id]
            self.decide(spare_logs_record(topic_id, None))

    def resume_spare_logs(self, infos: Iterable[LogInfo]) -> None:
        """Take over the spare logs that the last process has left, in their order."""
        settings = resolve({}, self.catalog.config)
        self.spare = {topic_id: [] for topic_id in self.catalog.spare_logs}
        for info in infos:
            self.spare[info.key.topic_id].append(Partition(info.key, settings, 0, self._storage, info, self._tail()))

    def open_partition(self, topic: Topic, index: int, info: LogInfo | None) -> Partition:
        """`info` describes the stored log; None if this turn creates the log, or another node has it."""
        assignment = topic.partitions[index]
        settings = self.catalog.settings_of(topic, assignment.leader)
        if not self.holds(topic.log_key(index)):
            return Partition(topic.log_key(index), settings, assignment.leader_epoch, self._storage)
        tail = self._tail(topic.name)
        return Partition(topic.log_key(index), settings, assignment.leader_epoch, self._storage, info, tail)

    def _tail(self, topic: str = "") -> Tail | None:
        if self._tails is None:
            return None
        return Tail(None if topic in OWN_TOPICS else self._tails)  # clients hardly read the broker's own topics

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
