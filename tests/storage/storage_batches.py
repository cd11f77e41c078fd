"""Record batches for storage tests, made by hand: the engines must not depend on how `wire` builds them."""

from __future__ import annotations

import struct

import google_crc32c

from kohort.storage.protocol import LogKey, StoredBatch

LOG = LogKey(bytes(range(16)), 0)
OTHER = LogKey(bytes(range(16)), 1)


def make_batch(
    base_offset: int,
    records: int = 1,
    *,
    timestamp: int = 1_000,
    size: int = 100,
    producer_id: int = -1,
    leader_epoch: int = 0,
    fill: bytes = b"x",
) -> StoredBatch:
    """A batch with a right header and CRC; its records are `fill`, which no engine looks at."""
    body = struct.pack(
        ">hiqqqhii", 0, records - 1, timestamp, timestamp, producer_id, 0 if producer_id >= 0 else -1, 0, records
    )
    body += (fill * size)[: max(0, size - 61)]
    head = struct.pack(">qiibI", base_offset, 9 + len(body), leader_epoch, 2, google_crc32c.value(body))
    return StoredBatch(base_offset, base_offset + records - 1, timestamp, head + body, producer_id, leader_epoch)
