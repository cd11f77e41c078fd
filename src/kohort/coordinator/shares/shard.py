"""One shard of the share coordinator: it owns one partition of `__share_group_state` and the share-partitions that hash
to it.

In Kafka the leader of the data keeps the locks, and asks the share coordinator to store what they ended with. Here both
are this machine: an acknowledgement is a record of the turn's own commit, so there is no state in between, and no write
that fails after the answer was decided.

A write is an update; after some updates, and where it would be large, it is a snapshot of the whole state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kohort.config import LONG_MAX
from kohort.coordinator.deadlines import Deadlines
from kohort.coordinator.events import (
    DeadlineReached,
    Effects,
    Event,
    Loaded,
    Millis,
    Record,
    Reply,
    RequestId,
    Restored,
    ServerPaused,
    Unloaded,
)
from kohort.coordinator.offsets.sizes import Total
from kohort.coordinator.shares.cells import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    Cell,
    archiving,
    count_terminal,
    cut,
    cut_changes,
    finished_up_to,
    in_order,
    index_at,
    is_terminal,
    merge,
    put,
)
from kohort.coordinator.shares.events import (
    NOBODYS,
    RESET,
    Acknowledge,
    Acquire,
    Acquired,
    Archived,
    DeadLettered,
    Delete,
    Freed,
    Initialize,
    Load,
    RecordsArchived,
    Redeliver,
    Release,
    ShareEffect,
    ShareEvent,
    ShareKey,
    Write,
    WriteSnapshots,
)
from kohort.coordinator.shares.records import parse, share_record
from kohort.coordinator.shares.redelivery import again
from kohort.coordinator.shares.settings import SettingsOf, ShareSettings
from kohort.coordinator.shares.share_partition import SharePartition
from kohort.coordinator.shares.state import ShareState, Snapshot, Update
from kohort.coordinator.shares.tally import DELIVERED, EXPIRED, SESSION_OVER, SKIPPED, KeptRanges, Tally
from kohort.coordinator.state_machine import LogName
from kohort.wire.errors import ErrorCode

SHARES_TOPIC = "__share_group_state"
DUE_AT_ONCE = 1_000
"""Ranges that one step looks at to end locks; the shard stays due while there are more."""
LOOK = 50
"""How many ranges a share-partition counts as within DUE_AT_ONCE, in addition to its own."""
STATE_BYTES = 1_000
"""Bytes that each share-partition counts in addition to its ranges."""
MOST_CHANGES = 1_000
"""Cells of an update; more are written as a snapshot. The broker keeps only the newest of a turn's large records of one
key, so an update must never be large."""
LARGEST_RANGE = 1_000_000
"""Offsets of a range that is written from outside; a share-partition has at most 10,000 open at a time."""
STORED = (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED)
LARGEST_OFFSET = 1 << 62
LARGEST_COUNT = 32_000
"""Of what is written from outside. The offset behind it, and the count of one more delivery, fit into their fields."""
LAST_EPOCH = 2**31 - 1
"""Of snapshots."""


class ShareShard:
    """The `StateMachine` of share-partitions."""

    def __init__(
        self,
        index: int,
        settings_of: SettingsOf,
        updates_per_snapshot: int,
        total: Total | None = None,
        most_entries: int = 1_000_000,
        size: Total | None = None,
        most_bytes: int = LONG_MAX,
        awaiting: dict[ShareKey, None] | None = None,
    ) -> None:
        """`total` counts the ranges in memory of all shards; `size` counts the bytes of all states of share-partitions,
        without their ranges. The group coordinator has a limit of its own for the states of its groups. Others, such as
        clients that send InitializeShareGroupState, add no state beyond `most_bytes`. `awaiting`: the share-partitions
        of all shards with records that await their dead letters. It follows from the hard state."""
        self.log = LogName(SHARES_TOPIC, index)
        self.states: dict[ShareKey, ShareState] = {}
        """The hard state. Handlers may read it."""
        self.served: dict[ShareKey, SharePartition] = {}
        """Share-partitions that a leader serves."""
        self.tallies: dict[ShareKey, Tally] = {}
        """What became of records, of the share-partitions that are served."""
        self._kept_ranges = KeptRanges(self.tallies)
        self._awaiting = awaiting if awaiting is not None else {}
        self._settings_of = settings_of
        self._updates_per_snapshot = updates_per_snapshot
        self._total = total if total is not None else Total()
        self._most_entries = most_entries
        self._size = size if size is not None else Total()
        self._most_bytes = most_bytes
        self._deadlines: Deadlines[ShareKey] = Deadlines()
        self._records: list[Record] = []
        self._replies: list[Reply] = []
        self._freed: list[ShareEffect] = []

    # -- the contract

    def step(self, event: ShareEvent | Event, now: Millis) -> Effects:
        match event:
            case Acquire():
                self._acquire(event, now)
            case Acknowledge():
                self._acknowledge(event, now)
            case Load():
                self._load(event, now)
            case Release():
                for key in event.keys:
                    if (held := self.served.get(key)) is not None and held.locks:
                        self._give_back(
                            key, SESSION_OVER, lambda served, settings: served.release(event.member, settings), now
                        )
            case DeadlineReached():
                looked = 0
                while looked < DUE_AT_ONCE and (due := self._deadlines.pop_due(now)) is not None:
                    looked += LOOK + self._entries(due, self.served.get(due))
                    self._give_back(due, EXPIRED, lambda served, settings: served.expire(now, settings), now)
            case Initialize():
                self._reply(event.request_id, self._initialize(event, now))
            case Delete():
                self._records += [share_record(key, None) for key in event.keys if key in self.states]
            case Write():
                self._reply(event.request_id, self._write(event, now))
            case Redeliver():
                self._reply(event.request_id, self._redeliver(event, now))
            case DeadLettered():
                self._archive(event, now)
            case WriteSnapshots():
                for key in event.keys:
                    if key in self.states:
                        self._snapshot(key, now)
            case ServerPaused():
                self._lengthen(event.lost_ms)
            case Loaded() | Unloaded() | Restored():
                pass
            case _:
                self._others(event)
        effects = Effects(tuple(self._records), tuple(self._replies), shares=tuple(self._freed))
        self._records.clear()
        self._replies.clear()
        self._freed.clear()
        return effects

    def _others(self, event: object) -> None:
        raise TypeError(f"no event of share-partitions: {type(event).__name__}")

    def apply(self, record: Record, timestamp: Millis) -> None:
        parsed = record.parsed or parse(record)
        if parsed is None:
            return
        key, value = parsed
        served = self.served.get(key)
        before = self._entries(key, served)
        if value is None:
            if self.states.pop(key, None) is not None:
                self._size.bytes -= STATE_BYTES + len(key.group)
            self.served.pop(key, None)
            self.tallies.pop(key, None)
            self._kept_ranges.changed(key)
            self._deadlines.clear(key)
            self._awaiting.pop(key, None)
        else:
            state = self.states.get(key)
            if state is None:
                if isinstance(value, Update):
                    return  # its snapshot is gone, and so is the share-partition
                state = self.states[key] = ShareState()
                self._size.bytes += STATE_BYTES + len(key.group)
            former = state.state_epoch, state.created_ms
            start = state.start
            state.apply(value)
            if key in self._awaiting or archiving(value.cells):
                if archiving(state.cells):
                    self._awaiting[key] = None
                else:
                    self._awaiting.pop(key, None)
            is_anew = (state.state_epoch, state.created_ms) != former or (state.start < start and not state.cells)
            if served is not None and is_anew:
                served.restart()  # it was initialized anew
            elif served is not None:
                served.started_at(state.start)
                if isinstance(value, Snapshot):
                    served.note_free()  # an operator may have made finished records available
            if state.start != start and key in self.tallies:
                self.tallies[key].moved_ms = timestamp
        self._total.bytes += self._entries(key, served) - before

    def next_deadline(self) -> Millis | None:
        return self._deadlines.next()

    def validate(self) -> None:
        self._kept_ranges.validate()
        for key, state in self.states.items():
            terminal = count_terminal(state.cells, state.start)
            assert state.complete == terminal, f"{key}: counts {state.complete} as finished, but {state.cells}"
            assert (key in self._awaiting) == bool(archiving(state.cells)), f"{key}: dead letters of {state.cells}"
            assert not state.cells or state.cells[0][0] >= state.start, f"{key}: {state.cells} below {state.start}"
        for key, served in self.served.items():
            assert served.state is self.states[key], f"{key}: another state"
            served.check()
            due = self._deadlines.get(key)
            assert not served.locks or (due is not None and served.due is not None and due <= served.due), key

    # -- queries

    @property
    def entries(self) -> int:
        """Ranges in memory, of all shards."""
        return self._total.bytes

    def _entries(self, key: ShareKey, served: SharePartition | None) -> int:
        state = self.states.get(key)
        if state is None:
            return 0
        return len(state.cells) + (len(served.locks) if served is not None else 0)

    # -- events

    def _load(self, event: Load, now: Millis) -> None:
        key, state = event.key, self.states.get(event.key)
        if state is None:
            return
        served = self.served.get(key)
        if served is None:
            served = self.served[key] = SharePartition(state, event.leader_epoch)
            self.tallies[key] = Tally(now)
        elif served.leader_epoch != event.leader_epoch:
            self._total.bytes -= len(served.locks)
            served.lead(event.leader_epoch)
            self._freed.append(Freed(key))
        start = state.start
        if start == RESET:
            start = max(event.initial, event.log_start)
        elif start < event.log_start:
            start = event.log_start  # SH50
        start = finished_up_to(start, state.cells, ())
        if start != state.start or event.leader_epoch != state.leader_epoch:
            self._store(key, state, (), start, event.leader_epoch, now)

    def _acquire(self, event: Acquire, now: Millis) -> None:
        served = self.served.get(event.key)
        if served is None or self._total.bytes >= self._most_entries:
            self._reply(event.request_id, Acquired())
            return
        before = len(served.locks)
        acquired, archived = served.acquire(event, self._settings_of(event.key.group), now)
        self._total.bytes += len(served.locks) - before
        tally = self.tallies[event.key]
        tally.count(DELIVERED, acquired.records)
        if archived:
            tally.count(SKIPPED, acquired.archived)
            self._put(event.key, served.state, archived, now)
        if acquired.ranges:
            self._arm(event.key, served)
        self._reply(event.request_id, acquired)

    def _acknowledge(self, event: Acknowledge, now: Millis) -> None:
        served = self.served.get(event.key)
        if served is None:
            # Nothing is locked. The server has started again, or the share-partition is gone.
            self._reply(event.request_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        before, due = len(served.locks), served.due
        settings = self._settings_of(event.key.group)
        error, cells = served.acknowledge(event.member, event.batches, settings, now)
        self._total.bytes += len(served.locks) - before
        if served.due != due:
            self._arm(event.key, served)
        if cells:
            archived = self.tallies[event.key].acknowledged(event.member, event.batches, cells, now)
            self._tell_archived(event.key, archived, settings)
            self._put(event.key, served.state, cells, now)
            # Room in the window is news too, for those that wait.
            self._freed.append(Freed(event.key))
        self._reply(event.request_id, error)

    def _give_back(
        self, key: ShareKey, why: str, end: Callable[[SharePartition, ShareSettings], list[Cell]], now: Millis
    ) -> None:
        served = self.served.get(key)
        if served is None:
            return
        before = list(served.locks)
        settings = self._settings_of(key.group)
        cells = end(served, settings)
        self._total.bytes += len(served.locks) - len(before)
        if cells:
            self._tell_archived(key, self.tallies[key].ended(why, cells, before, now), settings)
            self._put(key, served.state, cells, now)
            self._freed.append(Freed(key))
        self._arm(key, served)

    def _initialize(self, event: Initialize, now: Millis) -> ErrorCode:
        if event.start < RESET:
            return ErrorCode.INVALID_REQUEST
        keys = event.keys if event.anew else [key for key in event.keys if key not in self.states]
        for key in keys:
            state = self.states.get(key)
            if state is not None and event.state_epoch < state.state_epoch:
                return ErrorCode.FENCED_STATE_EPOCH
            if state is None and event.request_id != NOBODYS and self._size.bytes >= self._most_bytes:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
        for key in keys:
            state = self.states.get(key)
            epoch = 0 if state is None else state.snapshot_epoch + 1 & LAST_EPOCH
            leader_epoch = 0 if state is None else state.leader_epoch
            snapshot = Snapshot(epoch, event.state_epoch, leader_epoch, event.start, 0, now, now)
            self._records.append(share_record(key, snapshot))
            self._freed.append(Freed(key))
        return ErrorCode.NONE

    def _write(self, event: Write, now: Millis) -> ErrorCode:
        state = self.states.get(event.key)
        if state is None:
            return ErrorCode.INVALID_REQUEST
        leader_epoch = state.leader_epoch if event.leader_epoch == -1 else event.leader_epoch
        if leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if event.state_epoch < state.state_epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        if event.start > LARGEST_OFFSET or not all(map(_is_cell, event.cells)):
            return ErrorCode.INVALID_REQUEST
        start = max(state.start, event.start)
        cells = list(state.cells)
        written = [(one[0], one[1], ARCHIVED, one[3]) if one[2] == ARCHIVING else one for one in event.cells]
        merge(cells, in_order(written))
        cut(cells, start)
        complete = count_terminal(cells, start)
        epoch = state.snapshot_epoch + 1 & LAST_EPOCH
        snapshot = Snapshot(
            epoch, state.state_epoch, leader_epoch, start, complete, state.created_ms, now, tuple(cells)
        )
        self._records.append(share_record(event.key, snapshot))
        return ErrorCode.NONE

    def _redeliver(self, event: Redeliver, now: Millis) -> ErrorCode | int:
        state, served = self.states.get(event.key), self.served.get(event.key)
        if state is None or state.start == RESET:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._total.bytes + 2 * len(event.ranges) >= self._most_entries:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        wanted = [(max(first, event.log_start), last) for first, last in event.ranges]
        start, cells, count = again(state, wanted, served.end if served is not None else state.end)
        if count:
            changed = ShareState(
                state.snapshot_epoch, state.state_epoch, state.leader_epoch, start, 0, cells, 0, state.created_ms
            )
            self._records.append(share_record(event.key, _snapshot(changed, (), start, state.leader_epoch, now)))
            self._freed.append(Freed(event.key))
            if event.key in self.tallies:
                self.tallies[event.key].forget(event.ranges)
                self._kept_ranges.changed(event.key)
        return count

    def _archive(self, event: DeadLettered, now: Millis) -> None:
        state = self.states.get(event.key)
        cells: list[Cell] = []
        for first, last, _, count in archiving(state.cells) if state is not None else ():
            for low, high in event.ranges:
                if low <= last and first <= high:
                    put(cells, (max(first, low), min(last, high), ARCHIVED, count))
        if state is None or not cells:
            return
        if (tally := self.tallies.get(event.key)) is not None:
            tally.dead_lettered([(first, last) for first, last, _, _ in cells], event.where)
        self._put(event.key, state, cells, now)
        self._freed.append(Freed(event.key))  # there may be room in the window

    def _tell_archived(self, key: ShareKey, archived: list[Archived], settings: ShareSettings) -> None:
        if archived:
            self._kept_ranges.changed(key)
            self._freed.append(RecordsArchived(key, tuple(archived), settings.dead_letters))

    # -- writing

    def _put(self, key: ShareKey, state: ShareState, changes: Sequence[Cell], now: Millis) -> None:
        start = finished_up_to(state.start, state.cells, changes)
        self._store(key, state, changes, start, state.leader_epoch, now)

    def _store(
        self, key: ShareKey, state: ShareState, changes: Sequence[Cell], start: int, leader_epoch: int, now: Millis
    ) -> None:
        """`changes` were not finished before."""
        if state.updates + 1 >= self._updates_per_snapshot or len(changes) > MOST_CHANGES:
            self._records.append(share_record(key, _snapshot(state, changes, start, leader_epoch, now)))
            return
        complete = state.complete + count_terminal(changes, start)
        if start != state.start:
            complete -= _terminal_below(state.cells, start)
        update = Update(state.snapshot_epoch, leader_epoch, start, complete, cut_changes(changes, start))
        self._records.append(share_record(key, update))

    def _snapshot(self, key: ShareKey, now: Millis) -> None:
        state = self.states[key]
        self._records.append(share_record(key, _snapshot(state, (), state.start, state.leader_epoch, now)))

    def _arm(self, key: ShareKey, served: SharePartition) -> None:
        if served.due is not None:
            self._deadlines.set(key, served.due)
        else:
            self._deadlines.clear(key)

    def _lengthen(self, by: Millis) -> None:
        """The time in which the server answered nobody does not count against those that hold locks."""
        for key, served in self.served.items():
            if served.locks:
                served.lengthen(by)
                self._arm(key, served)

    def _reply(self, request_id: RequestId, body: Any) -> None:
        if request_id != NOBODYS:
            self._replies.append(Reply(request_id, body))


def _is_cell(cell: Cell) -> bool:
    first, last, state, count = cell
    is_range = 0 <= first <= last < min(first + LARGEST_RANGE, LARGEST_OFFSET)
    return is_range and state in STORED and 0 <= count <= LARGEST_COUNT


def _terminal_below(cells: Sequence[Cell], start: int) -> int:
    """How many of these offsets are finished, and below `start`."""
    return sum(
        min(last, start - 1) - first + 1
        for first, last, state, _ in cells[: index_at(cells, start) + 1]
        if is_terminal(state) and first < start
    )


def _snapshot(state: ShareState, changes: Sequence[Cell], start: int, leader_epoch: int, now: Millis) -> Snapshot:
    cells = list(state.cells)
    merge(cells, changes)
    cut(cells, start)
    return Snapshot(
        state.snapshot_epoch + 1 & LAST_EPOCH,
        state.state_epoch,
        leader_epoch,
        start,
        count_terminal(cells, start),
        state.created_ms,
        now,
        tuple(cells),
    )
