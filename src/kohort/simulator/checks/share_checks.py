"""Share groups: what answers promise, and an independent fold of `__share_group_state`, offset by offset.

| promise | when it is checked |
| --- | --- |
| a record has one holder, from the answer that has it to the end of its lock | each ShareFetch |
| only the holder ends or renews a lock | each acknowledgement |
| after an answer without error to an accept, a reject or a gap, the record is not delivered again | each ShareFetch |
| the count of deliveries rises with each, while the server lives, and never beyond the limit | each ShareFetch |
| a record is finished because a member has asked for it, or at the limit of deliveries | each commit |
| what is open is at most the window and one batch | each commit |
| a record that is finished stays so, and the start does not go back, unless an operator asks for it | each commit |
| live state is the fold of the log, and a replay of the disk gives the same | each commit; each replay |
| members that go on read everything: nothing stays locked, lost or waiting | at the end |

A lock may end before its time: by an acknowledgement, with the session, with the process. From the moment at which one
of these reaches the server, the check takes the record for free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.topics.catalog import SHARES_TOPIC
from kohort.broker.turn import ConnectionId
from kohort.config import Config
from kohort.coordinator.shares.cells import ACKNOWLEDGED, ARCHIVED, ARCHIVING
from kohort.coordinator.shares.events import ACCEPT, GAP, REJECT, RENEW, ShareKey
from kohort.simulator.checks.dead_letter_checks import DeadLetterChecks
from kohort.simulator.world.network import Asked, Link
from kohort.simulator.world.world import Millis, Violation
from kohort.storage.protocol import Append, LogKey, Operation, Storage
from kohort.wire.batches import decode_records, read_header
from kohort.wire.codec import decode
from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kohort.wire.schemas.share_acknowledge import ShareAcknowledgeRequest
from kohort.wire.schemas.share_fetch import ShareFetchRequest
from kohort.wire.schemas.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

FINAL = (ACCEPT, REJECT, GAP)
GIVEN_UP = (ARCHIVING, ARCHIVED)
FINISHED = (ACKNOWLEDGED, ARCHIVED)
CLOSES = -1
"""The epoch of a session's last request."""
LARGEST_BATCH = 30
"""Records of the largest batch that an actor produces."""


@dataclass(slots=True)
class Hold:
    member: str
    connection: ConnectionId
    since: Millis
    until: Millis
    """Not before this, unless it `may_end`."""
    may_end: bool = False


