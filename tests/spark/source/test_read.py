"""One task's reading, against artificial fetches: gaps, control batches, damage, silence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from google_crc32c import value as crc32c

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.records.partition_leaders import FetchedPartition
from kohort.spark.arrow import columns
from kohort.spark.arrow.decoder import DECODER_VARIABLE
from kohort.spark.options.source import parse
from kohort.spark.source import read
from kohort.spark.source.planner import DataLoss
from kohort.spark.source.read import Range, read_range
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode

OPTIONS = {"kafka.bootstrap.servers": "unused:1", "subscribe": "t"}


def batch(first: int, offsets: list[int], **options: Any) -> bytes:
    records = [NewRecord(b"k", b"%d" % (first + delta), 1_000) for delta in offsets]
    return encode_batch(records, base_offset=first, offsets=offsets, **options)


@pytest.fixture(autouse=True, params=["numba", "python"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DECODER_VARIABLE, request.param)


class Log:
    """Answers fetches as a broker does: whole batches, from the batch with the position on, some at a time."""

    def __init__(
        self,
        batches: list[tuple[int, bytes]],
        end: int,
        at_once: int = 1,
        aborted: tuple[tuple[int, int, int], ...] = (),
    ) -> None:
        self.batches = batches
        self.end = end
        self.at_once = at_once
        self.aborted = aborted
        self.fetches: list[int] = []

    def fetch(self, _: Cluster, positions: dict[tuple[str, int], int], **__: object) -> list[FetchedPartition]:
        (position,) = positions.values()
        self.fetches.append(position)
        found = b"".join([data for last, data in self.batches if last >= position][: self.at_once])
        return [FetchedPartition("t", 0, ErrorCode.NONE, self.end, self.end, 0, found, self._aborted(position))]

    def _aborted(self, position: int) -> tuple[tuple[int, int], ...]:
        """Producer and first offset of the aborted transactions that end at or after the position."""
        return tuple((producer, first) for producer, first, last in self.aborted if last >= position)


def blocks(
    monkeypatch: pytest.MonkeyPatch, log: Log, start: int, end: int, options: dict[str, str], *convert: Any
) -> list[pa.RecordBatch]:
    monkeypatch.setattr(Cluster, "fetch_ahead", lambda c, p, **k: lambda: log.fetch(c, p))
    return list(read_range(parse(OPTIONS | options), Range("t", 0, start, end), *convert))


def values(
    monkeypatch: pytest.MonkeyPatch, log: Log, start: int, end: int, options: dict[str, str] | None = None
) -> list[int]:
    found = blocks(monkeypatch, log, start, end, options or {})
    return [int(value) for one in found for value in one.column("value").to_pylist()]


def test_a_range_ends_at_its_offset_whatever_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(
        [(4, batch(0, [0, 4])), (9, batch(7, [0, 2], compression=4)), (10, batch(10, [0], is_control=True))], end=11
    )
    assert values(monkeypatch, log, 0, 11) == [0, 4, 7, 9]
    assert log.fetches == [0, 5, 10]
    # A range that begins and ends inside of batches.
    assert values(monkeypatch, log, 1, 8) == [4, 7]


@pytest.mark.parametrize("at_once", [1, 3])
def test_ranges_that_meet_anywhere_have_each_record_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Ranges may meet inside a batch, in a gap, or at a batch that a fetch cuts short."""
    batches = [
        (4, batch(0, [0, 1, 4])),
        (9, batch(7, [0, 2], compression=4)),
        (10, batch(10, [0], is_control=True)),
        (13, batch(11, [0, 1, 2], compression=2)),
    ]
    cut_short = (14, batch(14, [0])[:-1])
    for cut in range(15):
        log = Log([*batches, cut_short], end=14, at_once=at_once)
        parts = [values(monkeypatch, log, *part) for part in ((0, cut), (cut, 14))]
        assert parts[0] + parts[1] == [0, 1, 4, 7, 9, 11, 12, 13]
        assert all(offset < cut for offset in parts[0])


