"""Kind `codec`: every message and version of the schema tables, requests and responses, through the decoder.

Reading the bytes of a drawn message must give the message, and writing the message must give the bytes. A mutated
message must be read, or refused by a ProtocolError. The result must fit into the bytes, must be writable, and must
then be read as the same again.
"""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import Any

from fuzz_build import IS_COMPILED, plainly_read, plainly_written
from fuzz_checks import Find, Stream, most_bytes
from fuzz_grammar import Drawn, Words, all_messages, draw
from fuzz_mutations import Mutations

from kohort.wire import codec
from kohort.wire.errors import ProtocolError

PER_MESSAGE = 256
"""Mutations of one drawn message."""


class CodecFuzz(Stream[bytes]):
    kind = "codec"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._words = Words(chance)
        self._messages = all_messages()

    def some(self, most: int) -> int:
        cls, version = self._messages[int(self.chance.random() * len(self._messages))]
        drawn = draw(cls, version, self._words)
        self.check_valid(drawn)
        mutations = Mutations(drawn.data, drawn.marks, self.chance)
        self.check(cls, version, [mutations.one() for _ in range(PER_MESSAGE)])
        return PER_MESSAGE + 1

    def check(self, cls: type, version: int, made: list[bytes]) -> None:
        """Raises Find."""
        decode_prefix = codec.decode_prefix
        read: list[tuple[Any, int, bytes]] = []

        def decoded(data: bytes) -> None:
            try:
                message, end = decode_prefix(cls, version, data)
            except ProtocolError:
                return
            read.append((message, end, data))

        self.each(described(cls, version), made, decoded)
        for _, end, data in read:
            if end > len(data):
                raise Find(self.kind, described(cls, version), data, f"read up to {end} of {len(data)} bytes")
        if IS_COMPILED:
            self._check_twin(cls, version, made, read)
        for message, _, data in read[::8]:
            self._check_again(cls, version, message, data)
        for data in made[::64]:
            decode = partial(_decode, cls, version, data)
            self.check_memory(described(cls, version), data, decode, most_bytes(len(data)))

    def _check_twin(self, cls: type, version: int, made: list[bytes], read: list[tuple[Any, int, bytes]]) -> None:
        """The compiled and the plain codec read the same messages with the same result, and refuse the same bytes."""
        accepted = {id(data): (message, end) for message, end, data in read}
        for data in made:
            found = accepted.get(id(data))
            expected = plainly_read(cls, version, data)
            if found != expected and repr(found) != repr(expected):
                raise Find(self.kind, described(cls, version), data, f"read as {found}; in plain Python, {expected}")
        for message, _, data in read[::8]:
            if plainly_written(message, version) != codec.encode(message, version):
                raise Find(self.kind, described(cls, version), data, f"{message} is written in two ways")

    def check_valid(self, drawn: Drawn) -> None:
        """Raises Find."""
        cls, version, message, data = drawn.cls, drawn.version, drawn.message, drawn.data
        try:
            read = codec.decode(cls, version, data)
            written = codec.encode(message, version)
        except Exception as error:
            raise Find(self.kind, described(cls, version), data, error) from error
        if read != message:
            raise Find(self.kind, described(cls, version), data, f"read as {read}, drawn as {message}")
        if written != data:
            raise Find(self.kind, described(cls, version), data, f"{message} is written as {written.hex()}")

    def _check_again(self, cls: type, version: int, message: Any, data: bytes) -> None:
        try:
            again = codec.decode(cls, version, codec.encode(message, version))
        except Exception as error:
            raise Find(self.kind, described(cls, version), data, error) from error
        if again != message and repr(again) != repr(message):  # not a number is not itself
            raise Find(self.kind, described(cls, version), data, f"read as {message}, and from that as {again}")


def _decode(cls: type, version: int, data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        codec.decode_prefix(cls, version, data)


def described(cls: type, version: int) -> str:
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__name__} v{version}"
