"""Record batches: against the builders of other clients, round trips, and damage of every kind."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch
from kio_oracle import examples

from kohort.wire.batches import (
    HEADER_SIZE,
    CorruptBatch,
    NewRecord,
    Record,
    UnsupportedMagic,
    check_crc,
    decode_columns,
    decode_records,
    encode_batch,
    find_batches,
    join_batches,
    last_header,
    patch,
    read_header,
    set_log_append_time,
    split_batches,
)
from kohort.wire.compression import ExpansionLimit
from kohort.wire.errors import ProtocolError
from kohort.wire.records import find_time, read_varint, varint

CODECS = [0, 1, 2, 3, 4]
BYTES = st.none() | st.binary(max_size=10) | st.integers(60, 9000).map(bytes)
TIMESTAMPS = st.integers(0, 2**42)
LATEST = 2**63 - 1
HEADERS = st.lists(st.tuples(st.text(st.characters(exclude_categories=("Cs",)), max_size=5), BYTES), max_size=3).map(
    tuple
)
RECORDS = st.lists(st.builds(NewRecord, key=BYTES, value=BYTES, timestamp=TIMESTAMPS, headers=HEADERS), min_size=1)

SAMPLE = [
    NewRecord(b"key", b"value " * 20, 1_700_000_000_000),
    NewRecord(None, b"", 1_700_000_000_250, (("trace", b"\0\1"), ("none", None), ("", b""))),
    NewRecord(b"", None, 1_699_999_999_000),
    NewRecord(b"k" * 200, b"v" * 70_000, 1_700_000_100_000),
]


def numbered(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [Record(base_offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(codec: int) -> None:
    @examples(40)
    @given(records=RECORDS, base_offset=st.integers(0, 2**60), epoch=st.integers(-1, 2**31 - 1))
    def check(records: list[NewRecord], base_offset: int, epoch: int) -> None:
        batch = encode_batch(records, base_offset=base_offset, compression=codec, leader_epoch=epoch)
        header = read_header(batch)
        assert header.size == len(batch)
        assert check_crc(batch, header)
        assert header.base_offset == base_offset
        assert header.partition_leader_epoch == epoch
        assert header.last_offset == base_offset + len(records) - 1
        assert header.record_count == len(records)
        assert header.compression == codec
        assert header.base_timestamp == records[0].timestamp
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert not header.is_control
        assert not header.is_transactional
        assert decode_records(batch) == numbered(records, base_offset)
        columns = decode_columns(batch, header)
        assert columns.keys == [record.key for record in records]
        assert (columns.headers is None) == (not any(record.headers for record in records))

    check()


@examples(40)
@given(
    parts=st.lists(st.tuples(RECORDS, st.integers(0, 70) | st.integers(0, 2**28)), min_size=1, max_size=5),
    close=st.booleans(),
    base_offset=st.integers(0, 2**60),
)
def test_joined_batches_are_what_one_batch_of_all_would_be(
    parts: list[tuple[list[NewRecord], int]], close: bool, base_offset: int
) -> None:
    """Byte by byte, with gaps between their offsets; `close`: times as of a broker's own records."""
    batches, everything, deltas, next_offset = [], [], [], base_offset
    for number, (records, gap) in enumerate(parts):
        if close:
            records = [NewRecord(r.key, r.value, 1_700_000_000_000 + number, r.headers) for r in records]
        batches.append(encode_batch(records, base_offset=next_offset))
        everything += records
        deltas += [next_offset - base_offset + index for index in range(len(records))]
        next_offset += len(records) + gap
    assert join_batches(batches) == encode_batch(everything, base_offset=base_offset, offsets=deltas)


@pytest.mark.parametrize("codec", CODECS)
def test_other_clients_read_what_we_write(codec: int) -> None:
    batch = encode_batch(SAMPLE, base_offset=100, compression=codec)
    readers: list[Any] = [AiokafkaBatch]
    if codec <= 1:  # kafka-python needs further packages for the others
        readers.append(KafkaPythonBatch)
    for reader in readers:
        theirs = reader(batch)
        assert theirs.validate_crc()
        read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
        assert read == numbered(SAMPLE, 100)
    if codec == 0:  # kio leaves compression to its users
        entity, size = read_batch(batch, 0)
        assert size == len(batch)
        assert [record.value for record in entity.records] == [record.value for record in SAMPLE]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("builder", [AiokafkaBuilder, KafkaPythonBuilder])
