"""Kind `framing`: byte streams of frames, true and lying, cut anywhere, through the splitter and the header readers.

The stream is also split by the few lines of `reference`; both must find the same frames, in whatever pieces it comes.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

from fuzz_checks import Stream, most_bytes
from fuzz_grammar import Pen, varint
from fuzz_mutations import Mutations

from kohort.wire.errors import ProtocolError
from kohort.wire.framing import (
    BadLength,
    FrameSplitter,
    body_offset,
    read_request_header,
    read_response_header,
    read_unsigned_varint,
    skip_tagged_fields,
)

PER_STREAM = 32
MAX_BYTES = 4096


class FramingFuzz(Stream[tuple[bytes, list[bytes]]]):
    kind = "framing"

    def some(self, most: int) -> int:
        pen = self.stream()
        mutations = Mutations(bytes(pen.data), pen.marks, self.chance)
        streams = [mutations.data, *(mutations.one() for _ in range(PER_STREAM))]
        self.check([(data, self.pieces(data)) for data in streams])
        return len(streams)

    def bytes_of(self, one: Any) -> bytes:
        data, _ = one
        assert isinstance(data, bytes)
        return data

    def check(self, streams: list[tuple[bytes, list[bytes]]]) -> None:
        """Raises Find."""
        self.each("stream", streams, lambda one: exercised(*one))
        data, pieces = streams[-1]
        self.check_memory("stream", data, lambda: exercised(data, pieces), most_bytes(len(data)))

    def stream(self) -> Pen:
        chance, pen = self.chance, Pen()
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            frame = self._frame()
            length = pen.put("length32", struct.pack(">i", len(frame.data)), len(frame.data))
            pen.take(frame)
            pen.encloses(length)
        return pen

    def _frame(self) -> Pen:
        chance, pen = self.chance, Pen()
        pen.put("int16", struct.pack(">h", chance.choice((0, 3, 12, 18, 32767, -1))))
        pen.put("int16", struct.pack(">h", chance.choice((0, 3, 12, -1))))
        pen.put("int32", struct.pack(">i", chance.choice((0, 7, -1, 2**31 - 1))))
        name = chance.choice((b"", b"client", "é".encode() * 20, b"x" * 200))
        length = pen.put("length16", struct.pack(">h", len(name)), len(name))
        pen.put("text", name)
        pen.encloses(length)
        tags = chance.choice((0, 0, 1, 2))
        count = pen.put("tagcount", varint(tags), tags)
        for tag in range(tags):
            pen.put("tag", varint(tag), tag)
            size = pen.put("tagsize", varint(3), 3)
            pen.put("blob", b"abc")
            pen.encloses(size)
        pen.encloses(count)
        pen.put("blob", bytes(chance.choice((0, 1, 20, 300))))
        return pen

    def pieces(self, data: bytes) -> list[bytes]:
        chance = self.chance
        pick = chance.random()
        if pick < 0.3:
            return [data]
        if pick < 0.35:
            return [data[at : at + 1] for at in range(len(data))]
        cuts = sorted(int(chance.random() * (len(data) + 1)) for _ in range(int(pick * 6)))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def reference(data: bytes) -> tuple[list[bytes], bool]:
    """The whole frames, and True if the stream is unreadable after them."""
    frames = []
    while len(data) >= 4:
        length = int.from_bytes(data[:4], "big", signed=True)
        if not 0 < length <= MAX_BYTES:
            return frames, True
        if len(data) < 4 + length:
            break
        frames.append(data[4 : 4 + length])
        data = data[4 + length :]
    return frames, False


def exercised(data: bytes, pieces: list[bytes]) -> None:
    splitter = FrameSplitter(MAX_BYTES)
    frames: list[bytes] = []
    lost = False
    for piece in pieces:
        try:
            frames += splitter.feed(piece)
        except BadLength as bad:
            frames += bad.frames
            lost = True
            break
        assert splitter.pending <= MAX_BYTES + 4, f"{splitter.pending} bytes are held back"
    assert (frames, lost) == reference(data), "the frames are not those of the stream"
    for frame in [*frames[:2], data]:
        _headers(frame)


def _headers(frame: bytes) -> None:
    for flexible in (False, True):
        try:
            end = body_offset(frame, flexible)
            assert end <= len(frame), "a body that begins behind its frame"
        except ProtocolError:
            pass
    try:
        header = read_request_header(frame)
        assert header.client_id is None or len(header.client_id) <= len(frame)
    except ProtocolError:
        pass
    for api_key in (12, 18):
        try:
            _, end = read_response_header(frame, flexible=True, api_key=api_key)
            assert end <= len(frame), "a body that begins behind its frame"
        except ProtocolError:
            pass
    for read in (read_unsigned_varint, skip_tagged_fields):
        with contextlib.suppress(ProtocolError):
            read(frame, min(8, len(frame)))
