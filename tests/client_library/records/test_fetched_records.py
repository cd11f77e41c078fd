"""Records out of fetched bytes: gaps, cuts, markers, damage. The position always passes a whole batch."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.errors import KafkaError
from kohort.client.records import next_position, records
from kohort.client.records.partition_leaders import FetchedPartition
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode

ABORT = b"\x00\x00\x00\x00"
COMMIT = b"\x00\x00\x00\x01"


def fetched(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedPartition:
    return FetchedPartition("t", 0, ErrorCode.NONE, 100, 100, 0, b"".join(batches), aborted)


def batch(base: int, *values: bytes, offsets: tuple[int, ...] | None = None, compression: int = 0) -> bytes:
    new = [NewRecord(b"k", value, 1_000 + index, (("h", b"x"),)) for index, value in enumerate(values)]
    return encode_batch(new, base_offset=base, offsets=offsets, compression=compression)


def of_producer(base: int, producer: int, *records: NewRecord, **fields: Any) -> bytes:
    return encode_batch(
        records, base_offset=base, producer_id=producer, producer_epoch=0, is_transactional=True, **fields
    )


def transactional(base: int, producer: int, value: bytes) -> bytes:
    return of_producer(base, producer, NewRecord(None, value, 1_000), base_sequence=0)


def marker(base: int, producer: int, kind: bytes) -> bytes:
    return of_producer(base, producer, NewRecord(kind, b"\x00\x00\x00\x00\x00\x00", 1_000), is_control=True)


def offsets(part: FetchedPartition, position: int = 0) -> list[int]:
    return [record.offset for record in records(part, position)]


@pytest.mark.parametrize("compression", range(5))
def test_a_record_is_what_was_written(compression: int) -> None:
    (record,) = records(fetched(batch(7, b"value", compression=compression)), 0)
    assert record == ("t", 0, 7, 1_000, 0, b"k", b"value", (("h", b"x"),))


def test_a_batch_that_begins_before_the_position_is_read_from_there() -> None:
    part = fetched(batch(0, b"a", b"b", b"c"), batch(3, b"d"))
    assert offsets(part, 2) == [2, 3]
    assert next_position(part, 2) == 4


def test_a_cut_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    part = fetched(batch(0, b"a"), batch(1, b"b")[:-1])
    assert offsets(part) == [0]
    assert next_position(part, 0) == 1


def test_an_empty_fetch_does_not_move_the_position() -> None:
    assert offsets(fetched()) == []
    assert next_position(fetched(), 5) == 5


def test_the_position_moves_over_compacted_records() -> None:
    part = fetched(batch(0, b"a", b"z", offsets=(0, 9)), batch(20, b"b", offsets=(3,)))
    assert offsets(part) == [0, 9, 23]
    assert next_position(part, 0) == 24
    assert offsets(part, 10) == [23]


def test_markers_are_no_records() -> None:
    part = fetched(transactional(0, 5, b"a"), marker(1, 5, COMMIT), batch(2, b"b"), marker(3, 6, ABORT))
    assert offsets(part) == [0, 2]
    assert next_position(part, 0) == 4


def test_aborted_records_are_left_out_until_their_marker() -> None:
    part = fetched(
        transactional(0, 5, b"aborted"),
        transactional(1, 6, b"committed"),
        marker(2, 5, ABORT),
        transactional(3, 5, b"a later transaction"),
        marker(4, 5, COMMIT),
        marker(5, 6, COMMIT),
        aborted=((5, 0),),
    )
    assert offsets(part) == [1, 3]


def test_damage_is_an_error_that_names_the_partition() -> None:
    damaged = bytearray(batch(0, b"value"))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError, match="cannot read the records of t-0") as raised:
        offsets(fetched(bytes(damaged)))
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