@dataclass(slots=True)
class Fold:
    """The durable state of a share-partition."""

    start: int = -1
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By offset: count of deliveries, and state."""


class ShareChecks:
    def __init__(self, config: Config) -> None:
        self._limit = config.group_share_delivery_count_limit
        self._lock_ms = config.group_share_record_lock_duration_ms
        self._window = config.group_share_partition_max_record_locks + LARGEST_BATCH
        self._folds: dict[ShareKey, Fold] = {}
        self._holds: defaultdict[ShareKey, dict[int, Hold]] = defaultdict(dict)
        self._finished: defaultdict[ShareKey, set[int]] = defaultdict(set)
        """Offsets whose end was answered."""
        self._asked_for: defaultdict[ShareKey, set[int]] = defaultdict(set)
        """Offsets whose end a member has asked for."""
        self._counts: defaultdict[ShareKey, dict[int, int]] = defaultdict(dict)
        """Deliveries that this process has answered."""
        self._wanted_again: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        """Offsets that an operator has asked for, by group and partition."""
        self._reopened: defaultdict[ShareKey, dict[int, Millis]] = defaultdict(dict)
        """When offsets that were finished became available again."""
        self._released: set[str] = set()
        """Members whose records an operator releases: it has asked, and is not answered yet."""
        self._dead_letters = DeadLetterChecks()
        self._topic_id = b""
        self._shards = 0
        """Partitions of the topic; 0 before it is there."""
        self.delivered = 0
        """Records, each as often as it was delivered."""

    # -- requests

    def asked(self, asked: Asked) -> None:
        """A request has reached the server."""
        request = asked.request
        if isinstance(request, AlterShareGroupOffsetsRequest):
            for row in (row for topic in request.topics for row in topic.partitions):
                wanted = self._wanted_again[request.group_id, row.partition_index]
                wanted.update(*(range(one.first_offset, one.last_offset + 1) for one in row.redeliver))
        if not isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest):
            return
        for key, first, last, types in _acks(request):
            holds = self._holds[key]
            for offset in range(first, last + 1):
                kind = types[0] if len(types) == 1 else types[offset - first]
                if kind in FINAL:
                    self._asked_for[key].add(offset)
                hold = holds.get(offset)
                if hold is not None and kind != RENEW and hold.member == request.member_id:
                    hold.may_end = True
        if _is_release(request):
            self._released.add(str(request.member_id))
        if request.share_session_epoch == CLOSES or _is_release(request):
            self._may_all_end(request)

    def _may_all_end(self, request: Any) -> None:
        for holds in self._holds.values():
            for hold in holds.values():
                hold.may_end |= hold.member == request.member_id

    def closed(self, connection: ConnectionId) -> None:
        """The server knows that a connection is gone."""
        for holds in self._holds.values():
            for hold in holds.values():
                hold.may_end |= hold.connection == connection

    def died(self) -> None:
        self._holds.clear()
        self._counts.clear()

    # -- answers

    def answered(self, link: Link, asked: Asked, response: Any, now: Millis) -> None:
        """`now`: when the turn began."""
        request = asked.request
        if not isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest) or response.error_code:
            return
        if _is_release(request) and request.share_session_epoch == CLOSES:
            self._released.discard(str(request.member_id))
            self._may_all_end(request)
        is_fetch = isinstance(request, ShareFetchRequest)
        errors = {}
        for topic in response.responses:
            for row in topic.partitions:
                key = ShareKey(str(request.group_id), topic.topic_id, row.partition_index)
                errors[key] = row.acknowledge_error_code if is_fetch else row.error_code
        for key, first, last, types in _acks(request):
            if not errors.get(key, -1):
                self._acknowledged(str(request.member_id), key, first, last, types, asked, now)
        if not is_fetch:
            return
        for topic in response.responses:
            for row in topic.partitions:
                key = ShareKey(str(request.group_id), topic.topic_id, row.partition_index)
                for got in row.acquired_records:
                    for offset in range(got.first_offset, got.last_offset + 1):
                        self._acquired(key, offset, got.delivery_count, str(request.member_id), link.id, now)

    def _acknowledged(
        self, member: str, key: ShareKey, first: int, last: int, types: Any, asked: Asked, now: Millis
    ) -> None:
        holds = self._holds[key]
        for offset in range(first, last + 1):
            kind = types[0] if len(types) == 1 else types[offset - first]
            hold = holds.get(offset)
            others = hold is not None and hold.member != member and not hold.may_end
            # It had the record already when the request arrived, and still has it.
            if hold is not None and others and hold.since <= asked.asked_at and now < hold.until:
                raise Violation.of(key.group, "only the holder ends a lock", f"{offset}: {member}, not {hold.member}")
            if kind in FINAL and self._reopened[key].get(offset, -1) < asked.asked_at:
                self._finished[key].add(offset)
            if hold is not None and hold.member == member:
                if kind == RENEW:
                    hold.until = max(hold.until, asked.asked_at + self._lock_ms)
                else:
                    del holds[offset]

    def _acquired(
        self, key: ShareKey, offset: int, count: int, member: str, connection: ConnectionId, now: Millis
    ) -> None:
        self.delivered += 1
        if offset in self._finished[key]:
            raise Violation.of(key.group, "what was finished is not delivered again", f"{offset} to {member}")
        hold = self._holds[key].get(offset)
        if hold is not None and not hold.may_end and now < hold.until:
            raise Violation.of(key.group, "a record has one holder", f"{offset}: {hold.member} and {member}")
        before = self._counts[key].get(offset, 0)
        if not before < count <= self._limit:
            text = f"{offset}: {count} after {before}, the limit is {self._limit}"
            raise Violation.of(key.group, "deliveries are counted, up to the limit", text)
        self._counts[key][offset] = count
        self._holds[key][offset] = Hold(member, connection, now, now + self._lock_ms, member in self._released)

    # -- the log

    def committed(self, broker: Broker, operations: Iterable[Operation], now: Millis) -> None:
        """The turn is durable."""
        topic = broker.state.catalog.topics.get(SHARES_TOPIC)
        if topic is None:
            return
        self._topic_id, self._shards = topic.topic_id, len(topic.partitions)
        touched: dict[ShareKey, None] = {}
        operations = list(operations)
        for operation in operations:
            if isinstance(operation, Append) and operation.log.topic_id == topic.topic_id:
                for batch in operation.batches:
                    for key, value in _records(batch.data):
                        touched[key] = None
                        before = self._folds.get(key, Fold())
                        former, known = before.start, dict(before.offsets)
                        _apply(self._folds, key, value)
                        self._check_reasons(key, former, known, now)
        for key in touched:
            self._check_live(broker, key)
        self._dead_letters.committed(broker, operations, {key.group for key in self._folds})

    def _check_reasons(self, key: ShareKey, former: int, known: Mapping[int, tuple[int, int]], now: Millis) -> None:
        """`former`, `known`: the start and the offsets before a record that the fold has by now."""
        fold = self._folds.get(key)
        if fold is None:
            return
        self._check_finished(key, former, known, now)
        for offset in range(former, fold.start) if former >= 0 else ():
            # Its last delivery may be in the same record.
            count = max(known.get(offset, (0, 0))[0] + 1, self._counts[key].get(offset, 0))
            self._check_reason(key, offset, count)
            if known.get(offset, (0, 0))[1] == ARCHIVING:
                self._dead_letters.archived(key, offset)
        for offset, (count, state) in fold.offsets.items():
            if state in (ACKNOWLEDGED, *GIVEN_UP):
                self._check_reason(key, offset, count)
            if state == ARCHIVED and known.get(offset, (0, 0))[1] not in FINISHED and offset >= former:
                self._dead_letters.archived(key, offset)
        top = max(fold.offsets, default=0)
        if top - fold.start > self._window and top > max(known, default=former):
            text = f"{fold.start} to {max(fold.offsets)}"
            raise Violation.of(key.group, "what is open is at most the window", text)

    def _check_finished(self, key: ShareKey, former: int, known: Mapping[int, tuple[int, int]], now: Millis) -> None:
        fold = self._folds[key]
        wanted = self._wanted_again[key.group, key.partition]
        if fold.start < former and fold.start not in wanted:
            raise Violation.of(key.group, "the start never goes back", f"{key}: {former} to {fold.start}")
        for offset, (_, state) in fold.offsets.items():
            before = known.get(offset, (0, 0))[1]
            if before == ARCHIVING and state not in GIVEN_UP:
                raise Violation.of(key.group, "a record waits for its dead letter", f"{key}: {offset} is {state}")
            if before not in FINISHED and not fold.start <= offset < former:
                continue
            if state in FINISHED:
                self._asked_for[key].add(offset)  # or it was at the limit, which was checked when it was finished
            elif offset not in wanted:
                raise Violation.of(key.group, "what is finished stays so", f"{key}: {offset} is {state}")
            else:
                self._reopened[key][offset] = now
                self._finished[key].discard(offset)
                self._asked_for[key].discard(offset)
                self._counts[key].pop(offset, None)
                self._holds[key].pop(offset, None)
                self._dead_letters.reopened(key, offset)

    def _check_reason(self, key: ShareKey, offset: int, count: int) -> None:
        if offset not in self._asked_for[key] and count < self._limit:
            raise Violation.of(key.group, "a record is finished for a reason", f"{offset}: delivered {count} times")

    def _check_live(self, broker: Broker, key: ShareKey) -> None:
        shard = broker.state.shares.find(key)
        state = shard.states.get(key) if shard is not None else None
        fold = self._folds.get(key)
        if (state is None) != (fold is None):
            raise Violation.of(key.group, "live state is the fold of the log", f"{key}: {state}, but {fold}")
        if state is None or fold is None:
            return
        live = {offset: (count, kind) for first, last, kind, count in state.cells for offset in range(first, last + 1)}
        if state.start != fold.start or live != fold.offsets:
            text = f"{key}: {state.start} {live}, but {fold.start} {fold.offsets}"
            raise Violation.of(key.group, "live state is the fold of the log", text)

    def check_replay(self, storage: Storage) -> None:
        """A replay of the disk gives the durable state."""
        folds: dict[ShareKey, Fold] = {}
        for index in range(self._shards):
            for batch in storage.read(LogKey(self._topic_id, index), 0, 1 << 26):
                for key, value in _records(batch.data):
                    _apply(folds, key, value)
        if folds != self._folds:
            raise Violation("a replay of the log gives the same state of shares", f"{folds}, but {self._folds}")

    # -- the end

    def open_records(self, broker: Broker) -> dict[ShareKey, int]:
        """What members have not finished, of partitions with such records."""
        found = {}
        for key, fold in sorted(self._folds.items()):
            topic = broker.state.catalog.by_id.get(key.topic_id)
            partition = broker.state.partition(topic, key.partition) if topic is not None else None
            if partition is not None and fold.start < partition.end_offset:
                found[key] = partition.end_offset - fold.start
        return found

    def undrained(self, broker: Broker) -> str:
        """Why members have not read everything; "" if they have."""
        for key, count in self.open_records(broker).items():
            return f"{key.group}: {count} records of {key.partition} are open"
        return ""


def _is_release(request: Any) -> bool:
    """An operator's (overseer.py), over another connection than the member's."""
    return isinstance(request, ShareFetchRequest) and request.max_records == 0


def _acks(request: Any) -> Iterator[tuple[ShareKey, int, int, Any]]:
    for topic in request.topics:
        for row in topic.partitions:
            key = ShareKey(str(request.group_id), topic.topic_id, row.partition_index)
            for batch in row.acknowledgement_batches:
                yield key, batch.first_offset, batch.last_offset, batch.acknowledge_types


def _records(data: bytes) -> Iterator[tuple[ShareKey, Any]]:
    for record in decode_records(data, read_header(data)):
        key = record.key or b""
        kind = int.from_bytes(key[:2], "big")
        named: Any = decode(ShareUpdateKey if kind else ShareSnapshotKey, kind, key, 2)
        value = None
        if record.value is not None:
            value = decode(ShareUpdateValue if kind else ShareSnapshotValue, 0, record.value, 2)
        yield ShareKey(named.group_id, named.topic_id, named.partition), value


def _apply(folds: dict[ShareKey, Fold], key: ShareKey, value: Any) -> None:
    """Of an offset, the higher count holds, then the higher state; what is below the start is gone."""
    if value is None:
        folds.pop(key, None)
        return
    if isinstance(value, ShareSnapshotValue):
        folds[key] = Fold(value.start_offset)
    fold = folds.get(key)
    if fold is None:
        return
    for batch in value.state_batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            fold.offsets[offset] = max(fold.offsets.get(offset, (-1, -1)), (batch.delivery_count, batch.delivery_state))
    fold.start = max(fold.start, value.start_offset)
    for offset in [offset for offset in fold.offsets if offset < fold.start]:
        del fold.offsets[offset]
