"""`__share_group_state` records to and from bytes, in Apache Kafka's schema (ShareCoordinatorRecordHelpers.java).

A tombstone has the key of a snapshot, and ends the share-partition.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kohort.coordinator.events import Record
from kohort.coordinator.shares.cells import Cell, in_order
from kohort.coordinator.shares.events import ShareKey
from kohort.coordinator.shares.state import Snapshot, Update
from kohort.wire.codec import decode, encode
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)

SNAPSHOT, UPDATE = 0, 1
"""Types of records, and versions of their keys."""
VERSION = b"\0\0"
"""Of values."""

Parsed = tuple[ShareKey, Snapshot | Update | None]


def _key(kind: int, key: ShareKey) -> bytes:
    schema = ShareSnapshotKey if kind == SNAPSHOT else ShareUpdateKey
    named = schema(group_id=key.group, topic_id=key.topic_id, partition=key.partition)
    return kind.to_bytes(2, "big") + encode(named, kind)


_known_key = lru_cache(maxsize=16_384)(_key)
LONGEST_KNOWN = 255
"""Characters of a group's name. Keys are cached, because a share-partition writes again and again."""


def _batches(cells: tuple[Cell, ...]) -> tuple[StateBatch, ...]:
    return tuple(
        [
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in cells
        ]
    )


def share_record(key: ShareKey, value: Snapshot | Update | None) -> Record:
    key_of = _known_key if len(key.group) <= LONGEST_KNOWN else _key
    if value is None:
        return Record(key_of(SNAPSHOT, key), None, (key, None))
    if isinstance(value, Snapshot):
        encoded = encode(
            ShareSnapshotValue(
                snapshot_epoch=value.snapshot_epoch,
                state_epoch=value.state_epoch,
                leader_epoch=value.leader_epoch,
                start_offset=value.start,
                delivery_complete_count=value.complete,
                create_timestamp=value.created_ms,
                write_timestamp=value.written_ms,
                state_batches=_batches(value.cells),
            ),
            0,
        )
        return Record(key_of(SNAPSHOT, key), VERSION + encoded, (key, value))
    encoded = encode(
        ShareUpdateValue(
            snapshot_epoch=value.snapshot_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start,
            delivery_complete_count=value.complete,
            state_batches=_batches(value.cells),
        ),
        0,
    )
    return Record(key_of(UPDATE, key), VERSION + encoded, (key, value))


def parse(record: Record) -> Parsed | None:
    """None for a type that is not known. Raises ProtocolError."""
    kind = int.from_bytes(record.key[:2], "big", signed=True)
    if kind not in (SNAPSHOT, UPDATE) or len(record.key) < 2:
        return None
    named: Any = decode(ShareSnapshotKey if kind == SNAPSHOT else ShareUpdateKey, kind, record.key, 2)
    key = ShareKey(named.group_id, named.topic_id, named.partition)
    if record.value is None:
        return key, None
    if record.value[:2] != VERSION:
        raise ProtocolError("the state of a share-partition in an unknown version")  # skipping it would lose state
    if kind == SNAPSHOT:
        whole = _value(ShareSnapshotValue, record.value)
        return key, Snapshot(
            whole.snapshot_epoch,
            whole.state_epoch,
            whole.leader_epoch,
            whole.start_offset,
            whole.delivery_complete_count,
            whole.create_timestamp,
            whole.write_timestamp,
            _cells(whole.state_batches),
        )
    part = _value(ShareUpdateValue, record.value)
    return key, Update(
        part.snapshot_epoch,
        part.leader_epoch,
        part.start_offset,
        part.delivery_complete_count,
        _cells(part.state_batches),
    )


def _value(schema: type, data: bytes) -> Any:
    try:
        return decode(schema, 0, data, 2)
    except ProtocolError:
        # An earlier record of kohort, in which the epoch of the snapshot has two bytes. It never decodes with four:
        # then a zero byte is where the number of batches is expected.
        return decode(schema, 0, VERSION + data, 2)


def _cells(batches: tuple[StateBatch, ...]) -> tuple[Cell, ...]:
    return tuple(
        in_order((each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches)
    )
