"""A transaction shard with a clock and a log. Each request is a call that returns the answer as text.

An answer is an error's number, and for ProducerInit and TransactionEnd what the producer uses from now on: "0 1000/1".
Markers wait until `markers()`; `at_once=True` writes them in the step that decides, as a broker does in one turn.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from msgspec.structs import replace

from kohort.coordinator.events import Client, DeadlineReached, Ending, Event, Loaded, Record, RequestId
from kohort.coordinator.transactions.events import (
    AddReply,
    MarkersWritten,
    PartitionsAdded,
    ProducerInit,
    ProducerReply,
    TransactionEnd,
    TransactionEvent,
)
from kohort.coordinator.transactions.records import transaction_record
from kohort.coordinator.transactions.settings import TransactionSettings
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.transaction import Place, Transaction

T0 = Place("t", 0)
T1 = Place("t", 1)
PRODUCER = Client("producer", "/10.0.0.1")


class World:
    def __init__(self, *, version: int = 2, at_once: bool = False, timeout_ms: int = 60_000, **settings: int) -> None:
        self.settings = TransactionSettings(version=version, **settings)
        self.at_once = at_once
        self.timeout_ms = timeout_ms
        self.now = 1_000
        self.log: list[tuple[Record, int]] = []
        self.endings: list[Ending] = []
        """Decided, and without markers."""
        self.markers_of: list[Ending] = []
        """All that were ever decided, in order; repeated after a restart."""
        self.given = count(1_000)
        self._requests = count(1)
        self.shard = self._new_shard()
        self.step(Loaded())

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(0, self.settings, lambda: next(self.given))

    def step(self, event: Event | TransactionEvent) -> Any:
        effects = self.shard.step(event, self.now)
        for record in effects.records:
            self.shard.apply(record, self.now)
            self.log.append((record, self.now))
        self.shard.validate()
        self.endings.extend(effects.endings)
        self.markers_of.extend(effects.endings)
        if self.at_once:
            self.markers()
        replies = [reply.body for reply in effects.replies]
        assert len(replies) <= 1
        return replies[0] if replies else None

    def markers(self) -> None:
        while self.endings:
            ending = self.endings.pop(0)
            self.step(MarkersWritten(ending.transactional_id, ending.producer_id, ending.epoch))

    def restart(self) -> None:
        """A new process: the shard is the fold of the bytes of its log."""
        before = dict(self.shard.ids)
        self.shard = self._new_shard()
        self.endings.clear()
        for record, timestamp in self.log:
            self.shard.apply(Record(record.key, record.value), timestamp)
        assert self.shard.ids == before
        self.step(Loaded())

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while (due := self.shard.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.step(DeadlineReached())
        self.now = end

    def state(self, name: str = "x") -> Transaction:
        return self.shard.ids[name]

    # -- requests

    def _id(self) -> RequestId:
        return RequestId(next(self._requests))

    def init(self, pid: int = -1, epoch: int = -1, name: str = "x", timeout_ms: int | None = None) -> str:
        timeout = self.timeout_ms if timeout_ms is None else timeout_ms
        return _text(self.step(ProducerInit(self._id(), name, timeout, pid, epoch)))

    def add(
        self, pid: int, epoch: int, *places: Place, bumps: bool = True, connection: int = 0, name: str = "x"
    ) -> str:
        event = PartitionsAdded(self._id(), name, pid, epoch, places or (T0,), bumps, connection, PRODUCER)
        return _text(self.step(event))

    def end(
        self,
        pid: int,
        epoch: int,
        committed: bool,
        *,
        bumps: bool,
        connection: int = 0,
        name: str = "x",
        client: Client = PRODUCER,
    ) -> str:
        return _text(self.step(TransactionEnd(self._id(), name, pid, epoch, committed, bumps, connection, client)))

    def commit(
        self, pid: int, epoch: int, *, bumps: bool = True, connection: int = 0, client: Client = PRODUCER
    ) -> str:
        return self.end(pid, epoch, True, bumps=bumps, connection=connection, client=client)

    def abort(self, pid: int, epoch: int, *, bumps: bool = True, connection: int = 0) -> str:
        return self.end(pid, epoch, False, bumps=bumps, connection=connection)

    def at(self, epoch: int) -> int:
        """Let the id "x" be at this epoch, without a transaction. Returns its producer id."""
        assert self.init() == "0 1000/0"
        record = self.log[-1][0]
        assert record.parsed is not None

        moved = transaction_record("x", replace(record.parsed[1], epoch=epoch))
        self.shard.apply(moved, self.now)
        self.log.append((moved, self.now))
        return 1_000


def _text(body: ProducerReply | AddReply) -> str:
    if isinstance(body, ProducerReply) and (body.producer_id, body.epoch) != (-1, -1):
        return f"{int(body.error)} {body.producer_id}/{body.epoch}"
    return str(int(body.error))
