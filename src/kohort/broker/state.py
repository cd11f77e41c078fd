"""The state that handlers see: configuration, nodes, topics, shards, and the turn that is being built.

topics      topics and their partitions; each operation is a record of the metadata log (topics/topic_store.py)
groups      the shards of the group coordinator (group_shards.py)
transactions  the shards of the transaction coordinator (transactions/shards.py)
shares      the shards of share groups' state, and share sessions (shares/shards.py)
machines    all state machines: `ask` lets one step and collects its records (machines.py)
turn        what the turn makes durable and releases (turn_builder.py)
"""

from __future__ import annotations

import base64
import random as random_module
from collections.abc import Mapping, Sequence
from typing import Any

from kohort.broker.authorization import AllowAll, Authorizer
from kohort.broker.group_shards import GroupShards
from kohort.broker.lag.commit_windows import CommitWindows
from kohort.broker.lag.lag_times import LagTimes
from kohort.broker.logs.partition import Partition
from kohort.broker.logs.tails import Tails
from kohort.broker.nodes import Node, NodesByListener
from kohort.broker.quotas.entities import Entity
from kohort.broker.quotas.meters import Meters
from kohort.broker.security.acls import Acl
from kohort.broker.security.audit import Audit
from kohort.broker.security.authorizer import authorizer_of
from kohort.broker.security.listener_keys import ListenerKeys
from kohort.broker.shares.shards import ShareShards
from kohort.broker.sharing.slots import Slots
from kohort.broker.topics.catalog import OFFSETS_TOPIC, Topic, acl_record, quota_record
from kohort.broker.topics.topic_store import TopicStore
from kohort.broker.transactions.shards import TransactionShards
from kohort.broker.turn import Millis, Release, Turn
from kohort.broker.turn_builder import TurnBuilder
from kohort.broker.waits.fetch_waits import FetchWaits
from kohort.broker.waits.reads import MEMORY_SHARE, Reads
from kohort.config import SETTINGS, Config
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignor
from kohort.coordinator.events import Event, RequestAbandoned, RequestId
from kohort.storage.protocol import Storage
from kohort.wire.known_clients import with_bindings

LOG_LEVELS: tuple[str, ...] = SETTINGS["log.level"].metadata["one_of"]
"""The most detailed one first."""


def _held_clients(config: Config) -> frozenset[str]:
    if not config.group_heartbeat_hold_enable:
        return frozenset()
    names = frozenset(name.strip() for name in config.group_heartbeat_hold_clients.split(",")) - {""}
    return with_bindings(names)


class RequestCount:
    __slots__ = ("handled",)

    def __init__(self) -> None:
        self.handled = 0


