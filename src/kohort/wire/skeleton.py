"""Bytes that differ only in 64-bit numbers, read and written without parsing the rest.

Comparing the message encoded with 0 and with -1 finds the positions of the numbers. So a skeleton works for every
message and version, without knowledge of its layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from struct import Struct

_NUMBER = b"\xff" * 8
"""0 and -1 differ in all bytes of a number: eight, big-endian and signed."""


class Skeleton:
    """`zeros` and `ones`: the bytes with 0 and with -1 for each number. ValueError if they differ in anything else."""

    __slots__ = ("_pieces", "_struct", "size")

    def __init__(self, zeros: bytes, ones: bytes) -> None:
        if len(zeros) != len(ones):
            raise ValueError(f"{len(zeros)} bytes with zeros, {len(ones)} with ones")
        differs = (int.from_bytes(zeros, "big") ^ int.from_bytes(ones, "big")).to_bytes(len(zeros), "big")
        pieces: list[bytes] = []
        end = 0
        while (place := differs.find(_NUMBER, end)) >= 0:
            pieces.append(zeros[end:place])
            end = place + len(_NUMBER)
        if differs.count(0) + len(pieces) * len(_NUMBER) != len(zeros):
            raise ValueError("there are differences that are no numbers")
        pieces.append(zeros[end:])
        self._pieces = tuple(pieces)
        self._struct = Struct(">" + "q".join(f"{len(piece)}s" for piece in pieces))
        self.size = self._struct.size

    def read(self, data: bytes, start: int) -> tuple[int, ...] | None:
        """The numbers, if the bytes from `start` on match; else None."""
        if len(data) - start != self.size:
            return None
        found = self._struct.unpack_from(data, start)
        return found[1::2] if found[::2] == self._pieces else None

    def fill(self, numbers: Sequence[int]) -> bytes:
        """The bytes with these numbers, one for each position."""
        parts = chain.from_iterable(zip(self._pieces, numbers, strict=False))
        return self._struct.pack(*parts, self._pieces[-1])
