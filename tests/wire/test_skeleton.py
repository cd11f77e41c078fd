from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.wire.skeleton import Skeleton

INT64 = st.integers(-(2**63), 2**63 - 1)


def message(pieces: list[bytes], numbers: list[int]) -> bytes:
    """The pieces with numbers between them."""
    written = [struct.pack(">q", number) for number in numbers]
    return b"".join(part for pair in zip(pieces, [*written, b""], strict=True) for part in pair)


@st.composite
def pieces_and_numbers(draw: st.DrawFn) -> tuple[list[bytes], list[int]]:
    numbers = draw(st.lists(INT64, max_size=5))
    pieces = draw(st.lists(st.binary(max_size=20), min_size=len(numbers) + 1, max_size=len(numbers) + 1))
    return pieces, numbers


@given(pieces_and_numbers(), st.binary(max_size=9))
def test_filled_in_fields_are_read_again(parts: tuple[list[bytes], list[int]], before: bytes) -> None:
    pieces, numbers = parts
    skeleton = Skeleton(message(pieces, [0] * len(numbers)), message(pieces, [-1] * len(numbers)))
    whole = message(pieces, numbers)
    assert skeleton.fill(numbers) == whole
    assert skeleton.size == len(whole)
    assert skeleton.read(before + whole, len(before)) == tuple(numbers)


@given(pieces_and_numbers(), st.data())
def test_other_bytes_are_not_read(parts: tuple[list[bytes], list[int]], data: st.DataObject) -> None:
    pieces, numbers = parts
    skeleton = Skeleton(message(pieces, [0] * len(numbers)), message(pieces, [-1] * len(numbers)))
    whole = message(pieces, numbers)
    assert skeleton.read(whole + b"\0", 0) is None
    assert skeleton.read(b"\0" + whole, 0) is None
    for end in range(len(whole)):
        assert skeleton.read(whole[:end], 0) is None
    if any(pieces):
        index = data.draw(st.sampled_from([index for index, piece in enumerate(pieces) if piece]))
        place = data.draw(st.integers(0, len(pieces[index]) - 1))
        other = bytearray(pieces[index])
        other[place] ^= data.draw(st.integers(1, 255))
        changed = message([*pieces[:index], bytes(other), *pieces[index + 1 :]], numbers)
        assert skeleton.read(changed, 0) is None


@pytest.mark.parametrize(
    ("zeros", "ones"),
    [
        (b"\0" * 8, b"\xff" * 9),
        (b"a" + b"\0" * 8, b"b" + b"\xff" * 8),
        (b"\0" * 4, b"\xff" * 4),
        (b"\0" * 12, b"\xff" * 12),
        (b"\0" * 8, b"\xff" * 7 + b"\xfe"),
    ],
)
def test_differences_that_are_no_numbers(zeros: bytes, ones: bytes) -> None:
    with pytest.raises(ValueError):
        Skeleton(zeros, ones)
