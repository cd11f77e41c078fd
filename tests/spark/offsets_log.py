"""A made-up `__consumer_offsets` log: groups at work, and troubles whose place and time are known.

All of it follows from a seed. `Log.table` has the rows of Spark's Kafka source, `Log.ends` the ends of the topics' logs
over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from kohort.coordinator import records
from kohort.coordinator.events import Record
from kohort.wire.codec import encode
from kohort.wire.embedded import assignment_bytes, encode_subscription
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)

START = 1_760_000_000_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000

Assignment = Mapping[str, Sequence[int]]
"""Partitions by member, of one topic."""


@dataclass(frozen=True)
class Topic:
    """A topic that is written to evenly."""

    name: str
    partitions: int
    per_second: float
    """Records in each partition."""
    begin: int = 100_000

    @property
    def topic_id(self) -> bytes:
        return self.name.encode().ljust(16, b"\0")[:16]

    def end(self, at: np.ndarray | float) -> np.ndarray:
        return (self.begin + np.maximum(np.asarray(at) - START, 0) * self.per_second / 1000).astype(np.int64)


@dataclass
class Log:
    """The log of one partition of `__consumer_offsets`, until it is written."""

    minutes: float
    seed: int = 1
    partition: int = 0
    written: list[tuple[int, Record]] = field(default_factory=list)
    """Instants and records, not yet in order."""
    topics: dict[str, Topic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(self.seed)
        self.stop = START + int(self.minutes * MINUTE)

    def topic(self, name: str, partitions: int, per_second: float) -> Topic:
        self.topics[name] = Topic(name, partitions, per_second)
        return self.topics[name]

    # -- what happens

    def commit(
        self,
        group: str,
        topic: str,
        partition: int,
        at: ArrayLike,
        offsets: ArrayLike,
        *,
        expires: int = -1,
        by: str = "",
        leader_epoch: int = -1,
    ) -> None:
        """Commits of one place: one of them, or many. With a leader epoch they have version 3."""
        for moment, offset in zip(np.atleast_1d(at).tolist(), np.atleast_1d(offsets).tolist(), strict=True):
            value = OffsetCommitValue(
                offset=int(offset),
                leader_epoch=leader_epoch,
                metadata=by,
                commit_timestamp=int(moment),
                expire_timestamp=expires,
            )
            record = records.offset_record(group, topic, partition, value)
            self.note(moment, record if leader_epoch < 0 else Record(record.key, b"\0\3" + encode(value, 3)))

    def note(self, at: float, record: Record) -> None:
        self.written.append((int(at), record))

    def consume(
        self, group: str, topic: Topic, partition: int, since: float, until: float, *, every: float = 5 * SECOND,
        behind: float = 2 * SECOND, speed: float = 1.0, leader_epoch: int = -1,
    ) -> None:  # fmt: skip
        """A consumer that commits at intervals what stood there a moment ago; slower than the topic with `speed`."""
        count = int(max(until - since, 0) // every)
        at = since + (np.arange(count) + self.chance.random(count) * 0.3 + 0.3) * every
        offsets = topic.end(since - behind) + (topic.end(at - behind) - topic.end(since - behind)) * speed
        self.commit(group, topic.name, partition, at, offsets, leader_epoch=leader_epoch)

    def generation(
        self, at: float, group: str, generation: int, topic: Topic, owned: Assignment, *, joined_ms: float = 400,
        instances: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """A classic group's record: after a rebalance, or empty."""
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=(topic.name,)))
        members = tuple(
            MemberMetadata(
                member_id=member,
                group_instance_id=(instances or {}).get(member),
                client_id=member.rpartition("-")[0],
                client_host="/10.0.0.1",
                rebalance_timeout=300_000,
                session_timeout=45_000,
                subscription=subscription,
                assignment=assignment_bytes([(topic.name, tuple(partitions))]),
            )
            for member, partitions in owned.items()
        )
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=generation,
            protocol="range" if members else None,
            leader=members[0].member_id if members else None,
            current_state_timestamp=int(at - joined_ms),
            members=members,
        )
        self.note(at, records.group_record(group, value))

    def working(self, group: str, topic: Topic, owned: Assignment, since: float, until: float, **how: float) -> None:
        """The commits of all members of a group, for a while."""
        for partitions in owned.values():
            for partition in partitions:
                self.consume(group, topic, partition, since, until, **how)

    def healthy(self, group: str, topic: Topic, members: int = 3, **how: float) -> Assignment:
        """A classic group that starts, member by member, and works until the end."""
        names = [f"{group}-client-{n}-{self.seed}{n}" for n in range(members)]
        at = START + 2 * SECOND
        for number in range(members):
            last = shares(names[: number + 1], topic.partitions)
            self.generation(at, group, number + 1, topic, last)
            self.working(group, topic, last, at, at + 20 * SECOND if number + 1 < members else self.stop, **how)
            at += 20 * SECOND
        return last

    def modern(self, group: str, topic: Topic, members: int = 3, **how: float) -> Assignment:
        """A group of the consumer protocol that starts, and gets one more member in the middle of the time."""
        names = [f"{group}-{n}" for n in range(members)]
        owned = shares(names, topic.partitions)
        middle = (START + self.stop) / 2
        self._raise(START + SECOND, group, 1, topic, {}, owned)
        self.working(group, topic, owned, START + 2 * SECOND, middle, **how)
        more = shares([*names, f"{group}-{members}"], topic.partitions)
        self._raise(middle, group, 2, topic, owned, more)
        self.working(group, topic, more, middle + 3 * SECOND, self.stop, **how)
        return more

    def _raise(self, at: float, group: str, epoch: int, topic: Topic, before: Assignment, after: Assignment) -> None:
        for member in after:
            if member not in before:
                value = ConsumerGroupMemberMetadataValue(
                    client_id=f"{member}-client", client_host="/10.0.0.2", subscribed_topic_names=(topic.name,),
                    rebalance_timeout_ms=300_000, classic_member_metadata=None,
                )  # fmt: skip
                self.note(at, records.member_record(group, member, value))
        self.note(at, records.consumer_group_record(group, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=7)))
        target = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=int(at))
        self.note(at + 1, records.target_epoch_record(group, target))
        for step, (member, partitions) in enumerate(after.items()):
            kept = tuple(p for p in before.get(member, ()) if p in partitions)
            gone = tuple(p for p in before.get(member, ()) if p not in partitions)
            if gone:
                self.current(at + 100, group, member, epoch - 1, topic, kept, gone, state=1)
            self.current(at + 500 + 200 * step, group, member, epoch, topic, tuple(partitions), (), state=0)

    def current(
        self, at: float, group: str, member: str, epoch: int, topic: Topic, kept: tuple[int, ...],
        revoking: tuple[int, ...], state: int,
    ) -> None:  # fmt: skip
        def rows(partitions: tuple[int, ...]) -> tuple[CurrentTopicPartitions, ...]:
            return (CurrentTopicPartitions(topic_id=topic.topic_id, partitions=partitions),) if partitions else ()

        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch, previous_member_epoch=epoch - 1, state=state, assigned_partitions=rows(kept),
            partitions_pending_revocation=rows(revoking),
        )  # fmt: skip
        self.note(at, records.current_record(group, member, value))

    # -- troubles

    def storm(self, group: str, topic: Topic, since: float, rebalances: int, every: float = 15 * SECOND) -> None:
        """The same two members come and go."""
        owned = self.healthy_until(group, topic, since)
        names = list(owned)
        for turn in range(rebalances):
            at = since + turn * every
            last = shares(names if turn % 2 else names[:-1], topic.partitions)
            self.generation(at, group, 10 + turn, topic, last)
            self.working(group, topic, last, at + every / 3, at + every)
        at = since + rebalances * every
        self.generation(at, group, 10 + rebalances, topic, owned)
        self.working(group, topic, owned, at, self.stop)

    def healthy_until(self, group: str, topic: Topic, until: float, **how: float) -> Assignment:
        names = [f"{group}-client-{n}-{self.seed}{n}" for n in range(3)]
        owned = shares(names, topic.partitions)
        self.generation(START + SECOND, group, 1, topic, owned)
        self.working(group, topic, owned, START + SECOND, until, **how)
        return owned

    def zombie(self, group: str, topic: Topic, since: float) -> None:
        """The last member is replaced and goes on committing the first partition that it had."""
        owned = self.healthy_until(group, topic, since)
        *others, replaced = owned
        now = shares([*others, f"{group}-client-9-9"], topic.partitions)
        self.generation(since, group, 2, topic, now)
        self.working(group, topic, now, since, self.stop)
        at = since + (np.arange(8) + 1) * 7 * SECOND
        self.commit(group, topic.name, owned[replaced][0], at, topic.end(since - 40 * SECOND) + np.arange(8))

    def sawtooth(self, group: str, topic: Topic, partition: int, since: float) -> None:
        """Two processes commit one partition by turns, from the beginning on."""
        self.healthy(group, topic)
        at = since + np.arange(10) * 11 * SECOND
        self.commit(group, topic.name, partition, at, topic.end(at - 5 * MINUTE))

    def leave(self, group: str, topic: Topic, at: float, generation: int = 90) -> None:
        """Everybody leaves a classic group."""
        self.generation(at, group, generation, topic, {}, joined_ms=0)

    # -- what comes out

    def table(self) -> pa.Table:
        """The log, as Spark's Kafka source gives it."""
        written = sorted(self.written, key=lambda one: one[0])
        count = len(written)
        return pa.table(
            {
                "key": pa.array([record.key for _, record in written], pa.binary()),
                "value": pa.array([record.value for _, record in written], pa.binary()),
                "topic": pa.repeat("__consumer_offsets", count),
                "partition": pa.repeat(pa.scalar(self.partition, pa.int32()), count),
                "offset": pa.array(np.arange(count)),
                "timestamp": pa.array([at * 1000 for at, _ in written], pa.timestamp("us", tz="UTC")),
                "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
            }
        )

    def ends(self) -> pa.Table:
        """Where the topics' logs ended, every half a minute."""
        at = np.arange(START, self.stop + 1, 30 * SECOND)
        rows = [(topic, n) for topic in self.topics.values() for n in range(topic.partitions)]
        return pa.table(
            {
                "topic": pa.array([topic.name for topic, _ in rows for _ in at]),
                "partition": pa.array([n for _, n in rows for _ in at], pa.int32()),
                "at": pa.array(np.tile(at, len(rows)) * 1000, pa.timestamp("us", tz="UTC")),
                "end": pa.array(np.concatenate([topic.end(at) for topic, _ in rows])),
            }
        )


def shares(members: Sequence[str], partitions: int) -> dict[str, list[int]]:
    """Partitions in runs, as the range assignor deals them."""
    runs = np.array_split(np.arange(partitions), len(members))
    return {member: run.tolist() for member, run in zip(members, runs, strict=True)}
