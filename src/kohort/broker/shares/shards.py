"""The shards of the share coordinator: which one owns a share-partition, and what the group coordinator asks of them.

The topic `__share_group_state` is created when the first member joins a share group. All brokers of the process have
all shards, so the leader of a partition acquires and acknowledges by asking the shard in the same turn.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from kohort.broker.group_shards import GroupShards
from kohort.broker.nodes import Node
from kohort.broker.shares.archive_notes import ArchiveNotes
from kohort.broker.shares.given_up import GivenUp
from kohort.broker.shares.sessions import Session, Sessions
from kohort.broker.topics.catalog import SHARES_TOPIC
from kohort.broker.topics.topic_store import TopicStore
from kohort.broker.turn import ConnectionId, Millis
from kohort.broker.turn_builder import TurnBuilder
from kohort.broker.waits.fetch_waits import FetchWaits
from kohort.config import Config
from kohort.coordinator.events import Effects, Event, Loaded, RequestId
from kohort.coordinator.offsets.sizes import Total
from kohort.coordinator.shard import java_hash, shard_of_hash
from kohort.coordinator.shares.events import (
    Delete,
    DeleteShares,
    Freed,
    Initialize,
    InitializeShares,
    RecordsArchived,
    Release,
    ShareEffect,
    ShareEvent,
    ShareKey,
    WriteSnapshots,
)
from kohort.coordinator.shares.settings import ShareSettings
from kohort.storage.protocol import LogKey

if TYPE_CHECKING:
    from kohort.coordinator.shares.shard import ShareShard

TOPIC_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": "104857600",
}
KEPT_RECORDS = 1_000
"""Records of a shard's log that may stay, besides two for each share-partition, before its beginning is dropped."""
SNAPSHOTS_A_TURN, CELLS_A_TURN = 200, 2_000
"""What one step writes again, at least one share-partition's state."""
RELEASED_AT_ONCE = 500
"""Share-partitions of a session that is over, in one step."""
LONGEST_CACHED = 255
"""Characters of a group's name. Requests may name groups that are longer, and that nobody has checked."""


def _hash_of(group: str, topic_id: bytes) -> int:
    """Java's hash of the beginning of a share-partition's name, which its partitions have in common."""
    topic = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return java_hash(f"{group}:{topic}:")


_cached_hash_of = lru_cache(maxsize=16_384)(_hash_of)


def _shard_of(key: ShareKey, shards: int) -> int:
    """As in Kafka (SharePartitionKey.asCoordinatorKey)."""
    if len(key.group) <= LONGEST_CACHED:
        return _cached_shard_of(key, shards)
    return shard_of_hash(java_hash(str(key.partition), _hash_of(key.group, key.topic_id)), shards)


@lru_cache(maxsize=65_536)
def _cached_shard_of(key: ShareKey, shards: int) -> int:
    return shard_of_hash(java_hash(str(key.partition), _cached_hash_of(key.group, key.topic_id)), shards)


