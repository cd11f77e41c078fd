"""Transaction markers, byte by byte."""

from __future__ import annotations

import pytest

from kohort.wire.batches import HEADER_SIZE, NewRecord, encode_batch, read_header
from kohort.wire.errors import ProtocolError
from kohort.wire.markers import Marker, marker_batch, read_marker


@pytest.mark.parametrize("committed", [True, False])
def test_the_bytes_of_a_marker(committed: bool) -> None:
    marker = Marker(producer_id=1_000, epoch=7, committed=committed, coordinator_epoch=3)
    batch = marker_batch(marker, 5_000, base_offset=42, leader_epoch=9)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset_delta, header.partition_leader_epoch) == (42, 0, 9)
    assert (header.attributes, header.base_sequence, header.record_count) == (0x30, -1, 1)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (1_000, 7, 5_000)
    # length 16, attributes, timestamp and offset deltas 0, a key of 4 bytes, a value of 6, no headers
    kind = b"\1" if committed else b"\0"
    assert batch[HEADER_SIZE:] == b"\x20\0\0\0" + b"\x08\0\0\0" + kind + b"\x0c\0\0\0\0\0\3" + b"\0"
    assert read_marker(batch) == marker


def test_control_records_of_other_kinds_are_no_markers() -> None:
    leader_change = encode_batch([NewRecord(b"\0\0\0\2", b"\0\0", 1)], is_control=True)
    assert read_marker(leader_change) is None


def test_a_batch_of_data_is_refused() -> None:
    with pytest.raises(ValueError, match="only control batches"):
        read_marker(encode_batch([NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\0", 1)]))


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0\0", b"\0\0\0\0\0\0"), (b"\0\0\0\1", b"\0"), (None, b""), (b"\0\0\0\1", None)]
)
def test_a_broken_marker_is_an_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        read_marker(encode_batch([NewRecord(key, value, 1)], is_control=True))
