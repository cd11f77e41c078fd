"""A simulated member of a share group: it asks for its assignment, fetches from each leader, and ends what it got.

It accepts, rejects, releases and renews records, or forgets them. Its process ends at any time, with or without its
connections, and begins again under another id; sessions are closed, or lost with a connection. After the healing it
accepts everything, so that the group reads all there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kohort.coordinator.shares.events import ACCEPT, REJECT, RELEASE, RENEW
from kohort.simulator.actors.workload import Paced
from kohort.simulator.plan import JOBS
from kohort.simulator.world.network import Link
from kohort.simulator.world.world import START_MS
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.share_acknowledge import AcknowledgementBatch as AckedBatch
from kohort.wire.schemas.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kohort.wire.schemas.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest

HEARTBEAT_VERSION, SHARE_VERSION = 1, 2
HEARTBEAT_MS = 1_500
Place = tuple[bytes, int]
Range = tuple[int, int]


@dataclass(slots=True)
class Reading:
    """A connection to a leader, and the session on it."""

    link: Link
    epoch: int = 0
    """The epoch of the next request of the session."""
    places: tuple[Place, ...] = ()
    """The share-partitions of the session."""
    asked_at: int = -1
    """When the request was sent that is not answered; -1: there is none."""
    held: list[tuple[Place, Range]] = field(default_factory=list)


class ShareMember(Paced):
    kind = "share"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.group: str = self.options["group"]
        self.lives = 0
        self.is_calm = False
        """The faults are over."""
        self._epoch = 0
        self._beat_at = -1
        self._assigned: tuple[Place, ...] = ()
        self._readings: dict[int, Reading] = {}

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.lives}"

    def calm(self) -> None:
        self.is_calm = True
        if self.faults.duplicate:
            self._new_life(closes=True)  # the answers went to copies of its requests

    def act(self, link: Link) -> None:
        if not self.is_calm and self.random.random() < self.options["restarts"]:
            self._new_life(closes=self.random.random() < 0.6)
        if self._beat_at < 0 or self.world.now - self._beat_at > HEARTBEAT_MS:
            self._beat()
        broker = self.process.broker
        topic = broker.state.topic(JOBS) if broker is not None else None
        if topic is None:
            return
        of_leader: dict[int, list[Place]] = {}
        for place in self._assigned:
            if place[0] == topic.topic_id:
                of_leader.setdefault(topic.partitions[place[1]].leader, []).append(place)
        for leader in sorted({*of_leader, *self._readings}):
            self._read(leader, tuple(of_leader.get(leader, ())))

    def _new_life(self, *, closes: bool) -> None:
        """`closes`: the server notices. Otherwise only the end of the locks gives the records back."""
        self.tell(f"begins again, {'with its' if closes else 'without the end of its'} connections")
        for reading in self._readings.values():
            if closes:
                reading.link.close()
        self._readings.clear()
        self.lives += 1
        self._epoch, self._beat_at, self._assigned = 0, -1, ()

    # -- membership

    def _beat(self) -> None:
        broker = self.process.broker
        if broker is None or not broker.state.shards or self.link is None:
            return
        coordinator = broker.state.coordinator_of(broker.state.shard_of(self.group))
        if self.link.broker_id != coordinator:
            self.link.close()
            self.link = self.connect(coordinator)
        self._beat_at = self.world.now
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=(JOBS,) if self._epoch == 0 else None,
        )
        self.link.ask(request, HEARTBEAT_VERSION, ("beat", self.lives))

    def _answered_beat(self, response: Any) -> None:
        if response.error_code in (25, 110, 69):
            self._epoch = 0
            self._beat_at = -1
        elif not response.error_code:
            self._epoch = response.member_epoch
            if response.assignment is not None:
                topics = response.assignment.topic_partitions
                self._assigned = tuple((topic.topic_id, index) for topic in topics for index in topic.partitions)

    # -- records

    def _read(self, leader: int, places: tuple[Place, ...]) -> None:
        reading = self._readings.get(leader)
        if reading is not None and reading.asked_at >= 0:
            if self.world.now - reading.asked_at < self.options["patience_ms"]:
                return
            reading.link.close()
            del self._readings[leader]
            reading = None
        if reading is None:
            if not places:
                return
            reading = self._readings[leader] = Reading(self.connect(leader))
        acks = self._acks(reading) if reading.epoch > 0 else []
        chance = self.random.random()
        if reading.epoch > 0 and not self.is_calm and chance < 0.03:
            self._ask(reading, self._acknowledgement(acks, -1, renews=True), ("closed", leader))
            reading.epoch = 0
        elif acks and (chance < 0.4 or any(kind == RENEW for _, _, types in acks for kind in types)):
            self._ask(reading, self._acknowledgement(acks, reading.epoch, renews=True), ("acked", leader))
            reading.epoch += 1
        else:
            self._fetch(reading, leader, places, acks)

    def _fetch(
        self, reading: Reading, leader: int, places: tuple[Place, ...], acks: list[tuple[Place, Range, Any]]
    ) -> None:
        known = reading.places if reading.epoch else ()
        rows: dict[bytes, dict[int, list[Any]]] = {}
        for topic_id, index in places:
            if (topic_id, index) not in known:
                rows.setdefault(topic_id, {})[index] = []
        for (topic_id, index), (first, last), types in acks:
            batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            rows.setdefault(topic_id, {}).setdefault(index, []).append(batch)
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in known:
            if (topic_id, index) not in places:
                forgotten.setdefault(topic_id, []).append(index)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=reading.epoch,
            max_wait_ms=self.random.choice((0, 300, 2_000)),
            min_bytes=self.random.choice((0, 1, 1, 1, 200)),
            max_bytes=self.random.choice((100, 10_000)),
            max_records=self.random.choice((1, 3, 100)),
            batch_size=self.random.choice((1, 100)),
            share_acquire_mode=self.random.choice((0, 1)),
            topics=tuple(
                FetchTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        FetchPartition(partition_index=index, acknowledgement_batches=tuple(sorted_batches(batches)))
                        for index, batches in indexes.items()
                    ),
                )
                for topic_id, indexes in rows.items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes)) for topic_id, indexes in forgotten.items()
            ),
        )
        acked = dict.fromkeys(place for place, _, _ in acks if place not in places)
        reading.places = (*places, *acked)
        reading.epoch += 1
        self._ask(reading, request, ("fetched", leader))

    def _ask(self, reading: Reading, request: Any, tag: tuple[str, int]) -> None:
        reading.asked_at = self.world.now
        reading.link.ask(request, SHARE_VERSION, (*tag, self.lives))

    def _acks(self, reading: Reading) -> list[tuple[Place, Range, Any]]:
        """What the member does now with some of what it holds."""
        acks: list[tuple[Place, Range, tuple[int, ...]]] = []
        kept = []
        for place, (first, last) in reading.held:
            fate = 1.0 if self.is_calm else self.random.random()
            if fate < 0.2:
                kept.append((place, (first, last)))
            elif fate < 0.25:
                self.tell(f"forgets {first} to {last}")
            elif fate < 0.35:
                acks.append((place, (first, last), (RENEW,)))
                kept.append((place, (first, last)))
            else:
                choices = (ACCEPT,) if self.is_calm else (ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT)
                alike = fate > 0.6
                types = [self.random.choice(choices) for _ in range(1 if alike else last - first + 1)]
                acks.append((place, (first, last), tuple(types)))
        reading.held = kept
        return sorted(acks)

    def _acknowledgement(
        self, acks: list[tuple[Place, Range, Any]], epoch: int, *, renews: bool
    ) -> ShareAcknowledgeRequest:
        rows: dict[bytes, dict[int, list[Any]]] = {}
        for (topic_id, index), (first, last), types in acks:
            batch = AckedBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            rows.setdefault(topic_id, {}).setdefault(index, []).append(batch)
        return ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=tuple(
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        AcknowledgePartition(partition_index=index, acknowledgement_batches=tuple(batches))
                        for index, batches in indexes.items()
                    ),
                )
                for topic_id, indexes in rows.items()
            ),
        )

    # -- answers

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        what, *about, life = tag
        if life != self.lives:
            return
        if what == "beat":
            self._answered_beat(response)
            return
        reading = self._readings.get(about[0])
        if reading is None or reading.link is not link:
            return
        reading.asked_at = -1
        if response.error_code:
            reading.epoch = 0
        elif what == "fetched":
            for topic in response.responses:
                for row in topic.partitions:
                    place = topic.topic_id, row.partition_index
                    reading.held += [(place, (got.first_offset, got.last_offset)) for got in row.acquired_records]

    def on_cut(self, link: Link) -> None:
        super().on_cut(link)
        for leader, reading in list(self._readings.items()):
            if reading.link is link:
                del self._readings[leader]

    def end(self) -> None:
        for reading in self._readings.values():
            reading.link.close()
        super().end()


def sorted_batches(batches: list[Any]) -> list[Any]:
    return sorted(batches, key=lambda batch: batch.first_offset)


class Feeder(Paced):
    """Produces the records of the share groups."""

    kind = "feeder"

    def act(self, link: Link) -> None:
        broker = self.process.broker
        topic = broker.state.topic(JOBS) if broker is not None else None
        if topic is None:
            return
        index = self.random.randrange(len(topic.partitions))
        if link.broker_id != topic.partitions[index].leader:
            link.close()
            link = self.link = self.connect(topic.partitions[index].leader)
        size = self.random.choice((1, 1, 2, 5, 30))
        records = [NewRecord(None, f"job {n}".encode(), START_MS + self.world.now) for n in range(size)]
        rows = (PartitionProduceData(index=index, records=encode_batch(records)),)
        link.ask(
            ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(TopicProduceData(name=JOBS, partition_data=rows),)), 9
        )
