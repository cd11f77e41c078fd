"""The mutations of a valid frame: replacements aimed at its marks, cuts, tails, and frames in other frames.

`Mutations` reads a drawn message once and keeps the replacements that its marks allow (a few hundred). An input is
the message with one or several of them. This makes a hundred thousand inputs a second possible.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

from fuzz_grammar import BITS, Mark, varint

Splice = tuple[int, int, bytes]
"""Replace the bytes from the first position to the second."""

_VARINTS = tuple(
    varint(value)
    for value in (0, 1, 2, 3, 127, 128, 129, 255, 16383, 16384, 2**21, 2**28, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1)
)
_BROKEN_VARINTS = (
    b"\xff\xff\xff\xff\x10",  # 33 bits
    b"\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\x01",  # six bytes
    b"\x80\x80\x80\x80\x80\x00",
    b"\x80" * 10 + b"\x01",
    b"\xff" * 9 + b"\x01",  # -1 as a varint of 64 bits
    b"\x80" * 4,
    b"\x80",
)
_INTEGERS = {
    kind: tuple(
        (value & (1 << bits) - 1).to_bytes(bits // 8, "big")
        for value in (0, 1, -1, -2, 2, 127, 128, 255, 256, 1 << bits - 1, (1 << bits - 1) - 1, 7 << bits - 4)
    )
    for kind, bits in (BITS | {"bool": 8}).items()
} | {
    "float64": tuple(struct.pack(">d", value) for value in (0.0, -0.0, float("inf"), float("nan"), 5e-324)),
    "uuid": (bytes(16), b"\xff" * 16, bytes(15) + b"\x01", bytes(15)),
    "null": (b"\0", b"\x01", b"\xff", b"\x7f", b"\x80"),
}
_LENGTHS16 = tuple(struct.pack(">h", value) for value in (0, 1, -1, -2, -32768, 32767, 255, 256))
_LENGTHS32 = tuple(
    struct.pack(">i", value) for value in (0, 1, -1, -2, -(2**31), 2**31 - 1, 255, 65536, 2**24, 2**28, 100_000)
)
_ZIGZAGS = (
    *(
        varint(value << 1 if value >= 0 else -value * 2 - 1)
        for value in (0, 1, -1, -2, 2, 63, 64, -64, 8191, 2**31 - 1)
    ),
    *(varint(value) for value in (2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**64 - 2, 2**64, 2**70)),
    b"\x80\x00",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
    b"\x80" * 10 + b"\x00",
    b"\xff" * 9 + b"\x02",
    b"\x80",
)
"""Replacements for the signed varints of records."""
_TEXTS = (b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x82", b"\0")
"""Every kind of invalid UTF-8, and a zero."""
_TAG_SECTIONS = (
    b"\x01\x63\x00",
    b"\x01\x63\x03abc",
    b"\x02\x63\x01a\x63\x01b",  # twice
    b"\x02\x64\x01a\x63\x01b",  # out of order
    b"\x01\x63\x04abc",
    b"\x01\x63\x02abc",
    b"\x01\xff\xff\xff\xff\x0f\x00",
    b"\x01\xb0\xea\x01\x00",  # 30000: one of kohort's own
    b"\x01\xb3\xea\x01\x00",
    b"\x02\x00\x00\x00\x00",
    b"\x01\x00\x00",
    b"\x01\x00\x01\x00",
    b"\x01\x01\x02\x00\x00",
    b"\x02\x00\x01\x00\x00\x01\x00",
    b"\x01\x63\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x00",
    b"\x81\x80\x00\x63\x00",
)


def _around(mark: Mark) -> list[int]:
    return [value for value in (mark.value - 1, mark.value + 1, mark.value * 2, mark.value + 2) if value >= 0]


def _of_mark(data: bytes, mark: Mark) -> Iterator[Splice]:
    kind, start, end, value, body = mark
    found: Sequence[bytes]
    match kind:
        case "text" | "blob":
            if end > start:
                yield start, start + 1, b"\xff"
                yield end - 1, end, b"\xc3"
                for text in _TEXTS:
                    if len(text) <= end - start:
                        yield start, start + len(text), text
            yield start, end, b""
            return
        case "length16":
            found = (*_LENGTHS16, *(struct.pack(">h", n) for n in _around(mark) if n < 32768))
        case "length32" | "count32":
            found = (*_LENGTHS32, *(struct.pack(">i", n) for n in _around(mark)))
        case "varlength" | "varcount":
            padded = varint(value + 1)
            padded = padded[:-1] + bytes((padded[-1] | 128, 128, 0))
            found = (*_VARINTS, *_BROKEN_VARINTS, *(varint(n + 1) for n in _around(mark)), padded)
        case "tagcount":
            found = (*_VARINTS[:6], *_VARINTS[10:], *_BROKEN_VARINTS)
            for section in _TAG_SECTIONS:
                yield start, body, section
            if value:
                inside = data[end:body]
                yield start, body, varint(2 * value) + inside + inside
                yield start, body, varint(value + 1) + b"\x63\x02ab" + inside
                yield start, body, varint(value + 1) + inside + b"\x63\x02ab"
                yield start, body, b"\0"
        case "varint":
            found = (*_ZIGZAGS, *(varint(2 * n) for n in _around(mark)))
        case "tag":
            found = (*_VARINTS[:4], varint(value + 1), varint(30_000), varint(30_003), *_VARINTS[-2:], *_BROKEN_VARINTS)
        case "tagsize":
            found = (*_VARINTS, *_BROKEN_VARINTS, *(varint(n) for n in _around(mark)))
            yield start, body, varint(0)
            if value:
                yield start, body, varint(value - 1) + data[end : body - 1]
            yield start, body, varint(value + 1) + data[end:body] + b"\0"
        case _:
            found = _INTEGERS[kind]
    for replacement in found:
        yield start, end, replacement
    if kind in ("count32", "varcount") and value > 0 and body > end:
        # More elements with a correct count: only their number is unusual.
        for times in (2, 9, 50):
            if (body - end) * times < 20_000:
                count = value * times
                length = varint(count + 1) if kind == "varcount" else struct.pack(">i", count)
                yield start, body, length + data[end:body] * times
    if kind in ("length16", "length32", "varlength") and value >= 0:
        # A longer text or blob with a correct length.
        for size in (129, 300):
            length = (
                varint(size + 1)
                if kind == "varlength"
                else size.to_bytes(2 if kind == "length16" else 4, "big", signed=True)
            )
            yield start, body, length + b"a" * size


class Mutations:
    """The mutations of one frame. `marks` may leave out what shall stay as it is (`start` on)."""

    __slots__ = ("_borders", "_chance", "_splices", "data")

    def __init__(self, data: bytes, marks: Sequence[Mark], chance: random.Random) -> None:
        self.data = data
        self._chance = chance
        self._splices = [splice for mark in marks for splice in _of_mark(data, mark)]
        self._borders = [mark.start for mark in marks] or [0]

    def one(self) -> bytes:
        """The frame with one of its marks replaced, cut, with a tail, or worse."""
        random = self._chance.random
        data, splices = self.data, self._splices
        pick = random()
        if pick < 0.62 and splices:
            start, end, replacement = splices[int(random() * len(splices))]
            return data[:start] + replacement + data[end:]
        if pick < 0.82 and splices:
            first = splices[int(random() * len(splices))]
            second = splices[int(random() * len(splices))]
            if first[0] > second[0]:
                first, second = second, first
            if first[1] <= second[0]:
                return b"".join((data[: first[0]], first[2], data[first[1] : second[0]], second[2], data[second[1] :]))
            return data[: first[0]] + first[2] + data[first[1] :]
        if pick < 0.88:
            return data[: int(random() * len(data))]
        if pick < 0.92:
            return data[: self._borders[int(random() * len(self._borders))]]
        if pick < 0.97:
            place = int(random() * len(data))
            return data[:place] + bytes((int(random() * 256),)) + data[place + 1 :]
        return self._rare()

    def _rare(self) -> bytes:
        chance, data = self._chance, self.data
        first, second = (int(chance.random() * (len(data) + 1)) for _ in range(2))
        if first > second:
            first, second = second, first
        match int(chance.random() * 6):
            case 0:
                return data + chance.randbytes(1 + int(chance.random() * 8))
            case 1:
                return data + data
            case 2:
                return data[:first] + data[second:]
            case 3:
                return data[:second] + data[first:]
            case 4:
                return data[:first] + chance.randbytes(second - first) + data[second:]
            case _:
                return data[:first] + data[:second]
