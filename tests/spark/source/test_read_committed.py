"""Transactions in a log: a task reads the committed records of its range, and no others, whatever the log looks like.

Random logs of several producers, whose transactions interleave, end by either marker or stay open; with markers that
are repeated or have no data, and with batches and markers that compaction has removed. An answer to a fetch has the
aborted list as Apache Kafka makes it. The oracle looks for the next marker of a record's producer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.client.cluster import Cluster
from kohort.client.records import next_position, records
from kohort.client.records.partition_leaders import FetchedPartition
from kohort.spark.arrow.decoder import DECODER_VARIABLE
from kohort.spark.options.source import parse
from kohort.spark.source import read
from kohort.spark.source.read import Range, read_range
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode

OPTIONS = {"kafka.bootstrap.servers": "unused:1", "subscribe": "t", "isolation.level": "read_committed"}
PRODUCERS = (7, 8)
PLAIN = -1


@dataclass
class Log:
    """Batches of a partition, and which of their records count."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """First and last offset, and the bytes."""
    committed: list[int] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, first offset and marker of each aborted transaction with data, in order of the markers."""
    stable: int = 0
    """The last stable offset."""

    def fetch(self, position: int, at_once: int, committed: bool = True) -> FetchedPartition:
        """As the leader answers: whole batches before the last stable offset, and the aborted list for their range."""
        found = [one for one in self.batches if position <= one[1] < self.stable][:at_once]
        end = found[-1][1] + 1 if found else position
        listed = ((who, first) for who, first, marker in self.aborted if marker >= position and first < end)
        data = b"".join(data for *_, data in found)
        aborted = tuple(listed) if committed else ()
        return FetchedPartition("t", 0, ErrorCode.NONE, self.stable, self.stable, 0, data, aborted)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """What producers do, one step after the other."""
    log, at = Log(), 0
    running: dict[int, list[int]] = {}
    steps = st.tuples(
        st.sampled_from([PLAIN, *PRODUCERS]), st.sampled_from(["send", "send", "commit", "abort", "abort"])
    )
    for producer, step in draw(st.lists(steps, min_size=5, max_size=30)):
        kept = draw(st.integers(0, 9)) > 0
        if step == "send" or producer == PLAIN:
            # Gaps inside of a batch, as compaction leaves them.
            deltas = sorted(draw(st.sets(st.integers(0, 4), min_size=1, max_size=4)))
            offsets = [at + delta for delta in deltas]
            if kept:
                log.batches.append((at, offsets[-1], _data(at, deltas, producer, draw(st.integers(0, 4)))))
                if producer == PLAIN:
                    log.committed += offsets
            if producer != PLAIN:
                running.setdefault(producer, [at]).extend(offsets if kept else ())
            at = offsets[-1] + 1
            continue
        first, *sent = running.pop(producer, [at])
        if step == "commit":
            log.committed += sent
        if kept or (step == "abort" and sent):  # a marker stays as long as its data, and the list's entry with it
            log.batches.append((at, at, _marker(at, producer, committed=step == "commit")))
            if step == "abort" and first < at:
                log.aborted.append((producer, first, at))
        at += 1
    log.stable = min([at, *(first for first, *_ in running.values())])
    log.committed = sorted(offset for offset in log.committed if offset < log.stable)
    return log


def _data(first: int, deltas: list[int], producer: int, compression: int) -> bytes:
    new = [NewRecord(b"k", b"%d" % (first + delta), 1_000) for delta in deltas]
    fields: dict[str, Any] = {}
    if producer != PLAIN:
        fields = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
    return encode_batch(new, base_offset=first, offsets=deltas, compression=compression, **fields)


def _marker(at: int, producer: int, *, committed: bool) -> bytes:
    record = NewRecord(bytes((0, 0, 0, committed)), b"\0\0\0\0\0\0", 1_000)
    return encode_batch(
        [record], base_offset=at, producer_id=producer, producer_epoch=0, is_control=True, is_transactional=True
    )


def rows(log: Log, start: int, end: int, at_once: int) -> list[int]:
    """The offsets that a task yields; the values of its rows say the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "GAP_S", 0.0)

        def fetch_ahead(_: Cluster, positions: dict[tuple[str, int], int], **given: Any) -> Any:
            assert given["isolation"] == "read_committed"
            return lambda: [log.fetch(positions["t", 0], at_once)]

        patch.setattr(Cluster, "fetch_ahead", fetch_ahead)
        found = list(read_range(parse(OPTIONS), Range("t", 0, start, end)))
    offsets = [offset for one in found for offset in one.column("offset").to_pylist()]
    assert [int(value) for one in found for value in one.column("value").to_pylist()] == offsets
    return offsets


@pytest.mark.parametrize("decoder", ["numba", "python"])
@settings(max_examples=150)
@given(log=logs(), data=st.data())
def test_a_task_reads_the_committed_records_of_its_range(decoder: str, log: Log, data: st.DataObject) -> None:
    """Ranges meet anywhere below the last stable offset, and each committed record is in one of them."""
    cuts = data.draw(st.lists(st.integers(0, log.stable), max_size=3))
    bounds = [0, *sorted(cuts), log.stable]
    at_once = data.draw(st.integers(1, 30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DECODER_VARIABLE, decoder)
        parts = [rows(log, *part, at_once) for part in pairwise(bounds)]
    for (start, end), found in zip(pairwise(bounds), parts, strict=True):
        assert found == [offset for offset in log.committed if start <= offset < end]


@settings(max_examples=300)
@given(log=logs(), at_once=st.integers(1, 30), start=st.integers(0, 10))
def test_a_client_reads_the_committed_records_from_any_position(log: Log, at_once: int, start: int) -> None:
    position, found = start, []
    while (fetched := log.fetch(position, at_once)).records:
        found += [record.offset for record in records(fetched, position)]
        position = next_position(fetched, position)
    assert found == [offset for offset in log.committed if offset >= start]


@given(log=logs())
def test_without_read_committed_all_data_below_the_end_is_read(log: Log) -> None:
    fetched = log.fetch(0, len(log.batches), committed=False)
    found = [record.offset for record in records(fetched, 0)]
    assert set(log.committed) <= set(found)
    assert sum(1 for first, _, data in log.batches if first < log.stable and data[22] & 0x20 == 0) <= len(found)