class ShareShards:
    def __init__(
        self,
        config: Config,
        nodes: Sequence[Node],
        topics: TopicStore,
        turn: TurnBuilder,
        groups: GroupShards,
        waits: FetchWaits,
    ) -> None:
        self.shards: list[ShareShard] = []
        """Empty before `__share_group_state` is created."""
        self.is_served = config.group_share_enable
        self.sessions = Sessions(config.group_share_max_share_sessions)
        self._over: list[Session] = []
        """Sessions that are over, whose records are given back in several steps."""
        self.archive_notes = ArchiveNotes(groups, topics)
        self.awaiting: dict[ShareKey, None] = {}
        """The share-partitions with records that await their dead letters, the one that is served first in front."""
        self.given_up = GivenUp()
        self._config = config
        self._nodes = nodes
        self._topics = topics
        self._turn = turn
        self._groups = groups
        self._waits = waits
        self._machines = groups.machines
        self._first = 0
        """The number of the first shard among the machines."""
        self._total, self._size = Total(), Total()
        self._pruned: tuple[int, int, list[ShareKey]] | None = None
        """The shard whose log is pruned, the offset where that began, and the share-partitions without a snapshot
        since."""
        self._next_pruned = 0
        groups.take_share_effects = self.take_effects

    # -- shards

    def create(self) -> None:
        """Create the topic and its shards, unless they are there."""
        if self.shards:
            return
        count = self._config.share_coordinator_state_topic_num_partitions
        factor = min(self._config.share_coordinator_state_topic_replication_factor, len(self._nodes))
        self._topics.create(SHARES_TOPIC, self._topics.place(count, factor), dict(TOPIC_CONFIGS))
        for index in range(count):
            self.add(index)
            self._machines.ask(self._first + index, Loaded())

    def add(self, index: int) -> ShareShard:
        """A shard without state, for its log to be loaded."""
        from kohort.coordinator.shares.shard import ShareShard  # many servers never see a share group

        config = self._config
        shard = ShareShard(
            index,
            self.settings_of,
            config.share_coordinator_snapshot_update_records_per_snapshot,
            self._total,
            config.share_coordinator_state_max_entries,
            self._size,
            config.group_max_total_bytes,
            self.awaiting,
        )
        number = self._machines.add(shard, self._take_effects)
        if not self.shards:
            self._first = number
        assert number == self._first + index == self._first + len(self.shards), "shards follow each other"
        self.shards.append(shard)
        return shard

    def settings_of(self, group: str) -> ShareSettings:
        return self._groups.shards[self._groups.of(group)].settings.of_shares(group)

    def find(self, key: ShareKey) -> ShareShard | None:
        """The shard that owns a share-partition; None while there are no shards."""
        return self.shards[_shard_of(key, len(self.shards))] if self.shards else None

    def coordinator_of(self, key: ShareKey) -> int | None:
        """The id of the broker that leads the shard's log."""
        if not self.shards:
            return None
        return self._topics.catalog.topics[SHARES_TOPIC].partitions[_shard_of(key, len(self.shards))].leader

    def ask(self, key: ShareKey, event: ShareEvent, awaited: RequestId | None = None) -> Any:
        """See `StateMachines.ask`. There must be shards."""
        number = self._first + _shard_of(key, len(self.shards))
        return self._machines.ask(number, cast(Event, event), awaited)

    # -- effects

    def _take_effects(self, number: int, effects: Effects) -> None:
        self.take_effects(effects.shares)

    def take_effects(self, effects: Iterable[ShareEffect]) -> None:
        for effect in effects:
            match effect:
                case Freed():
                    key = effect.key
                    self._waits.share_freed(LogKey(key.topic_id, key.partition), key.group)
                case RecordsArchived() if effect.await_dead_letters:
                    self.given_up.note(effect)
                case RecordsArchived():
                    self.archive_notes.note(effect, self._turn.now)
                case InitializeShares():
                    self.create()
                    for number, keys in self._by_shard(effect.group, effect.topic_id, effect.partitions):
                        event = Initialize(keys, effect.state_epoch, effect.start, anew=effect.anew)
                        self._machines.ask(number, cast(Event, event))
                case DeleteShares() if self.shards:
                    for number, keys in self._by_shard(effect.group, effect.topic_id, effect.partitions):
                        self._machines.ask(number, cast(Event, Delete(keys)))

    def _by_shard(
        self, group: str, topic_id: bytes, partitions: Iterable[int]
    ) -> Iterable[tuple[int, tuple[ShareKey, ...]]]:
        found: dict[int, list[ShareKey]] = {}
        for index in partitions:
            key = ShareKey(group, topic_id, index)
            found.setdefault(self._first + _shard_of(key, len(self.shards)), []).append(key)
        return [(number, tuple(keys)) for number, keys in found.items()]

    # -- sessions

    def close_session(self, session: Session) -> None:
        """The session is over. What its member holds in its partitions is given back with the next steps."""
        self.sessions.drop(session)
        if session.partitions:
            self._over.append(session)

    def connection_closed(self, connection: ConnectionId) -> None:
        for session in self.sessions.of_connection(connection):
            self.close_session(session)
        self.release()

    @property
    def releases(self) -> bool:
        """Sessions that are over still hold records."""
        return bool(self._over)

    def release(self) -> None:
        """A step: give back what sessions that are over hold."""
        left = RELEASED_AT_ONCE
        while self._over and left > 0:
            left -= self._release(self._over[0], left)

    def release_first(self, group: str, member: str) -> bool:
        """One step for a member whose request waits until its ended session is released. False if the member has no
        such session."""
        for session in self._over:
            if session.key.group == group and session.key.member == member:
                self._release(session, RELEASED_AT_ONCE)
                return True
        return False

    def _release(self, session: Session, most: int) -> int:
        """Give back the session's records in up to `most` partitions; returns the number of partitions. The member
        takes no locks between two such steps, because it opens no new session before `release_first` returns False."""
        had = len(session.partitions)
        places = self.sessions.take(session, most)
        of_shard: dict[int, list[ShareKey]] = {}
        for topic_id, partition in places if self.shards else ():
            key = ShareKey(session.key.group, topic_id, partition)
            of_shard.setdefault(self._first + _shard_of(key, len(self.shards)), []).append(key)
        for number, keys in of_shard.items():
            self._machines.ask(number, cast(Event, Release(tuple(keys), session.key.member)))
        if not session.partitions:
            self._over.remove(session)
        return had - len(session.partitions)

    # -- the logs

    @property
    def prunes(self) -> bool:
        return self._pruned is not None

    def prune(self, now: Millis) -> None:
        """A piece of work on one shard's log, once a turn: write the state of its share-partitions again, then drop
        what is before.

        The log is no compacted one, because an update does not replace the one before. What is decided in the meantime
        comes behind that place: an update whose snapshot is dropped counts for nothing, and a snapshot follows it."""
        if not self.shards:
            return
        if self._pruned is None:
            self._next_pruned = (self._next_pruned + 1) % len(self.shards)
            self._begin(self._next_pruned)
            return
        index, offset, keys = self._pruned
        if keys:
            states, some, cells = self.shards[index].states, 0, 0
            while some < min(SNAPSHOTS_A_TURN, len(keys)) and cells < CELLS_A_TURN:
                state = states.get(keys[some])
                cells += len(state.cells) if state is not None else 0
                some += 1
            self._machines.ask(self._first + index, cast(Event, WriteSnapshots(tuple(keys[:some]))))
            del keys[:some]
            return
        partition = self._topics.partition_named(self.shards[index].log)
        self._turn.trim(partition, offset)  # the snapshots are of earlier turns, so they are durable
        self._pruned = None

    def _begin(self, index: int) -> None:
        shard = self.shards[index]
        partition = self._topics.partition_named(shard.log)
        if partition.end_offset - partition.start_offset > KEPT_RECORDS + 2 * len(shard.states):
            self._pruned = index, partition.end_offset, list(shard.states)
