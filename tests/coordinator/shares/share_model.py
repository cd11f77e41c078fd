"""A share-partition as simple as can be: one entry for each offset. It knows nothing of ranges, records or windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kohort.coordinator.events import DeadlineReached, Record, RequestId
from kohort.coordinator.shares.events import (
    AckBatch,
    Acknowledge,
    Acquire,
    Acquired,
    Initialize,
    Load,
    Release,
    ShareKey,
    Span,
)
from kohort.coordinator.shares.settings import ShareSettings
from kohort.coordinator.shares.shard import ShareShard

KEY = ShareKey("g", bytes(range(16)), 0)
ME = RequestId(1)


@dataclass
class World:
    """A shard with its log, which is applied as the broker applies it."""

    settings: ShareSettings = field(default_factory=ShareSettings)
    log: list[Record] = field(default_factory=list)
    now: int = 1_000
    per_snapshot: int = 500

    def __post_init__(self) -> None:
        self.shard = self.empty()

    def empty(self) -> ShareShard:
        return ShareShard(0, lambda group: self.settings, self.per_snapshot)

    def ask(self, event: Any) -> Any:
        effects = self.shard.step(event, self.now)
        for record in effects.records:
            assert isinstance(record, Record)
            self.shard.apply(record, self.now)
            self.log.append(Record(record.key, record.value))
        self.shard.validate()
        return next((reply.body for reply in effects.replies if reply.request_id == ME), None)

    def begin(self, start: int = 0) -> None:
        self.ask(Initialize((KEY,), 1))
        self.load(initial=start)

    def load(self, log_start: int = 0, initial: int = 0, leader_epoch: int = 0) -> None:
        self.ask(Load(KEY, leader_epoch, log_start, initial))

    def acquire(self, member: str, spans: Any, most: int = 500, size: int = 500, mode: int = 0) -> Any:
        """`spans`: those of the log; what lies before the offset that the member reads from is not read."""
        offset = self.shard.served[KEY].fetch_offset()
        read = tuple(Span(*span) for span in spans if span[1] >= offset)
        answer: Acquired = self.ask(Acquire(KEY, member, offset, read, most, size, mode, ME))
        return list(answer.ranges)

    def ack(self, member: str, *batches: Any) -> int:
        """Batches: first, last, types."""
        named = tuple(AckBatch(first, last, tuple(types)) for first, last, *types in batches)
        return int(self.ask(Acknowledge(KEY, member, named, ME)))

    def release(self, member: str) -> None:
        self.ask(Release((KEY,), member))

    def pass_time(self, by: int) -> None:
        self.now += by
        while (due := self.shard.next_deadline()) is not None and due <= self.now:
            self.ask(DeadlineReached())

    def replayed(self, records: list[Record] | None = None) -> ShareShard:
        shard = self.empty()
        for record in self.log if records is None else records:
            shard.apply(record, self.now)
        return shard

    def restart(self) -> None:
        self.shard = self.replayed()
        self.load()

    @property
    def start(self) -> int:
        return self.shard.states[KEY].start

    @property
    def cells(self) -> list[tuple[int, int, int, int]]:
        return self.shard.states[KEY].cells
