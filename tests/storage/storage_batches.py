"""Record batches for storage tests, built without `wire`, because the engines must not depend on it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import google_crc32c

from kohort.storage.gathered import stored
from kohort.storage.postgres.engine import PostgresStorage
from kohort.storage.postgres.leases import NodeAddress
from kohort.storage.protocol import PLAIN, Append, LogKey, Operation, Storage, StoredBatch
from kohort.wire.batches import NewRecord, Record, decode_records, encode_batch

LOG = LogKey(bytes(range(16)), 0)
OTHER = LogKey(bytes(range(16)), 1)
OWN = LogKey(bytes(range(16)), 2)
"""A batch of the broker's own records."""


def commit(storage: Storage, operations: Sequence[Operation]) -> None:
    """A commit of the engine's only writer."""
    storage.commit(operations, storage.acquire())


def opened_postgres(url: str, node: int = 1, **options: Any) -> PostgresStorage:
    """An engine that owns the data of the database."""
    storage = PostgresStorage(url, NodeAddress(node, "localhost", 9000 + node), **options)
    try:
        return storage.open()
    except BaseException:
        storage.close()
        raise


def make_batch(
    base_offset: int,
    records: int = 1,
    *,
    timestamp: int = 1_000,
    size: int = 100,
    producer_id: int = -1,
    leader_epoch: int = 0,
    fill: bytes = b"x",
    kind: int = PLAIN,
    transaction_start: int = -1,
    coordinator_epoch: int = -1,
) -> StoredBatch:
    """A batch with a correct header and CRC; its records are `fill`, which no engine reads."""
    attributes = (0, 0x10, 0x30, 0x30)[kind]
    epoch = 0 if producer_id >= 0 else -1
    body = struct.pack(">hiqqqhii", attributes, records - 1, timestamp, timestamp, producer_id, epoch, 0, records)
    body += (fill * size)[: max(0, size - 61)]
    head = struct.pack(">qiibI", base_offset, 9 + len(body), leader_epoch, 2, google_crc32c.value(body))
    return StoredBatch(
        base_offset,
        base_offset + records - 1,
        timestamp,
        head + body,
        producer_id,
        leader_epoch,
        kind,
        transaction_start,
        coordinator_epoch,
    )


def own_append(
    base_offset: int, records: int = 1, *, timestamp: int = 1_000, size: int = 20, leader_epoch: int = 0
) -> Append:
    """An append of true records, whose batch an engine may join with others; `size` is that of a record's value."""
    made = [
        NewRecord(b"%d" % (base_offset + n), None if size < 0 else b"v" * size, timestamp + n) for n in range(records)
    ]
    batch = stored(encode_batch(made, base_offset=base_offset, leader_epoch=leader_epoch))
    return Append(OWN, (batch,), joinable=True)


def own_records(storage: Storage, offset: int = 0, max_bytes: int = 1 << 30) -> list[Record]:
    """The readable part of the batches, independent of their sizes."""
    return [record for batch in storage.read(OWN, offset, max_bytes) for record in decode_records(batch.data)]