def test_we_read_what_other_clients_write(codec: int, builder: Any) -> None:
    if builder is KafkaPythonBuilder and codec > 1:
        builder = AiokafkaBuilder
    producer: dict[str, Any] = {"producer_id": 77, "producer_epoch": 3, "base_sequence": 9, "is_transactional": True}
    theirs = builder(magic=2, compression_type=codec, batch_size=1_000_000, **producer)
    for i, record in enumerate(SAMPLE):
        theirs.append(i, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(theirs.build())
    header = read_header(batch)
    assert check_crc(batch, header)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 9)
    assert decode_records(batch, header) == numbered(SAMPLE)
    if codec == 0:
        assert encode_batch(SAMPLE, leader_epoch=header.partition_leader_epoch, **producer) == batch


def test_patching_changes_offset_and_epoch_and_nothing_else() -> None:
    batch = encode_batch(SAMPLE, compression=3)
    patched = patch(batch, 12345, 7)
    header = read_header(patched)
    assert (header.base_offset, header.partition_leader_epoch) == (12345, 7)
    assert check_crc(patched, header)
    assert patched[8:12] + patched[16:] == batch[8:12] + batch[16:]


def test_log_append_time() -> None:
    batch = set_log_append_time(encode_batch(SAMPLE), 999)
    header = read_header(batch)
    assert check_crc(batch, header)
    assert header.timestamp_type == 1
    assert [record.timestamp for record in decode_records(batch)] == [999] * len(SAMPLE)
    assert [record.timestamp for record in AiokafkaBatch(batch)] == [999] * len(SAMPLE)


def test_gaps_as_compaction_leaves_them() -> None:
    batch = encode_batch(SAMPLE, base_offset=10, offsets=[0, 5, 6, 300])
    assert [record.offset for record in decode_records(batch)] == [10, 15, 16, 310]
    assert read_header(batch).last_offset == 310


def test_control_batches_are_flagged() -> None:
    batch = encode_batch([NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\0", 5)], is_control=True, is_transactional=True)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert len(decode_records(batch)) == 1


def test_a_batch_without_records_is_refused_on_the_way_out_and_read_on_the_way_in() -> None:
    with pytest.raises(ValueError):
        encode_batch([])
    # Compaction keeps the empty batch of an idempotent producer.
    header = read_header(encode_batch(SAMPLE))._replace(record_count=0, batch_length=HEADER_SIZE - 12)
    batch = encode_batch(SAMPLE)[:HEADER_SIZE]
    assert decode_records(batch, header) == []


def test_splitting() -> None:
    batches = [encode_batch(SAMPLE[:n], base_offset=n) for n in (1, 2, 3)]
    whole = b"".join(batches)
    assert [batch for _, batch in split_batches(whole)] == batches
    assert [header.base_offset for header, _ in split_batches(whole)] == [1, 2, 3]
    assert split_batches(b"") == []
    for cut in range(1, len(batches[2]), 7):
        with pytest.raises(CorruptBatch):
            split_batches(whole[:-cut])
        assert [batch for _, batch in split_batches(whole[:-cut], strict=False)] == batches[:2]


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_magics_have_their_own_exception(magic: int) -> None:
    batch = bytearray(encode_batch(SAMPLE))
    batch[16] = magic
    for strict in (True, False):
        with pytest.raises(UnsupportedMagic):
            split_batches(bytes(batch), strict=strict)
    with pytest.raises(UnsupportedMagic):
        read_header(bytes(batch[:17]))
    # A message of magic 0 or 1 may be shorter than a batch's header.
    with pytest.raises(UnsupportedMagic):
        split_batches(bytes(8) + b"\0\0\0\x0e" + bytes(4) + bytes([magic]) + bytes(9))


def test_every_flipped_bit_after_the_checksum_is_noticed() -> None:
    batch = encode_batch(SAMPLE[:3])
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1 << position % 8
        with contextlib.suppress(ProtocolError):
            assert not check_crc(bytes(damaged), read_header(bytes(damaged)))


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 3},
        {"record_count": 5},
        {"record_count": 2**31 - 1},
        {"last_offset_delta": 1},
        {"attributes": 1},
        {"attributes": 5},
        {"batch_length": 10_000_000},
        {"batch_length": 100},
    ],
)
def test_headers_that_do_not_fit_the_records(changes: dict[str, int]) -> None:
    batch = encode_batch(SAMPLE)
    with pytest.raises(ProtocolError):
        decode_records(batch, read_header(batch)._replace(**changes))


