"""The observer that measures the coordinator's requests, records and processor time.

Requests, records and bytes happen in virtual time and are equal for equal seeds. `cpu_ms` is real time of this process
in `Broker.step`: from the frames of a turn to its answers' bytes (decoding, groups, records, encoding), without
sockets, disk and the simulation itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kohort.broker.broker import Broker
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.broker.turn import Arrived, ConnectionId, Release, Send, Turn
from kohort.simulator.checks.beliefs import BelievingConsumer
from kohort.simulator.checks.onlooker import decoded
from kohort.simulator.world.network import Answer, Asked, Link
from kohort.storage.protocol import Append

HEARTBEATS = ("Heartbeat", "ConsumerGroupHeartbeat")


@dataclass(frozen=True, slots=True)
class Load:
    requests: int
    heartbeats: int
    records: int
    """Appended to `__consumer_offsets`; the journal's do not count."""
    record_bytes: int
    """Of their batches."""
    sent_bytes: int
    cpu_ms: float


class Meter:
    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._records = self._record_bytes = self._sent_bytes = 0
        self._cpu_ns = 0
        self._step_began = 0
        self._broker: Broker
        self._links: Mapping[ConnectionId, Link]

    def load(self) -> Load:
        """Since the last `reset`."""
        return Load(
            self.requests.total(),
            sum(self.requests[name] for name in HEARTBEATS),
            self._records,
            self._record_bytes,
            self._sent_bytes,
            round(self._cpu_ns / 1e6, 3),
        )

    def reset(self) -> None:
        self.requests.clear()
        self._records = self._record_bytes = self._sent_bytes = self._cpu_ns = 0

    # -- as an onlooker

    def started(self, broker: Broker, links: Mapping[ConnectionId, Link]) -> None:
        self._broker = broker
        self._links = links

    def took(self, consumer: BelievingConsumer) -> None:
        pass

    def died(self) -> None:
        pass

    def asked(self, asked: Asked) -> None:
        self.requests[type(asked.request).__name__.removesuffix("Request")] += 1

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        self._step_began = time.thread_time_ns()

    def decided(self, turn: Turn) -> None:
        self._cpu_ns += time.thread_time_ns() - self._step_began

    def committed(self, turn: Turn) -> None:
        topic = self._broker.state.catalog.topics.get(OFFSETS_TOPIC)
        for operation in turn.operations:
            if isinstance(operation, Append) and topic is not None and operation.log.topic_id == topic.topic_id:
                for batch in operation.batches:
                    self._records += batch.last_offset - batch.base_offset + 1
                    self._record_bytes += len(batch.data)

    def answers(self, releases: Iterable[Release]) -> list[Answer]:
        found = []
        for release in releases:
            if not isinstance(release, Send):
                continue
            data = release.whole
            self._sent_bytes += len(data)
            link = self._links.get(release.connection)
            if link is not None:
                asked = link.outstanding.popleft()
                found.append((link, asked, decoded(asked, data[4:])))
        return found

    def turn_ends(self, turn: Turn) -> None:
        pass
