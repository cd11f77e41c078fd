"""The shards of the group coordinator: which one owns a group, which broker answers for it, what the shards must know.

The shards are the first of the broker's state machines, so a shard's index is its number there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from kohort.broker.authorization import ANONYMOUS
from kohort.broker.logs.partition import Appended
from kohort.broker.machines import StateMachines
from kohort.broker.nodes import Node
from kohort.broker.security.audit import listed, printable
from kohort.broker.topics.catalog import Topic, group_record
from kohort.broker.topics.topic_store import TopicStore
from kohort.broker.turn import HandedOut
from kohort.broker.turn_builder import TurnBuilder
from kohort.config import Config
from kohort.coordinator.assignors.spec import Assignor, GroupSpec, TopicSpec
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.events import (
    AssignmentAsked,
    Effects,
    GroupConfigsChanged,
    JournalEntry,
    Task,
    TopicOffsetsDeleted,
    TopicsChanged,
    TopicsDeleted,
)
from kohort.coordinator.journal.journal import Journal
from kohort.coordinator.journal.story import cut
from kohort.coordinator.member_bytes import MemberBytes
from kohort.coordinator.offsets.sizes import Total
from kohort.coordinator.records import OffsetRecords
from kohort.coordinator.settings.group_settings import HOLD
from kohort.coordinator.shard import Shard, partition_for
from kohort.coordinator.topics import Topics
from kohort.wire.markers import Marker

_shard_of = lru_cache(maxsize=65_536)(partition_for)
"""The hash walks the whole id in Python; the same ids come with every heartbeat."""
LOGGED = frozenset(
    (
        "member joined",
        "static member returned",
        "member left",
        "member removed",
        "session expired",
        "group is stable",
        "group is empty",
        "group upgraded",
        "group downgraded",
        "group deleted",
        "offsets changed",
    )
)
"""Entries of the journal that are lines in the server's log."""
ASKED_FOR = "asked for"
"""The cause of an entry about a group that DeleteGroups has deleted; the line of the audit says who asked."""
SEARCHED, DELETED = 10_000, 200
"""How many offsets one piece of a deletion may search, and delete. A piece takes about three milliseconds."""
CACHED_GROUP_ID = 250
"""Characters of a group id whose shard is cached: a request can carry ids of a megabyte."""


