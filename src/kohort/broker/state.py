"""What handlers see: configuration, nodes, topics, partitions, shards, and the turn that is being built.

Handlers decide and call the methods here; the methods apply at once and collect what the turn has to make durable:

    decide(record)         metadata: applied to the catalog, appended to the metadata log
    ask(shard, event)      coordination: the shard steps, its records are applied, appended to its offsets partition
    operations             everything else, in order (appends of producers, trims, created and deleted logs)

Records of one turn and one log leave as one batch when the turn ends. Replies to requests that were parked earlier are
collected in `replies`; the broker releases them when the handler is through.
"""

from __future__ import annotations

import base64
import random as random_module
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from kohort.broker.logs.partition import Appended, Partition
from kohort.broker.logs.validation import Room
from kohort.broker.topics.catalog import (
    METADATA_LOG,
    OFFSETS_TOPIC,
    Catalog,
    Topic,
    group_record,
    producer_ids_record,
    topic_deleted_record,
    topic_record,
)
from kohort.broker.topics.topic_configs import resolve
from kohort.broker.turn import Complaint, ConnectionId, HandedOut, Millis
from kohort.broker.waits.fetch_waits import FetchWait, FetchWaits
from kohort.broker.waits.shard_deadlines import ShardDeadlines
from kohort.config import Config
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignor, TopicSpec
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.events import (
    AssignmentAsked,
    Client,
    Event,
    GroupConfigsChanged,
    Record,
    Reply,
    RequestId,
    Task,
    TopicsChanged,
    TopicsDeleted,
)
from kohort.coordinator.journal.journal import Journal
from kohort.coordinator.records import OffsetRecords
from kohort.coordinator.settings.group_settings import HOLD
from kohort.coordinator.shard import Shard, partition_for
from kohort.coordinator.topics import Topics
from kohort.storage.protocol import CreateLog, DeleteLog, LogInfo, LogKey, Operation, Storage
from kohort.wire.known_clients import with_bindings
from kohort.wire.schemas.metadata_records import PartitionAssignment


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients reach a broker."""

    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    host: str
    port: int
    rack: str | None


class RequestContext(msgspec.Struct, gc=False):
    """A request, besides its body."""

    request_id: RequestId
    connection: ConnectionId
    broker_id: int
    api_key: int
    api_version: int
    correlation_id: int
    client: Client
    now: Millis
    more_behind: bool = False
    """Another request of this connection waits already."""


@dataclass(frozen=True, slots=True)
class InShard:
    """A handler's result: the request is parked in a shard, whose effects will hold the reply."""

    shard: int


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """A handler's result: no response, the connection goes (W8)."""

    reason: str


LARGE_RECORD = 65_536
"""Bytes of a record; those of groups, with all their members, may have so many."""

_shard_of = lru_cache(maxsize=65_536)(partition_for)
"""The hash walks the whole id in Python; the same ids come with every heartbeat."""
CACHED_GROUP_ID = 250
"""Characters of a group id whose shard is remembered: a request can carry ids of a megabyte."""

Parked = InShard | FetchWait
"""A handler's result when the answer comes later."""


def _held_clients(config: Config) -> frozenset[str]:
    if not config.group_heartbeat_hold_enable:
        return frozenset()
    names = frozenset(name.strip() for name in config.group_heartbeat_hold_clients.split(",")) - {""}
    return with_bindings(names)