@pytest.mark.parametrize(
    ("position", "data"), [(8, b"\0\0\0\x30"), (8, b"\xff\xff\xff\xff"), (57, b"\xff" * 4), (23, b"\xff" * 4)]
)
def test_impossible_header_fields(position: int, data: bytes) -> None:
    batch = encode_batch(SAMPLE)
    with pytest.raises(CorruptBatch):
        read_header(batch[:position] + data + batch[position + len(data) :])
    with pytest.raises(CorruptBatch):
        read_header(batch[:60])


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_records_give_protocol_errors_only(codec: int) -> None:
    chance = random.Random(codec)
    batch = encode_batch(SAMPLE[:3], compression=codec)
    header = read_header(batch)
    for _ in range(1500):
        damaged = bytearray(batch)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(HEADER_SIZE, len(batch))] = chance.randrange(256)
        with contextlib.suppress(ProtocolError):
            assert len(decode_records(bytes(damaged), header)) == 3
    for cut in range(HEADER_SIZE, len(batch)):
        with pytest.raises(ProtocolError):
            decode_records(batch[:cut], header._replace(batch_length=cut - 12))


@pytest.mark.parametrize("codec", CODECS)
def test_bombs_are_refused(codec: int) -> None:
    batch = encode_batch([NewRecord(None, bytes(20_000_000), 0)], compression=codec)
    with pytest.raises(ExpansionLimit):
        decode_records(batch, max_bytes=10_000_000)
    assert len(decode_records(batch, max_bytes=21_000_000)) == 1


def test_hostile_header_counts() -> None:
    body = b"\0\0\0\1\1" + varint(2**31 - 1)
    record = varint(len(body)) + body
    batch = encode_batch([NewRecord(None, b"x" * (len(record) - 7), 0)])
    damaged = batch[:HEADER_SIZE] + record
    with pytest.raises(CorruptBatch):
        decode_records(damaged, read_header(batch)._replace(batch_length=len(damaged) - 12))


@pytest.mark.parametrize(
    "value", [0, 1, -1, 63, -64, 64, -65, 1023, 1024, 8191, -8192, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
)
def test_varints(value: int) -> None:
    data = varint(value)
    assert read_varint(b"x" + data + b"y", 1) == (value, 1 + len(data))
    unsigned = (value << 1) ^ (value >> 63)
    sevens = [unsigned >> shift & 127 for shift in range(0, max(unsigned.bit_length(), 1), 7)]
    assert data == bytes([*(seven | 128 for seven in sevens[:-1]), sevens[-1]])


@pytest.mark.parametrize("times", [[-1, LATEST], [LATEST, -1], [-(2**63), LATEST, 0]])
def test_times_that_differ_by_more_than_64_bits(times: list[int]) -> None:
    """The deltas wrap around, as those of Java's and librdkafka's producers do."""
    batch = encode_batch([NewRecord(None, b"v", time) for time in times])
    header = read_header(batch)
    assert [record.timestamp for record in decode_records(batch)] == times
    assert find_time(header, batch[HEADER_SIZE:], LATEST, 0) == (LATEST, times.index(LATEST))
    assert find_time(header, batch[HEADER_SIZE:], None, 0) == (LATEST, times.index(LATEST))
    moved = join_batches([encode_batch([NewRecord(None, b"v", 7)]), patch(batch, base_offset=1, leader_epoch=0)])
    assert [record.timestamp for record in decode_records(moved)] == [7, *times]


@pytest.mark.parametrize("data", [b"\x80" * 10 + b"\0", b"\xff" * 9 + b"\x02"])
def test_overlong_varints(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_varint(data, 0)


def test_the_last_batch_is_found_by_lengths() -> None:
    data = b"".join(
        encode_batch([NewRecord(None, bytes(number), 0)] * 3, base_offset=3 * number) for number in range(4)
    )
    for end in range(len(data) + 1):
        whole = find_batches(data[:end], strict=False)
        assert last_header(data[:end]) == (whole[-1][0] if whole else None)
    with pytest.raises(ProtocolError):
        last_header(data[:8] + bytes(4) + data[12:])