class GroupShards:
    def __init__(
        self,
        config: Config,
        nodes: Sequence[Node],
        topics: TopicStore,
        turn: TurnBuilder,
        assignors: Mapping[str, Assignor],
    ) -> None:
        self.shards: list[Shard] = []
        self.journal = Journal(config)
        """The stories of the groups, folded from the shards' effects."""
        self.machines = StateMachines(turn, topics)
        protocols = config.group_coordinator_rebalance_protocols.split(",")
        self.serves_consumer_groups = "consumer" in (name.strip() for name in protocols)
        self.needs_topics = self.serves_consumer_groups or config.group_share_enable
        self._config = config
        self.nodes = nodes
        self._topics = topics
        self._turn = turn
        self._assignors = assignors
        self._offsets = Total()
        self._pending: dict[int, int] = {}
        """The number of offsets that each producer has pending."""
        self._members = MemberBytes(self._held_bytes, config.group_max_total_bytes)
        self._told = Topics()
        """The topics that the shards know."""
        self._deletions: list[tuple[frozenset[str], Generator[bool, None, None]]] = []
        """Offsets of deleted topics that are deleted in pieces."""
        self.take_share_effects: Callable[[tuple[Any, ...]], None] | None = None
        """Takes what share groups have for their share-partitions (shares/shards.py)."""
        topics.is_created = self._is_created

    def add(self, index: int) -> Shard:
        """A shard without state, for its log to be loaded."""
        shard = self._new(index)
        number = self.machines.add(shard, self._take_effects)
        assert number == index, "shards come first"
        self.shards.append(shard)
        return shard

    def replace(self, index: int) -> Shard:
        """Replace a shard by one without state, because this node serves other groups now. The new shard knows the
        topics and the configs of groups; it has not received `Loaded`."""
        former = self.shards[index]
        self._offsets.bytes -= sum(former.hard.offset_bytes.values()) + former.hard.pending.bytes
        shard = self._new(index)
        self.shards[index] = shard
        self.machines.replace(index, shard)
        self.machines.ask(index, TopicsChanged(self._told, tuple(self._told.by_name)))
        for group_id, configs in self._topics.catalog.group_configs.items():
            if self.of(group_id) == index:
                self.machines.ask(index, GroupConfigsChanged(group_id, configs))
        return shard

    def _new(self, index: int) -> Shard:
        shard = Shard(index, self._config, self._assignors)
        shard.running.member_bytes = self._members
        shard.hard.total = self._offsets
        shard.hard.pending.counts = self._pending
        return shard

    def _held_bytes(self) -> int:
        return sum(shard.running.held_bytes for shard in self.shards)

    def of(self, group_id: str) -> int:
        """The index of the shard that owns a group."""
        if len(group_id) <= CACHED_GROUP_ID:
            return _shard_of(group_id, len(self.shards))
        # No group has a name beyond LONGEST_NAME: any shard can say so.
        return partition_for(group_id[:LONGEST_NAME], len(self.shards))

    def configure(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Give a group these configs and no others. The group need not exist."""
        self._topics.decide(group_record(group_id, configs))
        self.machines.ask(self.of(group_id), GroupConfigsChanged(group_id, configs))

    def append_offsets(self, index: int, records: OffsetRecords) -> None:
        """Apply the records of a repeated commit and append them as a batch of their own."""
        shard, turn = self.shards[index], self._turn
        shard.apply(records, turn.now)
        partition = self._topics.partition_named(shard.log)
        turn.write(partition, partition.append_encoded(records.encoded, len(records.places), turn.now))

    def pending_offsets(self, producer_id: int) -> int:
        """How many offsets the producer's transaction has, in all groups."""
        return self._pending.get(producer_id, 0)

    def end_transaction(self, index: int, marker: Marker, version: int = 0) -> Appended:
        """End a producer's transaction in the shard's log: its offsets are committed or dropped, for the requests that
        follow in this turn too. `version`: see `Partition.append_marker`. A refused marker changes nothing."""
        partition = self.machines.flush(index)
        appended = self._turn.append_marker(partition, marker, version)
        if not appended.error:
            self.shards[index].apply(marker, self._turn.now)
        return appended

    # -- what a step's effects hold besides records and replies

    def _take_effects(self, index: int, effects: Effects) -> None:
        if effects.journal:
            self.journal.tell(effects.journal, self._turn.now)
            for entry in effects.journal:
                if entry.what in LOGGED and (entry.what != "group deleted" or entry.cause != ASKED_FOR):
                    self._log(entry)
        for task in effects.tasks:
            self._hand_out(index, task)
        for group_id in effects.holds_over if self._topics.may_decide else ():
            configs = self._topics.catalog.group_configs.get(group_id, {})
            self.configure(group_id, {name: text for name, text in configs.items() if name not in HOLD})
        if effects.shares and self.take_share_effects is not None:
            self.take_share_effects(effects.shares)

    def _log(self, entry: JournalEntry) -> None:
        """A line in the server's log."""
        group = cut(entry.group)
        match entry.what:
            case "group is stable":
                generation, members = entry.generation_id, len(entry.members)
                self._turn.tell(entry.what, group=group, generation=generation, members=members)
            case "group is empty":
                self._turn.tell(entry.what, group=group, generation=entry.generation_id)
            case "offsets changed":
                if entry.changes:  # none: a consumer without a group goes on to commit
                    self._log_offsets(group, entry)
            case _:
                self._turn.tell(
                    entry.what,
                    group=group,
                    member_id=cut(entry.member_id),
                    client_id=cut(entry.client_id),
                    host=entry.host,
                    why=cut(entry.cause),
                )

    def _log_offsets(self, group: str, entry: JournalEntry) -> None:
        """A line of the audit, as those of `change_log`: a reset is a commit from outside of a live group."""

        def told(change: tuple[str, int, int, int]) -> str:
            topic, index, before, after = change
            return f"{topic}-{index}: {'none' if before < 0 else before} -> {after}"

        self._turn.tell(
            "offsets set",
            group=printable(group),
            partitions=len(entry.changes),
            offsets=printable(listed(entry.changes, told)),
            by_principal=printable(entry.principal or str(ANONYMOUS)),
            by_client_id=printable(entry.client_id),
            by_host=entry.host,
        )

    def _hand_out(self, index: int, task: Task) -> None:
        if isinstance(task, AssignmentAsked) and task.wants_lag:
            topics = {
                topic_id: replace(topic, lag=self._lag_of(task.group_id, topic))
                for topic_id, topic in task.group.topics.items()
            }
            change = replace if isinstance(task.group, GroupSpec) else msgspec.structs.replace
            task = msgspec.structs.replace(task, group=change(task.group, topics=topics))
        self._turn.tasks.append(HandedOut(index, task))

    def _lag_of(self, group_id: str, topic: TopicSpec) -> tuple[int, ...]:
        """The group's lag in each partition, in records; all records of a partition without a committed offset."""
        committed = self.shards[self.of(group_id)].hard.offsets.get(group_id, {})
        lags = []
        for index, partition in enumerate(self._topics.partitions.get(topic.topic_id, ())):
            value = committed.get((topic.name, index))
            start = partition.start_offset if value is None else max(value.offset, partition.start_offset)
            lags.append(max(partition.high_watermark - start, 0))
        return tuple(lags)

    # -- topics

    def topics_deleted(self, names: tuple[str, ...]) -> None:
        """Delete the offsets of these topics, which are gone. If that is much work, `delete_offsets` does it in pieces.
        Nobody commits offsets of a topic that is not there."""
        holders = [
            (index, group_id) for index, shard in enumerate(self.shards) for group_id in shard.hard.groups_of(names)
        ]
        searched = sum(len(self.shards[index].hard.offsets.get(group_id, ())) for index, group_id in holders)
        deleted = sum(shard.hard.count_of(names) for shard in self.shards)
        if searched > SEARCHED or deleted > DELETED:
            self._deletions.append((frozenset(names), self._delete_in_pieces(names, holders)))
        else:
            for index in dict.fromkeys(index for index, _ in holders):
                self.machines.ask(index, TopicsDeleted(names))

    @property
    def deletes_offsets(self) -> bool:
        """Some offsets of deleted topics are not deleted yet."""
        return bool(self._deletions)

    def deletes_offsets_of(self, names: Collection[str]) -> bool:
        return any(not gone.isdisjoint(names) for gone, _ in self._deletions)

    def delete_offsets(self) -> None:
        """The next piece of a deletion under way."""
        if self._deletions and next(self._deletions[0][1], None) is None:
            del self._deletions[0]

    def _is_created(self, name: str) -> None:
        """A topic with the name of a deleted one must not find its offsets. What is left of the deletion is one step,
        which is long, and rare."""
        while self.deletes_offsets_of((name,)):
            self.delete_offsets()

    def _delete_in_pieces(self, names: tuple[str, ...], holders: list[tuple[int, str]]) -> Generator[bool, None, None]:
        gone = frozenset(names)
        searched = deleted = 0
        for index, group_id in holders:
            shard = self.shards[index]
            found: list[tuple[str, int]] = []
            total, topics = 0, set()
            for place in shard.hard.places(group_id):
                searched += 1
                if place[0] in gone:
                    deleted += 1
                    total += 1
                    found.append(place)
                    topics.add(place[0])
                if (deleted == DELETED or searched == SEARCHED) and self.shards[index] is shard:
                    self.machines.ask(index, TopicOffsetsDeleted(group_id, tuple(found), (), 0))
                    found = []
                    searched = deleted = 0
                    yield True
            if self.shards[index] is shard:  # not another node's meanwhile
                self.machines.ask(index, TopicOffsetsDeleted(group_id, tuple(found), tuple(sorted(topics)), total))

    @property
    def know_topics(self) -> bool:
        """No topic has changed since the shards last got the topics."""
        return not self._topics.changed

    def tell_topics(self, *, at_start: bool = False) -> None:
        """Tell the shards which topics have changed: once a turn, and before a heartbeat that may need it."""
        changed = self._topics.changed
        if not changed:
            return
        if not self.needs_topics and not at_start:
            changed.clear()
            return
        names = {}
        for name in changed:
            topic = self._topics.catalog.topics.get(name)
            spec = self._spec_of(topic) if topic is not None and not topic.is_internal else None
            if spec != self._told.by_name.get(name):
                names[name] = spec
        changed.clear()
        if not names:
            return
        present = (spec for spec in names.values() if spec is not None)
        self._told = self._told.with_changed(names, present, self._topics.version)
        for index in range(len(self.shards)):
            self.machines.ask(index, TopicsChanged(self._told, tuple(names)))

    def _spec_of(self, topic: Topic) -> TopicSpec:
        upstream = self._topics.catalog.upstream if topic.is_followed else None
        racks = {node.id: node.rack for node in (self.nodes if upstream is None else upstream.brokers)}
        known = any(racks.values())
        return TopicSpec(
            topic.topic_id,
            topic.name,
            len(topic.partitions),
            tuple(frozenset(racks.get(r) or "" for r in p.replicas) - {""} for p in topic.partitions) if known else (),
            tuple(racks.get(p.leader) for p in topic.partitions) if known else (),
        )
