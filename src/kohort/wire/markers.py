"""Transaction markers: control batches of one record that say how a transaction ended on a partition.

Kafka's EndTransactionMarker and ControlRecordType: the key is a version and a type, the value a version and the epoch
of the transaction's coordinator. A marker has its producer's id and no sequence number.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error
from typing import NamedTuple

from kohort.wire.batches import BatchHeader, NewRecord, decode_records, encode_batch, patch, read_header
from kohort.wire.errors import ProtocolError

ABORT, COMMIT = 0, 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class Marker(NamedTuple):
    producer_id: int
    epoch: int
    """Of the data, or one more if the producer gets a new epoch with each end."""
    committed: bool
    coordinator_epoch: int


def marker_batch(marker: Marker, timestamp: int, *, base_offset: int = 0, leader_epoch: int = 0) -> bytes:
    """The batch of a marker; `timestamp` in milliseconds."""
    return patch(_batch(marker, timestamp), base_offset, leader_epoch)


@lru_cache(maxsize=16)
def _batch(marker: Marker, timestamp: int) -> bytes:
    """Cached, because the markers of a transaction differ only in what the checksum does not cover."""
    key = _KEY.pack(0, COMMIT if marker.committed else ABORT)
    record = NewRecord(key, _VALUE.pack(0, marker.coordinator_epoch), timestamp)
    return encode_batch(
        [record],
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        is_control=True,
        is_transactional=True,
    )


def read_marker(batch: bytes, header: BatchHeader | None = None) -> Marker | None:
    """The marker in a control batch; None for control records of other kinds and for a batch that compaction emptied.

    Raises ProtocolError for a batch that is damaged."""
    header = header or read_header(batch)
    if not header.is_control:
        raise ValueError("only control batches hold markers")
    for record in decode_records(batch, header):
        if record.key is None or record.value is None:
            raise ProtocolError("a control record without a key or a value")
        try:
            _, kind = _KEY.unpack_from(record.key)
            if kind not in (ABORT, COMMIT):
                continue
            _, coordinator_epoch = _VALUE.unpack_from(record.value)
        except error:
            raise ProtocolError("a control record is cut short") from None
        return Marker(header.producer_id, header.producer_epoch, kind == COMMIT, coordinator_epoch)
    return None
