"""The shards of the transaction coordinator: which one owns a transactional id, and which broker answers for it.

The topic `__transaction_state` is created when a client first looks for the coordinator of a transactional id. Its
shards are state machines behind those of the groups. A shard's broker is the leader of its partition, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast, overload

from kohort.broker.group_shards import GroupShards
from kohort.broker.nodes import Node
from kohort.broker.request import RequestContext
from kohort.broker.topics.catalog import TRANSACTIONS_TOPIC
from kohort.broker.topics.topic_store import TopicStore
from kohort.broker.transactions.connections import NewestConnections
from kohort.broker.transactions.endings import Endings
from kohort.broker.turn_builder import TurnBuilder
from kohort.config import Config
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.events import Effects, Event, Loaded, RequestId, Unloaded
from kohort.coordinator.journal.transaction_aborts import TransactionAborts
from kohort.coordinator.offsets.sizes import Total
from kohort.coordinator.shard import partition_for
from kohort.coordinator.transactions.events import (
    AddReply,
    PartitionsAdded,
    ProducerInit,
    ProducerReply,
    TransactionEnd,
    TransactionEvent,
)
from kohort.coordinator.transactions.settings import TransactionSettings
from kohort.coordinator.transactions.transaction import Place
from kohort.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.coordinator.transactions.shard import TransactionShard

TOPIC_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
CACHED_ID = 250
"""Characters of a transactional id whose shard is cached."""

_shard_of = lru_cache(maxsize=16_384)(partition_for)
"""The hash walks the whole id in Python."""


class TransactionShards:
    def __init__(
        self, config: Config, nodes: Sequence[Node], topics: TopicStore, turn: TurnBuilder, groups: GroupShards
    ) -> None:
        self.shards: list[TransactionShard] = []
        """Empty before `__transaction_state` is created."""
        self.aborts = TransactionAborts(config)
        """The journal of transactions."""
        self.endings = Endings(topics, turn, groups, self.aborts)
        self.connections = NewestConnections()
        self._config = config
        self._nodes = nodes
        self._topics = topics
        self._machines = groups.machines
        self._first = 0
        """The number of the first shard among the machines."""
        self.settings = TransactionSettings(
            config.transaction_version,
            config.transactional_id_expiration_ms,
            config.transaction_state_max_bytes,
            lost_to_timeout=config.deviations.lost_to_timeout,
            older_connection=config.deviations.older_connection,
            zombie_init=config.deviations.zombie_init,
        )
        self._total = Total()

    # -- which shard, which broker

    def of(self, transactional_id: str) -> int | None:
        """The index of the shard that owns an id; None while there are no shards."""
        if not self.shards:
            return None
        if len(transactional_id) <= CACHED_ID:
            return _shard_of(transactional_id, len(self.shards))
        # No id is longer than LONGEST_NAME: any shard can refuse it.
        return partition_for(transactional_id[:LONGEST_NAME], len(self.shards))

    def coordinator_of(self, transactional_id: str) -> int | None:
        """The id of the broker that answers for a transactional id; None while there are no shards."""
        index = self.of(transactional_id)
        return None if index is None else self.leader_of(index)

    def leader_of(self, index: int) -> int:
        return self._topics.catalog.topics[TRANSACTIONS_TOPIC].partitions[index].leader

    def create(self) -> None:
        """Create the topic and its shards, unless they are there."""
        if self.shards:
            return
        count = self._config.transaction_state_log_num_partitions
        factor = min(self._config.transaction_state_log_replication_factor, len(self._nodes))
        self._topics.create(TRANSACTIONS_TOPIC, self._topics.place(count, factor), dict(TOPIC_CONFIGS))
        for index in range(count):
            self.add(index)
            self.ask(index, Loaded())

    def add(self, index: int) -> TransactionShard:
        """A shard without state, for its log to be loaded."""
        from kohort.coordinator.transactions.shard import TransactionShard  # many servers never see a transaction

        shard = TransactionShard(index, self.settings, self._topics.next_producer_id, self._total)
        number = self._machines.add(shard, self._take_effects, newest_only=True)
        if not self.shards:
            self._first = number
        assert number == self._first + index == self._first + len(self.shards), "shards follow each other"
        self.shards.append(shard)
        return shard

    def moved(self, partitions: Iterable[int]) -> None:
        """Partitions of the topic have other leaders now."""
        for index in partitions:
            self.endings.forget(self._first + index)
            self.ask(index, Unloaded())
            self.ask(index, Loaded())

    # -- requests

    def ask(self, index: int, event: TransactionEvent | Event, awaited: RequestId | None = None) -> Any:
        """See `StateMachines.ask`. A transaction shard answers at once, so the reply to `awaited` is never None."""
        return self._machines.ask(self._first + index, cast(Event, event), awaited)

    def owner(self, transactional_id: str) -> TransactionShard:
        """The shard that owns an id. There must be shards."""
        index = self.of(transactional_id)
        assert index is not None
        return self.shards[index]

    def unwritten(self, transactional_id: str) -> tuple[tuple[str, int], ...]:
        """The partitions of a decided transaction that have no marker yet."""
        index = self.of(transactional_id)
        return () if index is None else self.endings.unwritten(self._first + index, transactional_id)

    @overload
    def ask_owner(self, event: ProducerInit | TransactionEnd) -> ProducerReply: ...
    @overload
    def ask_owner(self, event: PartitionsAdded) -> AddReply: ...
    def ask_owner(self, event: ProducerInit | TransactionEnd | PartitionsAdded) -> Any:
        """The answer of the shard that owns the event's id. There must be shards."""
        index = self.of(event.transactional_id)
        assert index is not None
        return self.ask(index, event, event.request_id)

    def check(
        self,
        context: RequestContext,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Sequence[tuple[str, int]],
        *,
        adds: bool,
    ) -> ErrorCode:
        """Whether a producer may write to all these partitions (topic, index) in its transaction: NONE if so.

        `adds`: partitions that are not in the transaction are added to it, and the first ones begin it (KIP-890).
        Otherwise TRANSACTION_ABORTABLE (120) says that one is not in it. The codes are the coordinator's own: 14, 49,
        51, 90, 120; 42 for an empty id. Callers translate them for their API and version."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        index = self.of(transactional_id)
        if index is None or len(transactional_id) > LONGEST_NAME:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if adds:
            wanted = tuple(Place(*place) for place in places)
            # The connection does not count: it is the one to a partition's leader, and EndTxn comes on another.
            event = PartitionsAdded(context.request_id, transactional_id, producer_id, epoch, wanted, bumps=True)
            return self.ask_owner(event).error
        shard = self.shards[index]
        for place in places:
            if error := shard.verify(transactional_id, producer_id, epoch, Place(*place)):
                return error
        return ErrorCode.NONE

    def _take_effects(self, number: int, effects: Effects) -> None:
        shard = self.shards[number - self._first]
        for ending in effects.endings:
            self.endings.begin(number, ending, shard.ids[ending.transactional_id].client_version)
