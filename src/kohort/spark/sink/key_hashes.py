"""The hashes of a column of keys, which decide the partitions: murmur2 as in `kohort.client.records.partitioner`.

All keys are hashed side by side, one word of four bytes at a time, because a loop over bytes costs more than all else
that a task does with a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kohort.client.records.partitioner import MULTIPLIER, SEED

if TYPE_CHECKING:
    import pyarrow as pa


def key_hashes(keys: pa.Array) -> list[int]:
    """The hash of each key, 31 bits; of a null, that of the empty key. The partition is the rest by the number of
    partitions. The keys are strings or binaries."""
    import pyarrow as pa

    column = keys.cast(pa.large_binary())
    _, ends, data = column.buffers()
    if not len(column):
        return []
    ends = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    # Three bytes more, so that every byte is the first of a word.
    source = np.zeros(int(ends[-1]) + 4, np.uint8)
    source[:-4] = np.frombuffer(data, np.uint8, int(ends[-1])) if data is not None else 0
    words = np.lib.stride_tricks.as_strided(source, (len(source) - 3, 4), (1, 1))
    starts, sizes = ends[:-1], np.diff(ends)
    with np.errstate(over="ignore"):
        hashes: Any = np.uint32(SEED) ^ sizes.astype(np.uint32)
        for index in range(int(sizes.max()) // 4):
            at = np.flatnonzero(sizes >= 4 * index + 4)
            word = _word(words, starts[at] + 4 * index) * np.uint32(MULTIPLIER)
            word = (word ^ word >> np.uint32(24)) * np.uint32(MULTIPLIER)
            hashes[at] = hashes[at] * np.uint32(MULTIPLIER) ^ word
        rest = sizes % 4
        at = np.flatnonzero(rest)
        tail = _word(words, (starts + sizes - rest)[at]) & (
            np.uint32(1) << (8 * rest[at]).astype(np.uint32)
        ) - np.uint32(1)
        hashes[at] = (hashes[at] ^ tail) * np.uint32(MULTIPLIER)
        hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(MULTIPLIER)
        hashes ^= hashes >> np.uint32(15)
    found: list[int] = (hashes & np.uint32(0x7FFFFFFF)).tolist()
    return found


def _word(words: Any, at: Any) -> Any:
    """The four bytes at each position as a little-endian number."""
    return np.ascontiguousarray(words[at]).view("<u4").ravel()
