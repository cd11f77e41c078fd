"""One task's reading, against fetches made by hand: gaps, control batches, damage, silence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.leaders import FetchedPartition
from kohort.spark import arrow, read
from kohort.spark.options import parse
from kohort.spark.plan import DataLoss
from kohort.spark.read import Range, read_range
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode

OPTIONS = {"kafka.bootstrap.servers": "unused:1", "subscribe": "t"}


def batch(first: int, offsets: list[int], **options: Any) -> bytes:
    records = [NewRecord(b"k", b"%d" % (first + delta), 1_000) for delta in offsets]
    return encode_batch(records, base_offset=first, offsets=offsets, **options)


@pytest.fixture(autouse=True, params=["numba", "python"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(arrow.DECODER_VARIABLE, request.param)


class Log:
    """Answers fetches as a broker does: whole batches from the one that holds the position on, one at a time."""

    def __init__(self, batches: list[tuple[int, bytes]], end: int) -> None:
        self.batches = batches
        self.end = end
        self.fetches: list[int] = []

    def fetch(self, _: Cluster, positions: dict[tuple[str, int], int], **__: object) -> list[FetchedPartition]:
        (position,) = positions.values()
        self.fetches.append(position)
        found = next((data for last, data in self.batches if last >= position), b"")
        return [FetchedPartition("t", 0, ErrorCode.NONE, self.end, self.end, 0, found)]


def values(
    monkeypatch: pytest.MonkeyPatch, log: Log, start: int, end: int, options: dict[str, str] | None = None
) -> list[int]:
    monkeypatch.setattr(Cluster, "fetch_ahead", lambda c, p, **k: lambda: log.fetch(c, p))
    batches = read_range(parse(OPTIONS | (options or {})), Range("t", 0, start, end))
    return [int(value) for one in batches for value in one.column("value").to_pylist()]


def test_it_stops_on_position_whatever_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(
        [(4, batch(0, [0, 4])), (9, batch(7, [0, 2], compression=4)), (10, batch(10, [0], is_control=True))], end=11
    )
    assert values(monkeypatch, log, 0, 11) == [0, 4, 7, 9]
    assert log.fetches == [0, 5, 10]
    # A range that begins and ends inside of batches.
    assert values(monkeypatch, log, 1, 8) == [4, 7]


def test_a_gap_at_the_end_of_the_log_ends_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "GAP_S", 0.0)
    assert values(monkeypatch, Log([(4, batch(0, [0, 4]))], end=9), 0, 9) == [0, 4]


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


def test_batches_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log([(n + 2, batch(n, [0, 1, 2])) for n in range(0, 30, 3)], end=30)
    monkeypatch.setattr(Cluster, "fetch_ahead", lambda c, p, **k: lambda: log.fetch(c, p))
    monkeypatch.setattr(arrow, "ROWS", 4)
    sizes = [one.num_rows for one in read_range(parse(OPTIONS), Range("t", 0, 0, 30))]
    assert sizes == [4] * 7 + [2]
    monkeypatch.setattr(arrow, "ROWS", 1_000)
    monkeypatch.setattr(arrow, "BYTES", 1)
    sizes = [one.num_rows for one in read_range(parse(OPTIONS), Range("t", 0, 0, 30))]
    assert sizes == [1] * 30


def test_keys_and_values_may_become_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([pa.field("topic", pa.string()), pa.field("size", pa.int32())])

    def convert(keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([keys.cast(pa.string()), pc.binary_length(values)], schema=schema)

    log = Log([(2, batch(0, [0, 1, 2]))], end=3)
    monkeypatch.setattr(Cluster, "fetch_ahead", lambda c, p, **k: lambda: log.fetch(c, p))
    [made] = read_range(parse(OPTIONS | {"includeHeaders": "true"}), Range("t", 0, 1, 3), convert)
    assert made.schema == read.converted_schema(schema)
    place = {"log_partition": 0, "log_time": datetime.fromtimestamp(1, UTC)}
    assert made.to_pylist() == [{"topic": "k", "size": 1, "log_offset": n, **place} for n in (1, 2)]