def test_aborted_records_are_skipped_with_read_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(producer: int, first: int, offsets: list[int], **options: Any) -> tuple[int, bytes]:
        made = batch(first, offsets, producer_id=producer, producer_epoch=0, is_transactional=True, **options)
        return first + offsets[-1], made

    def marker(producer: int, first: int, kind: int) -> tuple[int, bytes]:
        made = [NewRecord(bytes((0, 0, 0, kind)), b"\0\0\0\0\0\0", 1_000)]
        options: dict[str, Any] = {"is_control": True, "is_transactional": True, "producer_epoch": 0}
        return first, encode_batch(made, base_offset=first, producer_id=producer, **options)

    log = [of(7, 0, [0, 1]), of(8, 2, [0, 1], compression=3), of(7, 4, [0]), marker(7, 5, 0), of(7, 6, [0])]
    log += [(7, batch(7, [0])), marker(8, 8, 1), marker(7, 9, 1)]
    for at_once in (1, 2, 8):
        fetched = Log(log, end=10, at_once=at_once, aborted=((7, 0, 5),))
        assert values(monkeypatch, fetched, 0, 10, {"kafka.isolation.level": "read_committed"}) == [2, 3, 6, 7]
    assert values(monkeypatch, Log(log, end=10), 0, 10) == [0, 1, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("log_end", [9, 12])
def test_a_gap_at_the_end_of_the_log_ends_the_range(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log_end: int
) -> None:
    monkeypatch.setattr(read, "GAP_S", 0.0)
    log = Log([(4, batch(0, [0, 4]))], end=log_end)
    assert values(monkeypatch, log, 0, 9) == [0, 4]
    assert (log.fetches[0], log.fetches[-1]) == (0, log_end - 1)
    assert log.fetches.count(5) >= read.GAP_ANSWERS
    assert f"t-0: no records from offset 5 to 9: a gap at the end of the log ({log_end})" in capsys.readouterr().err


class Silent(Log):
    """Gives this many empty answers, like a broker that cannot read from tiered storage."""

    silent = 1_000_000

    def fetch(self, _: Cluster, positions: dict[tuple[str, int], int], **__: object) -> list[FetchedPartition]:
        (position,) = positions.values()
        if position == self.end - 1 or self.silent <= 0:
            return super().fetch(_, positions)
        self.silent -= 1
        return [FetchedPartition("t", 0, ErrorCode.NONE, self.end, self.end, 0, b"")]


@pytest.mark.parametrize("end", [5, 9])
def test_empty_answers_before_later_records_are_no_gap(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """This also holds if the range ends with the log: the last offset exists, so the records before it must come."""
    monkeypatch.setattr(read, "GAP_S", 0.0)
    batches = [(4, batch(0, [0, 1, 2, 3, 4])), (8, batch(5, [0, 3]))]
    with pytest.raises(DataLoss, match=rf"t-0: nothing to read at offset 0 .* the range goes to {end}, the log to 9"):
        values(monkeypatch, Silent(batches, end=9), 0, end, {"kafkaConsumer.pollTimeoutMs": "20"})
    patient = Silent(batches, end=9)
    patient.silent = 50
    assert values(monkeypatch, patient, 0, end) == [0, 1, 2, 3, 4, 5, 8][: 5 if end == 5 else 7]


def test_time_spent_waiting_for_a_broker_is_no_silence() -> None:
    """Connecting, retries and quotas take no part of the limit: one answer after an hour is one answer."""
    options = parse(OPTIONS | {"kafka.fetch.max.wait.ms": "500"})
    silence = read._Silence()
    for now in (3_600.0, 3_600.5, 7_200.0, 10_800.0):
        silence.add(options, now)
    assert (silence.answers, silence.seconds) == (4, 0.5 + 2 * (0.5 + read.BEYOND_WAIT_S))


class Throttled(Log):
    """Answers for no partition at all, ten times."""

    unanswered = 10

    def fetch(self, _: Cluster, positions: dict[tuple[str, int], int], **__: object) -> list[FetchedPartition]:
        self.unanswered -= 1
        return [] if self.unanswered >= 0 else super().fetch(_, positions)


def test_quotas_that_leave_nothing_are_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "GAP_S", 0.0)
    log = Throttled([(4, batch(0, [0, 4]))], end=5)
    assert values(monkeypatch, log, 0, 5) == [0, 4]
    assert log.fetches == [0]


def test_a_log_that_does_not_reach_the_end_is_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    stalled = {"kafkaConsumer.pollTimeoutMs": "1"}
    log = Log([(4, batch(0, [0, 4]))], end=5)
    with pytest.raises(DataLoss, match=r"t-0: nothing to read at offset 5 .* the range goes to 9, the log to 5"):
        values(monkeypatch, log, 0, 9, stalled)
    assert values(monkeypatch, log, 0, 9, stalled | {"failOnDataLoss": "false"}) == [0, 4]


@pytest.mark.parametrize("damage", [20, 70])
def test_a_damaged_batch_is_named(monkeypatch: pytest.MonkeyPatch, damage: int) -> None:
    data = bytearray(batch(20, [0, 1, 2]))
    data[damage] ^= 0xFF
    with pytest.raises(KafkaError, match=r"t-0: the checksum of the batch at offset 20 .*\(fetched at offset 21\)"):
        values(monkeypatch, Log([(22, bytes(data))], end=23), 21, 23)


def test_batches_after_the_range_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = bytearray(batch(10, [0, 1]))
    damaged[-1] ^= 0xFF
    log = Log([(9, batch(0, [0, 9])), (11, bytes(damaged))], end=12, at_once=2)
    assert values(monkeypatch, log, 0, 10) == [0, 9]
    with pytest.raises(KafkaError, match="the checksum of the batch at offset 10"):
        values(monkeypatch, log, 0, 11)


def test_damage_that_the_checksum_does_not_show_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(batch(20, [0, 1, 2]))
    data[-4] = 0x7D  # a length in the last record
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    with pytest.raises(KafkaError, match=r"cannot read t-0, batch at offset 20: .*\(fetched at offset 21\)"):
        values(monkeypatch, Log([(22, bytes(data))], end=23), 21, 23)
    bomb = encode_batch([NewRecord(None, bytes(65 << 20), 1)], base_offset=20, compression=4)
    with pytest.raises(KafkaError, match=r"t-0, batch at offset 20: compressed data expands to more than 67108864"):
        values(monkeypatch, Log([(20, bomb)], end=21), 20, 21)


def test_batches_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log([(n + 2, batch(n, [0, 1, 2])) for n in range(0, 30, 3)], end=30)
    for limit, most, sizes in (("ROWS", 4, [4] * 7 + [2]), ("BYTES", 1, [1] * 30)):
        with monkeypatch.context() as limited:
            limited.setattr(columns, limit, most)
            assert [one.num_rows for one in blocks(limited, log, 0, 30, {})] == sizes


def test_keys_and_values_may_become_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([pa.field("topic", pa.string()), pa.field("size", pa.int32())])

    def convert(keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([keys.cast(pa.string()), pc.binary_length(values)], schema=schema)

    log = Log([(2, batch(0, [0, 1, 2]))], end=3)
    [made] = blocks(monkeypatch, log, 1, 3, {"includeHeaders": "true"}, convert)
    assert made.schema == read.converted_schema(schema)
    place = {"log_partition": 0, "log_time": datetime.fromtimestamp(1, UTC)}
    assert made.to_pylist() == [{"topic": "k", "size": 1, "log_offset": n, **place} for n in (1, 2)]
