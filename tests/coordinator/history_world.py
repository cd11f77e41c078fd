"""The common part of the worlds of random histories: a shard, its log, turns, passing time, and a journal.

Steps are gathered into turns, as the broker does: records become durable and replies leave together, at the turn's end.
A crash loses both, and every parked request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kohort.config import Config
from kohort.coordinator.classic.group import Phase
from kohort.coordinator.events import (
    AnswerHeld,
    Client,
    DeadlineReached,
    Effects,
    Event,
    ExpireOffsets,
    GroupRequested,
    Loaded,
    Record,
    Reply,
    RequestAbandoned,
    RequestId,
    Unloaded,
)
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.journal.journal import Journal
from kohort.coordinator.journal.story import Story
from kohort.coordinator.records import parse
from kohort.coordinator.shard import DEADLINES, Shard
from kohort.wire.markers import Marker
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUPS = ("g", "h")
CLIENTS = ("a", "b", "c", "s", "t")
"""s and t are static members."""
PRODUCERS = (1, 2, 3)
"""The ids of producers with transactions."""


def histories(examples: int) -> settings:
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
    )


def act(what: str, *arguments: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """A call of a world's method. A tuple or string stands for any of its values."""
    drawn = [given if isinstance(given, st.SearchStrategy) else st.sampled_from(given) for given in arguments]
    return st.tuples(st.just(what), *drawn)


def some(most: int, least: int = 1) -> st.SearchStrategy[tuple[str, ...]]:
    """So many of the clients."""
    return st.lists(st.sampled_from(CLIENTS), min_size=least, max_size=most, unique=True).map(tuple)


class ReplayedLog:
    """A log that grows, replayed record by record, and what compaction leaves of it."""

    def __init__(self) -> None:
        self.records: list[Record | Marker] = []
        self.state = HardState()
        self.compacted: dict[bytes, tuple[int, Record]] = {}
        """The newest record of each key, apart from those of open and aborted transactions, and its offset."""
        self.open: dict[int, dict[bytes, tuple[int, Record]]] = {}
        """The newest records of open transactions, by producer."""
        self.began: dict[int, int] = {}
        """The offset of each open transaction's first record."""
        self.checked = 0

    def extend(self, written: Iterable[Record | Marker]) -> None:
        for each in written:
            at = len(self.records)
            record = each
            if isinstance(each, Record):
                plain = Record(each.key, each.value, producer_id=each.producer_id)
                record = Record(plain.key, plain.value, parse(plain), plain.producer_id)
            self.records.append(record)
            self.state.apply(record)
            if isinstance(record, Marker):
                self._end(record)
            elif record.producer_id >= 0:
                self.open.setdefault(record.producer_id, {})[record.key] = (at, record)
                self.began.setdefault(record.producer_id, at)
            else:
                self.compacted[record.key] = (at, record)
                if record.value is None:
                    for records in self.open.values():
                        records.pop(record.key, None)

    def _end(self, marker: Marker) -> None:
        self.began.pop(marker.producer_id, None)
        for key, (at, record) in self.open.pop(marker.producer_id, {}).items():
            if marker.committed and at > self.compacted.get(key, (-1, None))[0]:
                self.compacted[key] = (at, Record(key, record.value))

    def check(self, hard: HardState) -> None:
        """Live hard state is the replay of the log, and of what compaction leaves of it, with tombstones or without."""
        assert self.state == hard
        if len(self.records) == self.checked:
            return
        self.checked = len(self.records)
        stable = min(self.began.values(), default=len(self.records))
        """Compaction leaves what is behind the last stable offset."""
        undecided = [found for records in self.open.values() for found in records.values()]
        compacted = sorted((*self.compacted.values(), *undecided), key=lambda found: found[0])
        living = [(at, record) for at, record in compacted if record.value is not None or at >= stable]
        for records in (compacted, living) if len(living) < len(compacted) else (compacted,):
            replayed = HardState()
            for _, record in records:
                replayed.apply(record)
            assert replayed == hard