class BrokerState:
    def __init__(
        self,
        config: Config,
        storage: Storage,
        nodes: Sequence[Node],
        random: random_module.Random,
        now: Millis,
        assignors: Mapping[str, Assignor] = BUILT_IN,
        *,
        parks_reads: bool = False,
        slots: Slots | None = None,
    ) -> None:
        self.slots = slots
        """Of nodes that serve at once; None if this process has all data."""
        self.config = config
        self.storage = storage
        self.nodes = tuple(nodes)
        self.node_by_id = {node.id: node for node in self.nodes}
        self.nodes_by_listener = NodesByListener(self.nodes)
        self.absent: frozenset[int] = frozenset()
        """The brokers that are away (`moves.set_presence`). Soft state: after a restart, all are present."""
        self.random = random
        self.assignors = assignors
        self.advertised_apis: tuple[Any, ...] = ()
        self.requests: dict[bytes, RequestCount] = {}
        """Of each API and version; these two are the key, as in a request's header."""
        self.errors: Any = None
        """Counts the errors of answers (metrics/error_counts.py); None without /metrics."""
        self.listener_keys: ListenerKeys | None = None
        """None if no listener has TLS."""
        self.held_clients = _held_clients(config)
        """Software names of the clients whose heartbeats may be held."""
        self.late_ms = config.log_slow_request_ms // 2 or 1 << 62
        """A request that has waited for so long may be slow."""
        self.most_answer_bytes = config.queued_max_response_bytes // 4
        """The size of the largest answer that is made in steps."""
        self.fetch_waits = FetchWaits()
        self.lag_times = LagTimes(storage)
        self.turn = TurnBuilder(now, self.fetch_waits, config.fetch_turn_max_bytes)
        self.reads = Reads(config.queued_max_response_bytes // MEMORY_SHARE)
        self.tails = Tails(config.log_tail_max_bytes) if parks_reads else None
        """None if storage is in memory and is read at once."""
        self.topics = TopicStore(config, storage, self.nodes, random, self.turn, self.fetch_waits, self.tails, slots)
        self.catalog = self.topics.catalog
        self.acl_authorizer = authorizer_of(config, self.catalog.acls)
        """None: everything is allowed."""
        self.authorizer: Authorizer = self.acl_authorizer or AllowAll()
        self.audit = Audit()
        self.meters = Meters(self.catalog.quotas, config)
        self.rules_version = self.authorizer.version
        """The version of the authorizer's rules, which the cached answers must have."""
        self.checked_version = self.rules_version
        """The version at which the parked requests were checked last."""
        self.groups = GroupShards(config, self.nodes, self.topics, self.turn, assignors)
        self.shards = self.groups.shards
        self.commit_windows = CommitWindows(self.shards, self.lag_times)
        self.machines = self.groups.machines
        self.transactions = TransactionShards(config, self.nodes, self.topics, self.turn, self.groups)
        self.shares = ShareShards(config, self.nodes, self.topics, self.turn, self.groups, self.fetch_waits)
        self.journal = self.groups.journal
        self.serves_consumer_groups = self.groups.serves_consumer_groups
        self.serves = self.serves_consumer_groups, self.shares.is_served, slots is None
        """Consumer groups, share groups, transactions."""

    def count_of(self, frame: bytes) -> RequestCount:
        """The count of the requests with this API and version, which are served."""
        api = frame[:4]
        count = self.requests.get(api)
        if count is None:
            count = self.requests[api] = RequestCount()
        return count

    @property
    def now(self) -> Millis:
        """The instant of the turn."""
        return self.turn.now

    @property
    def controller_id(self) -> int:
        return self.present_nodes[0].id if self.slots is None else self.slots.controller

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """The nodes that serve at once, this one among them."""
        self.nodes = self.topics.nodes = self.groups.nodes = tuple(nodes)
        self.node_by_id = {node.id: node for node in self.nodes}
        self.nodes_by_listener = NodesByListener(self.nodes)

    @property
    def present_nodes(self) -> tuple[Node, ...]:
        """The brokers that clients may learn of."""
        return tuple(node for node in self.nodes if node.id not in self.absent) if self.absent else self.nodes

    def nodes_at(self, listener: str) -> tuple[Node, ...]:
        """The brokers that the clients of a listener may learn of, with the addresses of that listener."""
        nodes = self.nodes_by_listener.at(listener).values()
        return tuple(node for node in nodes if node.id not in self.absent)

    def node_at(self, listener: str, broker_id: int) -> Node | None:
        """A broker with its address of a listener; None if it has none."""
        return self.nodes_by_listener.at(listener).get(broker_id)

    @property
    def log_level(self) -> str:
        """The level of the server's log: the most detailed one of its brokers."""
        return min((self.catalog.config_of(node.id).log_level for node in self.nodes), key=LOG_LEVELS.index)

    def configure_broker(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace what is set on a broker, or, with the name "", on all brokers."""
        before = self.log_level
        self.topics.configure_broker(broker, configs)
        if self.log_level != before:
            self.turn.log_level = self.log_level

    def create_acl(self, acl: Acl) -> None:
        acl_id = base64.urlsafe_b64encode(self.random.randbytes(16)).decode().rstrip("=")
        self.topics.decide(acl_record(acl_id, acl))
        self.rules_version = self.authorizer.version

    def delete_acl(self, acl_id: str) -> Acl | None:
        """Returns the ACL; None if another request has deleted it."""
        acl = self.catalog.acls.by_id.get(acl_id)
        if acl is not None:
            self.topics.decide(acl_record(acl_id, None))
            self.rules_version = self.authorizer.version
        return acl

    def set_quotas(self, entity: Entity, values: Mapping[str, float]) -> None:
        """Replace the quotas of an entity; none removes it."""
        self.topics.decide(quota_record(entity, values))

    def topic(self, name: str) -> Topic | None:
        return self.catalog.topics.get(name)

    def partition(self, topic: Topic, index: int) -> Partition | None:
        return self.topics.partition(topic, index)

    def delete_topics(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self.topics.delete(topic)
        self.groups.topics_deleted(tuple(topic.name for topic in topics))

    def shard_of(self, group_id: str) -> int:
        return self.groups.of(group_id)

    def coordinator_of(self, shard: int) -> int:
        """The id of the broker that answers for a shard: the leader of its offsets partition."""
        return self.catalog.topics[OFFSETS_TOPIC].partitions[shard].leader

    def ask(self, machine: int, event: Event, *, awaited: RequestId | None = None) -> Any:
        """See `StateMachines.ask`."""
        return self.machines.ask(machine, event, awaited)

    def abandon(self, request_id: RequestId, shard: int | None) -> None:
        """The client of a parked request has gone. `shard`: the one that holds it; None for a fetch."""
        if shard is not None:
            self.ask(shard, RequestAbandoned(request_id))
        else:
            self.fetch_waits.abandon(request_id)
            self.reads.remove(request_id)

    def end_turn(self, releases: tuple[Release, ...]) -> Turn:
        self.rules_version = self.authorizer.version
        self.machines.append_decided()
        self.topics.append_decided()
        self.turn.reads = self.reads.hand_out()
        return self.turn.take(releases)
