"""Makes a find smaller while it stays the same find: lines out of a story, bytes out of anything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrunk(data: bytes, same: Callable[[bytes], bool], seconds: float = 60.0) -> bytes:
    """`same`: whether this input still shows it."""
    deadline = time.monotonic() + seconds
    pieces = fewer([bytes((byte,)) for byte in data], lambda kept: same(b"".join(kept)), deadline)
    found = bytearray(b"".join(pieces))
    for place, byte in enumerate(found):
        if byte and time.monotonic() < deadline:
            found[place] = 0
            if not same(bytes(found)):
                found[place] = byte
    return bytes(found)


def shrunk_story(story: bytes, same: Callable[[bytes], bool], seconds: float = 120.0) -> bytes:
    """The first line, which says what world it is, stays."""
    first, *lines = story.split(b"\n")
    deadline = time.monotonic() + seconds
    return b"\n".join([first, *fewer(lines, lambda kept: same(b"\n".join([first, *kept])), deadline)])


def fewer(items: Sequence[T], same: Callable[[list[T]], bool], deadline: float) -> list[T]:
    """Leave out halves, quarters and so on, while the failure stays the same."""
    kept = list(items)
    size = max(len(kept) // 2, 1)
    while kept:
        start = 0
        shorter = False
        while start < len(kept) and time.monotonic() < deadline:
            without = kept[:start] + kept[start + size :]
            if same(without):
                kept, shorter = without, True
            else:
                start += size
        if time.monotonic() >= deadline or (size == 1 and not shorter):
            return kept
        size = max(size // 2, 1)
    return kept