class BrokerState:
    def __init__(
        self,
        config: Config,
        storage: Storage,
        nodes: Sequence[Node],
        random: random_module.Random,
        now: Millis,
        assignors: Mapping[str, Assignor] = BUILT_IN,
    ) -> None:
        self.config = config
        self.storage = storage
        self.nodes = tuple(nodes)
        self.random = random
        self.assignors = assignors
        self.node_by_id = {node.id: node for node in self.nodes}
        self.advertised_apis: tuple[Any, ...] = ()
        self.held_clients = _held_clients(config)
        """Software names of the clients whose heartbeats may be held."""

        protocols = config.group_coordinator_rebalance_protocols.split(",")
        self.serves_consumer_groups = "consumer" in (name.strip() for name in protocols)
        self.catalog = Catalog(config)
        self.partitions: dict[bytes, list[Partition]] = {}
        """Topic id: its partitions, by index."""
        self.metadata = self._open_metadata(None)
        self.shards: list[Shard] = []
        self._topics = Topics()
        """What the shards were told."""
        self._untold: dict[str, None] = {}
        """The topics that may have changed since."""
        self.deadlines = ShardDeadlines()
        self.fetch_waits = FetchWaits()
        self.journal = Journal(config)
        """What the shards told of their groups, as stories."""

        self.now = now
        self.fetch_left_bytes = config.fetch_turn_max_bytes
        """What the answers to this turn's fetches may still hold."""
        self.operations: list[Operation] = []
        self.replies: list[Reply] = []
        self.tasks: list[HandedOut] = []
        """Work of the shards that is to be done elsewhere."""
        self._appended: list[Partition] = []
        self._metadata_records: list[Record] = []
        self._complaints: dict[Complaint, None] = {}
        self._shard_records: dict[int, dict[object, Record]] = {}
        """What the shards decided in this turn. Of a large group only its newest record: the turn is durable as a
        whole, and a thousand static members that return at once would write their whole group a thousand times."""
        self._next_producer_id = 0

    # -- nodes, topics and partitions

    @property
    def controller_id(self) -> int:
        return self.nodes[0].id

    def topic(self, name: str) -> Topic | None:
        return self.catalog.topics.get(name)

    def partition(self, topic: Topic, index: int) -> Partition | None:
        partitions = self.partitions[topic.topic_id]
        return partitions[index] if 0 <= index < len(partitions) else None

    def partition_of(self, log: LogKey) -> Partition | None:
        """The partition of a log, also that of the metadata log; None when its topic is gone."""
        if log == METADATA_LOG:
            return self.metadata
        partitions = self.partitions.get(log.topic_id)
        return partitions[log.partition] if partitions is not None else None

    def all_partitions(self) -> list[Partition]:
        return [self.metadata, *(partition for partitions in self.partitions.values() for partition in partitions)]

    def new_topic_id(self) -> bytes:
        """A random UUID (RFC 4122, version 4) whose text begins with no hyphen, which tools would take for a flag."""
        while True:
            raw = bytearray(self.random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            topic_id = bytes(raw)
            if not base64.urlsafe_b64encode(topic_id).startswith(b"-") and topic_id not in self.catalog.by_id:
                return topic_id

    def place(self, count: int, replication_factor: int, first_index: int = 0) -> tuple[PartitionAssignment, ...]:
        """Spread leaders round robin over the nodes; a partition's replicas are its leader and the nodes after it."""
        ids = [node.id for node in self.nodes]
        return tuple(
            PartitionAssignment(
                leader=ids[index % len(ids)],
                leader_epoch=0,
                replicas=tuple(ids[(index + step) % len(ids)] for step in range(replication_factor)),
            )
            for index in range(first_index, first_index + count)
        )

    # -- records of partitions

    def append(self, partition: Partition, data: bytes, room: Room) -> Appended:
        """Append a producer's batch. What is refused changes nothing but the room that its request has left."""
        return self._write(partition, partition.append(data, self.now, room))

    def append_records(self, partition: Partition, records: Sequence[Record]) -> None:
        """Append records of the broker's own as one batch."""
        self._write(partition, partition.append_records(records, self.now))

    def _write(self, partition: Partition, appended: Appended) -> Appended:
        if appended.operations:
            self.operations.extend(appended.operations)
            self._appended.append(partition)
            self.fetch_waits.appended(partition.log, appended.size)
        return appended

    def trim(self, partition: Partition, offset: int) -> None:
        """Let go of the records below `offset`."""
        operation = partition.trim(offset)
        if operation is not None:
            self.operations.append(operation)
            self.fetch_waits.wake((partition.log,))

    # -- decisions about metadata

    @property
    def metadata_version(self) -> int:
        """How many records of metadata were decided: while it is the same, so are topics and their partitions."""
        return self.metadata.end_offset + len(self._metadata_records)

    def decide(self, record: Record) -> None:
        self.catalog.apply(record)
        self._metadata_records.append(record)

    def create_topic(self, name: str, assignments: Sequence[PartitionAssignment], configs: dict[str, str]) -> Topic:
        topic_id = self.new_topic_id()
        self.decide(topic_record(name, topic_id, assignments, configs))
        self._topic_changed(name)
        self.partitions[topic_id] = []
        topic = self.catalog.topics[name]
        self._open_new_partitions(topic)
        return topic

    def change_topic(
        self,
        topic: Topic,
        *,
        assignments: Sequence[PartitionAssignment] | None = None,
        configs: dict[str, str] | None = None,
    ) -> Topic:
        """Grow a topic, move its partitions or change its configs. Returns the topic as it is now."""
        self.decide(
            topic_record(
                topic.name,
                topic.topic_id,
                topic.partitions if assignments is None else assignments,
                topic.configs if configs is None else configs,
            )
        )
        self._topic_changed(topic.name)
        changed = self.catalog.topics[topic.name]
        for partition, assignment in zip(self.partitions[topic.topic_id], changed.partitions, strict=False):
            partition.configure(changed.settings, assignment.leader_epoch)
        self._open_new_partitions(changed)
        return changed

    def configure_group(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Give a group these configs and no others. The group need not exist."""
        self.decide(group_record(group_id, configs))
        self.ask(self.shard_of(group_id), GroupConfigsChanged(group_id, configs))

    def _take_hold_back(self, group_id: str) -> None:
        configs = self.catalog.group_configs.get(group_id, {})
        self.configure_group(group_id, {name: text for name, text in configs.items() if name not in HOLD})

    def delete_topics(self, topics: Sequence[Topic]) -> None:
        """The shards are told once: each looks at all offsets that it has."""
        for topic in topics:
            self.decide(topic_deleted_record(topic.name))
            self._topic_changed(topic.name)
            for partition in self.partitions.pop(topic.topic_id):
                self.operations.append(DeleteLog(partition.log))
                self.fetch_waits.wake((partition.log,))
        for shard in range(len(self.shards) if topics else 0):
            self.ask(shard, TopicsDeleted(tuple(topic.name for topic in topics)))

    def _open_new_partitions(self, topic: Topic) -> None:
        partitions = self.partitions[topic.topic_id]
        for index in range(len(partitions), len(topic.partitions)):
            self.operations.append(CreateLog(topic.log_key(index)))
            partitions.append(self.open_partition(topic, index, None))

    def open_partition(self, topic: Topic, index: int, info: LogInfo | None) -> Partition:
        """`info` is what storage has of the log; None for one that this turn creates."""
        epoch = topic.partitions[index].leader_epoch
        return Partition(topic.log_key(index), topic.settings, epoch, self.storage, self.config, info)

    # -- coordination

    def shard_of(self, group_id: str) -> int:
        if len(group_id) <= CACHED_GROUP_ID:
            return _shard_of(group_id, len(self.shards))
        # No group has a name beyond LONGEST_NAME: any shard can say so.
        return partition_for(group_id[:LONGEST_NAME], len(self.shards))

    def coordinator_of(self, shard: int) -> int:
        """The id of the broker that owns a shard: the leader of its offsets partition."""
        return self.catalog.topics[OFFSETS_TOPIC].partitions[shard].leader

    def ask(self, shard: int, event: Event, *, awaited: RequestId | None = None) -> Any:
        """Let a shard take a step. Returns the body of the reply to `awaited`; None when it was parked or nothing.

        Replies to other requests are collected for the broker to release.
        """
        instance = self.shards[shard]
        effects = instance.step(event, self.now)
        if effects.records:
            collected = self._shard_records.setdefault(shard, {})
            for record in effects.records:
                instance.apply(record, self.now)
                slot = record.key if len(record.value or b"") >= LARGE_RECORD else object()
                collected.pop(slot, None)
                collected[slot] = record
        if effects.journal:
            self.journal.tell(effects.journal, self.now)
        for task in effects.tasks:
            self._hand_out(shard, task)
        for group_id in effects.holds_over:
            self._take_hold_back(group_id)
        self.deadlines.set(shard, instance.next_deadline())
        found = None
        for reply in effects.replies:
            if reply.request_id == awaited:
                found = reply.body
            else:
                self.replies.append(reply)
        return found

    def has_decided(self, shard: int) -> bool:
        """True if records of the shard wait for the end of the turn: they must be appended before any others."""
        return shard in self._shard_records

    def append_offsets(self, shard: int, records: OffsetRecords) -> None:
        """Apply the records of a repeated commit and append them as a batch of their own."""
        self.shards[shard].apply(records, self.now)
        partition = self.partitions[self.catalog.topics[OFFSETS_TOPIC].topic_id][shard]
        self._write(partition, partition.append_encoded(records.encoded, len(records.places), self.now))

    @property
    def shards_know_topics(self) -> bool:
        """All that there is to know of them: nothing has changed since they were told."""
        return not self._untold

    def tell_topics(self) -> None:
        """Tell the shards of the topics there are, if they are not what they were: once a turn, and before a heartbeat
        that may need it."""
        names = {}
        for name in self._untold:
            topic = self.catalog.topics.get(name)
            spec = self._spec_of(topic) if topic is not None and not topic.is_internal else None
            if spec != self._topics.by_name.get(name):
                names[name] = spec
        self._untold.clear()
        if not names:
            return
        present = (spec for spec in names.values() if spec is not None)
        self._topics = self._topics.with_changed(names, present, self.metadata_version)
        for shard in range(len(self.shards)):
            self.ask(shard, TopicsChanged(self._topics, tuple(names)))

    def _topic_changed(self, name: str) -> None:
        if self.serves_consumer_groups:
            self._untold[name] = None

    def _spec_of(self, topic: Topic) -> TopicSpec:
        racks = {node.id: node.rack for node in self.nodes}
        known = any(racks.values())
        return TopicSpec(
            topic.topic_id,
            topic.name,
            len(topic.partitions),
            tuple(frozenset(racks.get(r) or "" for r in p.replicas) - {""} for p in topic.partitions) if known else (),
            tuple(racks.get(p.leader) for p in topic.partitions) if known else (),
        )

    # -- producer ids

    PRODUCER_ID_BLOCK = 1000

    def next_producer_id(self) -> int:
        """A producer id never given before, not even by a process that crashed: ids are reserved in durable blocks."""
        if self._next_producer_id >= self.catalog.next_producer_id:
            self._next_producer_id = self.catalog.next_producer_id
            self.decide(producer_ids_record(self._next_producer_id + self.PRODUCER_ID_BLOCK))
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def resume(self, metadata: LogInfo) -> None:
        """After the replay of the metadata log."""
        self.metadata = self._open_metadata(metadata)
        self._untold = dict.fromkeys(self.catalog.topics)
        # What is left of the last block may have been given out before the stop.
        self._next_producer_id = self.catalog.next_producer_id

    def _open_metadata(self, info: LogInfo | None) -> Partition:
        settings = resolve({"cleanup.policy": "compact"}, self.config)
        return Partition(METADATA_LOG, settings, 0, self.storage, self.config, info)

    # -- the turn

    def begin_turn(self, now: Millis) -> None:
        """The last turn's operations are durable by now."""
        self.now = now
        self.fetch_left_bytes = self.config.fetch_turn_max_bytes
        for partition in self._appended:
            partition.committed()
        self._appended.clear()

    def complain(self, complaint: Complaint) -> None:
        """Tell the operator, once a turn."""
        self._complaints[complaint] = None

    def take_complaints(self) -> tuple[Complaint, ...]:
        complaints = tuple(self._complaints)
        self._complaints.clear()
        return complaints

    def lag_of(self, group_id: str, topic: TopicSpec) -> tuple[int, ...]:
        """How many records a group is behind in each partition; all of them where it has committed nothing."""
        committed = self.shards[self.shard_of(group_id)].hard.offsets.get(group_id, {})
        lags = []
        for index, partition in enumerate(self.partitions.get(topic.topic_id, ())):
            value = committed.get((topic.name, index))
            start = partition.start_offset if value is None else max(value.offset, partition.start_offset)
            lags.append(max(partition.high_watermark - start, 0))
        return tuple(lags)

    def _hand_out(self, shard: int, task: Task) -> None:
        if isinstance(task, AssignmentAsked) and task.wants_lag:
            topics = {
                topic_id: replace(topic, lag=self.lag_of(task.group_id, topic))
                for topic_id, topic in task.spec.topics.items()
            }
            task = msgspec.structs.replace(task, spec=replace(task.spec, topics=topics))
        self.tasks.append(HandedOut(shard, task))

    def end_turn(self) -> tuple[Operation, ...]:
        """All that the turn has to make durable: one batch for each log that records were decided for."""
        for shard, records in self._shard_records.items():
            topic = self.catalog.topics[OFFSETS_TOPIC]
            self.append_records(self.partitions[topic.topic_id][shard], tuple(records.values()))
        self._shard_records.clear()
        if self._metadata_records:
            self.append_records(self.metadata, self._metadata_records)
            self._metadata_records.clear()
        operations = tuple(self.operations)
        self.operations.clear()
        return operations
