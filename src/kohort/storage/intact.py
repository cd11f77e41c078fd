"""Whether the bytes of a stored batch are the record batch that its columns describe."""

from __future__ import annotations

import struct

import google_crc32c

from kohort.storage.protocol import StoredBatch

_CONTROL_BITS = (0, 1, 3, 3)
"""By kind: bits 4 and 5 of the attributes, transactional and control."""
_HEADER = struct.Struct(">qiibIhiqqqhii")
"""A record batch's header: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base
timestamp, max timestamp, producer id, producer epoch, base sequence, count."""
_CRC_START = 21


def is_intact(batch: StoredBatch, size: int) -> bool:
    """Whether the bytes are the record batch that the columns describe, and carry the right CRC."""
    data = batch.data
    if not isinstance(data, bytes) or len(data) != size or size < _HEADER.size:
        return False
    base, length, epoch, magic, crc, attributes, delta, _, max_timestamp, producer_id, *_ = _HEADER.unpack_from(data)
    return bool(
        base == batch.base_offset
        and length + 12 == size
        and epoch == batch.leader_epoch
        and magic == 2
        and base + delta == batch.last_offset
        and max_timestamp == batch.max_timestamp
        and producer_id == batch.producer_id
        and attributes >> 4 & 3 == _CONTROL_BITS[batch.kind]
        and google_crc32c.value(data[_CRC_START:]) == crc
    )
