"""Reads much, and prints by how many MB the process has grown at most: for small records, large and compressed ones."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

from kohort.client.cluster import Cluster
from kohort.client.records.partition_leaders import FetchedPartition
from kohort.spark.arrow.decoder import WORTH_IT, filler
from kohort.spark.options.source import parse
from kohort.spark.source.read import Range, read_range
from kohort.wire.batches import NewRecord, encode_batch, patch, read_header
from kohort.wire.errors import ErrorCode

OPTIONS = parse({"kafka.bootstrap.servers": "unused:1", "subscribe": "t"})
ANSWER_BYTES = 4 << 20


def log_of(batch: bytes) -> Callable[..., Callable[[], list[FetchedPartition]]]:
    """An endless log of the same batch, answered as `Cluster.fetch_ahead` does."""
    each = read_header(batch).last_offset + 1
    count = max(1, ANSWER_BYTES // len(batch))

    def fetch_ahead(_: Cluster, positions: dict[Any, int], **__: object) -> Callable[[], list[FetchedPartition]]:
        first = next(iter(positions.values())) // each * each
        data = b"".join(patch(batch, first + n * each, 0) for n in range(count))
        return lambda: [FetchedPartition("t", 0, ErrorCode.NONE, 2**60, 2**60, 0, data)]

    return fetch_ahead


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def read(name: str, batch: bytes, records: int) -> None:
    Cluster.fetch_ahead = log_of(batch)  # type: ignore[method-assign]
    before = peak_mb()
    rows = sum(columns.num_rows for columns in read_range(OPTIONS, Range("t", 0, 0, records)))
    assert rows == records
    print(name, peak_mb() - before, flush=True)


def main() -> None:
    filler(WORTH_IT, False)  # numba is loaded
    read("small", encode_batch([NewRecord(b"k", b"v" * 1_000, 1)] * 60), 400_000)
    large = encode_batch([NewRecord(b"k", b"v" * (20 << 20), 1)])
    read("large", large, 12)
    read("compressed", encode_batch([NewRecord(None, b"v" * 1_000, 1)] * 60_000, compression=4), 360_000)


if __name__ == "__main__":
    main()