class HistoryWorld:
    config: Config
    now = 0
    silence_ms = 400_000
    """So long after the last request every session has ended."""
    sweeps = 1
    """This number of sweeps deletes the empty groups."""

    def __init__(self) -> None:
        self.log = ReplayedLog()
        self.open: dict[RequestId, Any] = {}
        """Requests that wait for a reply, with the waiting client; None if no client waits any more."""
        self.last_request = 0
        self.turn_records: list[Record | Marker] = []
        self.turn_replies: list[Reply] = []
        self.shard = self._started()

    def _started(self) -> Shard:
        shard = self.shard = Shard(0, self.config)
        for record in self.log.records:
            shard.apply(record, self.now)
        self._load()
        return shard

    def _load(self) -> None:
        self.step(Loaded())

    def step(self, event: Event) -> None:
        effects = self.shard.step(event, self.now)
        for record in effects.records:
            self.shard.apply(record, self.now)
        self.shard.validate()
        self.turn_records.extend(effects.records)
        self.turn_replies.extend(effects.replies)
        assert not self.shard.running.parked or self.shard.next_deadline() is not None
        self.after_step(effects)

    def after_step(self, effects: Effects) -> None:
        pass

    def end_turn(self) -> None:
        self.log.extend(self.turn_records)
        self.turn_records.clear()
        replies, self.turn_replies = self.turn_replies, []
        for reply in replies:
            self.learn(self.open.pop(reply.request_id), reply)  # KeyError: answered twice, or never asked
        assert set(self.shard.running.parked) <= set(self.open)
        self.log.check(self.shard.hard)

    def learn(self, client: Any, reply: Reply) -> None:
        pass

    def misses(self, client: Any, request_id: RequestId) -> None:
        """The request gets no reply."""

    def ask(self, client: Any, body: Any, version: int, hold_ms: int = 0, client_id: str = "c") -> RequestId:
        self.last_request += 1
        request_id = RequestId(self.last_request)
        self.open[request_id] = client
        asks = Client(client_id, "/10.0.0.1")
        self.step(GroupRequested(request_id, version, asks, body, str(self.last_request), hold_ms))
        return request_id

    def silence(self) -> None:
        """No client sends any more: transactions are aborted, parked requests are answered, every member's session
        ends, groups are forgotten."""
        for producer_id in PRODUCERS:
            self.marker(producer_id, False)
        self.end_turn()
        self.advance(self.silence_ms)
        self.end_turn()
        assert not self.open, "requests without a reply"
        consumers, classic = self.shard.consumers.groups, self.shard.running.groups
        assert not any(group.members for group in consumers.values())
        assert all(group.phase is Phase.EMPTY for group in classic.values())
        for _ in range(self.sweeps):
            self.sweep()
        self.end_turn()
        assert not consumers
        assert not classic
        assert self.shard.next_deadline() is None

    # -- what may happen in any world

    def advance(self, by: int) -> None:
        until = self.now + by
        while (deadline := self.shard.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            for _ in range(DEADLINES):
                self.step(DeadlineReached())
                if (later := self.shard.next_deadline()) is None or later > self.now:
                    break
            else:
                raise AssertionError("it spins")
        self.now = until

    def late(self, by: int) -> None:
        """Time passes while the process is stopped: many deadlines are due at once."""
        self.now += by
        self.step(DeadlineReached())

    def sweep(self) -> None:
        self.step(ExpireOffsets())

    def move(self) -> None:
        self.step(Unloaded())
        self.step(Loaded())

    def commit_pending_offset(self, group: str, topic: str, producer_id: int, **member: Any) -> RequestId:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=self.last_request)
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=(partition,))]
        return self.commit_pending(group, topics, producer_id, **member)

    def commit_pending(
        self, group: str, topics: Sequence[TxnOffsetCommitRequestTopic], producer_id: int, **member: Any
    ) -> RequestId:
        """A producer commits offsets in its transaction. `member`: who it says that it is."""
        body = TxnOffsetCommitRequest(
            transactional_id=f"producer {producer_id}",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            topics=tuple(topics),
            **member,
        )
        return self.ask(None, body, 5)

    def marker(self, producer_id: int, committed: bool) -> None:
        """The end of a producer's transaction."""
        marker = Marker(producer_id, 0, committed, 0)
        self.shard.apply(marker, self.now)
        self.shard.validate()
        self.turn_records.append(marker)

    def answer_held(self, choice: int) -> None:
        """The choice may be another parked request, but only a held heartbeat is answered."""
        parked = sorted(self.shard.running.parked)
        if parked:
            self.step(AnswerHeld(RequestId(parked[choice % len(parked)])))
        self.step(AnswerHeld(RequestId(0)))

    def delete(self, group: str) -> None:
        self.ask(None, DeleteGroupsRequest(groups_names=(group,)), 2)

    def vanish(self, choice: int) -> None:
        """A connection with a parked request closes."""
        parked = sorted(self.shard.running.parked)
        if parked:
            request_id = parked[choice % len(parked)]
            self.misses(self.open.pop(request_id), request_id)
            self.step(RequestAbandoned(request_id))

    def crash(self) -> None:
        self.turn_records.clear()
        self.turn_replies.clear()
        for request_id, client in self.open.items():
            self.misses(client, request_id)
        self.open.clear()
        self.shard = self._started()


def play(world: Any, actions: list[tuple[Any, ...]]) -> None:
    for what, *arguments in actions:
        getattr(world, what)(*arguments)


class Journaled(HistoryWorld):
    """A mixin for a world: a journal whose topic survives crashes as the log does."""

    def __init__(self) -> None:
        self.journal_topic: dict[bytes, bytes] = {}
        super().__init__()

    def _started(self) -> Shard:
        self.journal = Journal(self.config)
        for value in self.journal_topic.values():
            self.journal.restore(value)
        return super()._started()

    def after_step(self, effects: Effects) -> None:
        super().after_step(effects)
        self.journal.tell(effects.journal, self.now)
        self.check_journal()

    def check_journal(self) -> None:
        raise NotImplementedError

    def end_turn(self) -> None:
        super().end_turn()
        for record in self.journal.take_changed():
            assert record.value is not None
            self.journal_topic.pop(record.key, None)
            self.journal_topic[record.key] = record.value

    def stories(self, group: str) -> list[Story]:
        stories = [msgspec.json.decode(data, type=Story) for data in self.journal.stories(group, 1000)]
        numbers = [story.number for story in stories]
        assert numbers == sorted(set(numbers))
        return stories
