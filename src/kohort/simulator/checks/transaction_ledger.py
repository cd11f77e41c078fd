"""Offsets in transactions, from the bytes of the log alone: which are pending, and which the markers commit.

The rule is Kafka's, by offsets of records: a commit marker commits an offset if its record lies behind the newest
record of the partition that counted so far. The shards count records instead (coordinator/offsets/pending.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kohort.coordinator.events import Record
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import Place
from kohort.storage.protocol import LogKey, Storage
from kohort.wire.batches import decode_columns, read_header
from kohort.wire.markers import Marker, read_marker
from kohort.wire.schemas.group_records import OffsetCommitKey, OffsetCommitValue

NO_PRODUCER = -1
Pending = dict[str, dict[Place, list[tuple[int, OffsetCommitValue, bool]]]]
"""See `PendingOffsets.described`."""


class Logged(NamedTuple):
    """A record or a marker, and its offset."""

    at: int
    what: Record | Marker


class _Written(NamedTuple):
    at: int
    what: Record


class _Open(NamedTuple):
    at: int
    key: OffsetCommitKey
    value: OffsetCommitValue


class Transactions:
    """The open transactions of one shard's log."""

    def __init__(self) -> None:
        self._open: dict[int, dict[tuple[str, Place], _Open]] = {}
        self._newest: dict[tuple[str, Place], int] = {}
        """The offset of the newest record that counts."""

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue, at: int) -> None:
        self._open.setdefault(producer_id, {})[_place(key)] = _Open(at, key, value)

    def other(self, key: OffsetCommitKey, value: OffsetCommitValue | None, at: int) -> None:
        """A record outside of transactions: a commit, or a tombstone, which takes all that is pending."""
        self._newest[_place(key)] = at
        if value is None:
            for offsets in self._open.values():
                offsets.pop(_place(key), None)

    def end(self, marker: Marker) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """What the marker commits."""
        committed = []
        for place, found in self._open.pop(marker.producer_id, {}).items():
            if marker.committed and found.at > self._newest.get(place, -1):
                self._newest[place] = found.at
                committed.append((found.key, found.value))
        return committed

    def pending(self) -> Pending:
        found: Pending = {}
        everything = ((each, producer_id) for producer_id, of in self._open.items() for each in of.values())
        for each, producer_id in sorted(everything, key=lambda pair: pair[0].at):
            group, place = _place(each.key)
            counts = each.at > self._newest.get((group, place), -1)
            found.setdefault(group, {}).setdefault(place, []).append((producer_id, each.value, counts))
        return found


def _place(key: OffsetCommitKey) -> tuple[str, Place]:
    return key.group, (key.topic, key.partition)


def logged(data: bytes) -> Iterator[Logged]:
    """The records and markers of a batch."""
    header = read_header(data)
    if header.is_control:
        marker = read_marker(data, header)
        if marker is not None:
            yield Logged(header.base_offset, marker)
        return
    columns = decode_columns(data)
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    for key, value, at in zip(columns.keys, columns.values, columns.offsets, strict=True):
        if key is not None:
            yield Logged(at, Record(key, value, producer_id=producer_id))


def replayed(storage: Storage, log: LogKey, *, newest_only: bool) -> HardState:
    """The hard state after a replay of the log: of all records, or of the newest of each key."""
    hard = HardState()
    found = list(_whole_log(storage, log))
    for at_and_record in _newest(found) if newest_only else found:
        hard.apply(at_and_record.what)
    return hard


def _newest(found: list[Logged]) -> list[_Written]:
    """The last record of each key that counts, and the last one of each open transaction."""
    last: dict[tuple[int, bytes], _Written] = {}
    undecided: dict[int, list[_Written]] = {}

    def counts(at: int, record: Record) -> None:
        former = last.get((NO_PRODUCER, record.key))
        if former is None or former.at < at:
            last[NO_PRODUCER, record.key] = _Written(at, Record(record.key, record.value))

    for each in found:
        if isinstance(each.what, Marker):
            for earlier in undecided.pop(each.what.producer_id, []):
                if each.what.committed:
                    counts(earlier.at, earlier.what)
        elif each.what.producer_id == NO_PRODUCER:
            counts(each.at, each.what)
            if each.what.value is None:
                for producer_id, records in undecided.items():
                    undecided[producer_id] = [one for one in records if one.what.key != each.what.key]
        else:
            undecided.setdefault(each.what.producer_id, []).append(_Written(each.at, each.what))
    for producer_id, records in undecided.items():
        for one in records:
            last[producer_id, one.what.key] = one
    return sorted(last.values(), key=lambda one: one.at)


def _whole_log(storage: Storage, log: LogKey) -> Iterator[Logged]:
    info = storage.log_info(log)
    offset = info.start_offset if info is not None else 0
    while batches := storage.read(log, offset, 1 << 22):
        for batch in batches:
            yield from logged(batch.data)
        offset = batches[-1].last_offset + 1
