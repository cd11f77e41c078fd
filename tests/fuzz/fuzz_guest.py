"""Kind `guest`: what a connection sends before it has authenticated, through the real `Login` and `Conversation`.

A dialogue is what a client sends: ApiVersions, SaslHandshake, and the messages of its mechanism, in SaslAuthenticate or
bare. The server's nonce is fixed, so that a dialogue is bytes, and a find can be repeated. The unchanged dialogue gets
in. A changed one gets in only if the password or the proof is still in it. There is no socket and no event loop: what
`Login` asks a loop for is in `Clock`.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
import tracemalloc
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, cast
from unittest import mock

from fuzz_checks import Find, Stream, peak_bytes, slowness
from fuzz_grammar import Mark, Pen, Words, draw, varint
from fuzz_mutations import Mutations

from kohort.broker.decoding import Decoded, most_bytes
from kohort.broker.security.credentials import Credentials
from kohort.client.security import scram as client_scram
from kohort.config import Config
from kohort.security.scram import CODES, credential, salted_password
from kohort.server.log import LimitedLog
from kohort.server.security import conversation as conversation_module
from kohort.server.security import mechanisms
from kohort.server.security.conversation import Conversation, Done, Terms
from kohort.server.security.door import Door
from kohort.server.security.login import LEFT_BEHIND, Login
from kohort.server.security.mechanisms import Challenge, Mechanism, Plain, Scram
from kohort.wire.layout import is_flexible
from kohort.wire.schema import Field
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest

PER_DIALOGUE = 64
MOST = 524_288
"""sasl.server.max.receive.size"""
LIMIT_S = 0.001
LIMIT_BYTES = 65_536
"""What an input may cost that is not large itself."""
LARGE = 32_768
ANSWERED_BYTES = 65_536
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAMS)
SALT, NONCE, CLIENT_NONCE = b"0123456789abcdefghijklmn", "s" * 32, "fyko+d2lbbFgONRv9qkxdawL"
TOKEN = b"\0bob\0builder"
KEYS = {ApiVersionsRequest: 18, SaslHandshakeRequest: 17, SaslAuthenticateRequest: 36}


def _fixed(name: str, credentials: Credentials, plain_users: Any, tokens: None = None) -> Mechanism:
    return Plain(plain_users, credentials) if name == "PLAIN" else Scram(name, credentials, NONCE)


@cache
def known() -> Credentials:
    found = Credentials()
    found.secret = b"s" * 32
    for name in SCRAMS:
        salted = salted_password(name, "wonderland", SALT, 4096)
        found.put("alice", CODES[name], credential(name, salted, SALT, 4096))
    return found


@cache
def messages(mechanism: str) -> tuple[bytes, ...]:
    """What the client with the right password sends."""
    if mechanism == "PLAIN":
        return (TOKEN,)
    client = client_scram.conversation(mechanism, "alice", "wonderland", CLIENT_NONCE)
    first = next(client)
    challenge = _fixed(mechanism, known(), {}).evaluate(first)
    assert isinstance(challenge, Challenge)
    return first, client.send(challenge.message)


@cache
def terms() -> Terms:
    def versions(found: Decoded) -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code=0, api_keys=())

    return Terms(MECHANISMS, {"bob": "builder"}, known(), {}, versions, most_bytes(Config()))


class GuestWords(Words):
    """A mechanism, and the bytes of a message."""

    value: str | bytes = ""

    def text(self, field: Field) -> str:
        return self.value if isinstance(self.value, str) and self.value else super().text(field)

    def blob(self, field: Field) -> bytes:
        assert isinstance(self.value, bytes)
        return self.value


class Clock:
    """Calls what a loop would call later, when the input is over; timers of many seconds never fire."""

    def __init__(self) -> None:
        self._due: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def call_later(self, delay_s: float, then: Callable[..., None], *arguments: Any) -> Clock:
        if delay_s < 1:
            self._due.append((then, arguments))
        return self

    def cancel(self) -> None: ...

    def run(self) -> None:
        while self._due:
            then, arguments = self._due.pop()
            then(*arguments)


class Pipe(asyncio.Transport):
    def __init__(self) -> None:
        self.sent = 0
        self.closed = self.is_paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 999) if name == "peername" else default

    def write(self, data: Any) -> None:
        assert not self.closed
        self.sent += len(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_protocol(self, protocol: Any) -> None: ...


class Owner:
    """Of one guest."""

    delay_s = 0.0

    def __init__(self, clock: Clock) -> None:
        self.door = Door(lambda host, broker, listener: "", lambda host, listener: None, cast(LimitedLog, Silence()))
        self._clock = clock

    def hash(self, compute: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self._clock.call_later(0, lambda: then(compute()))


class Silence:
    def info(self, event: str, **what: object) -> None: ...


class Inside:
    """The connection that has authenticated."""

    held_bytes = 0

    def connection_made(self, transport: Any) -> None: ...

    def data_received(self, data: bytes) -> None: ...


class GuestFuzz(Stream[tuple[bytes, list[bytes]]]):
    kind = "guest"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._words = GuestWords(chance)

    def some(self, most: int) -> int:
        with fixed_nonce():
            pen = self.dialogue()
            data = bytes(pen.data)
            self.check([(data, [data])], gets_in=True)
            mutations = Mutations(data, pen.marks, self.chance)
            changed = [mutations.one() for _ in range(PER_DIALOGUE)]
            if self.chance.random() < 0.03:
                changed.append(self._large())  # the last one: its memory is looked at
            self.check([(one, self._pieces(one)) for one in changed])
        return 1 + len(changed)

    def bytes_of(self, one: Any) -> bytes:
        data, _ = one
        assert isinstance(data, bytes)
        return data

    def check(self, streams: list[tuple[bytes, list[bytes]]], *, gets_in: bool = False) -> None:
        """Raises Find."""
        data, pieces = None, list[bytes]()
        started = time.process_time()
        try:
            for data, pieces in streams:
                entered = exercised(data, pieces)
                assert entered or not gets_in, "the dialogue does not get in"
        except Exception as error:
            raise Find(self.kind, "dialogue", data or b"", error) from error
        if time.process_time() - started > LIMIT_S * len(streams):
            for data, pieces in streams:
                self._check_time(data, pieces)
        assert data is not None
        self._check_memory(data, pieces)

    def _check_memory(self, data: bytes, pieces: list[bytes]) -> None:
        """What an input takes, and what the server keeps of it that is not counted as a guest's."""
        kept = 0

        def at_the_end(login: Login) -> None:
            nonlocal kept
            kept = tracemalloc.get_traced_memory()[0] - login.held_bytes

        peak = peak_bytes(lambda: exercised(data, pieces, at_the_end))
        if peak > LIMIT_BYTES + 8 * len(data) or kept > LIMIT_BYTES:
            raise Find(self.kind, "dialogue", data, f"{peak} bytes for {len(data)}, {kept} kept")

    def _check_time(self, data: bytes, pieces: list[bytes]) -> None:
        """The shortest of several: the machine does something else too, also while it measures its own slowness."""
        took = float("inf")
        for _ in range(4):
            took = min(took, min(_took_s(partial(exercised, data, pieces)) for _ in range(5)) / slowness())
            if took <= LIMIT_S * max(len(data) / LARGE, 1):
                return
        raise Find(self.kind, "dialogue", data, f"took {took * 1000:.1f} ms")

    def dialogue(self) -> Pen:
        """What gets a client in."""
        chance, pen = self.chance, Pen()
        mechanism = chance.choice(MECHANISMS)
        if chance.random() < 0.7:
            pen.take(self._request(ApiVersionsRequest, chance.randint(0, 4), "client"))
        version = chance.randint(0, 1)
        pen.take(self._request(SaslHandshakeRequest, version, mechanism))
        for message in messages(mechanism):
            pen.take(self._message(message) if version else self._bare(message))
        return pen

    def _message(self, message: bytes) -> Pen:
        pen = self._request(SaslAuthenticateRequest, self.chance.randint(0, 2), message)
        _mark_parts(pen, message)
        return pen

    def _bare(self, message: bytes) -> Pen:
        pen = Pen()
        length = pen.put("length32", struct.pack(">i", len(message)), len(message))
        pen.put("blob", message)
        pen.encloses(length)
        _mark_parts(pen, message)
        return pen

    def _request(self, cls: type, version: int, value: str | bytes) -> Pen:
        self._words.value = value
        drawn, frame = draw(cls, version, self._words), Pen()
        frame.put("int16", struct.pack(">h", KEYS[cls]), KEYS[cls])
        frame.put("int16", struct.pack(">h", version), version)
        frame.put("int32", struct.pack(">i", self.chance.randint(0, 99)))
        length = frame.put("length16", b"\0\x01", 1)
        frame.put("text", b"c")
        frame.encloses(length)
        if is_flexible(cls, version):
            frame.encloses(frame.put("tagcount", varint(0), 0))
        body = Pen()
        body.data, body.marks = bytearray(drawn.data), drawn.marks
        frame.take(body)
        pen = Pen()
        size = pen.put("length32", struct.pack(">i", len(frame.data)), len(frame.data))
        pen.take(frame)
        pen.encloses(size)
        return pen

    def _large(self) -> bytes:
        """A request that is as large as may be, of what is costly to read."""
        chance = self.chance
        if chance.random() < 0.3:
            return self._large_fields()
        size = chance.choice((60_000, 250_000, MOST - 100))
        unit = chance.choice((b",", b"=2C", b"=", b"\0", b"n=", b",a=b", b"a", "é".encode(), b"\xff", b"n,,n=", b"m=,"))
        before = chance.choice((b"", b"n,,n=", b"n,a=", b"n,,n=u,r=", b"n,,n=u,r=x", b"\0bob\0", b"\0", b"c=biws,r="))
        message = (before + unit * (size // len(unit)))[:size]
        mechanism = chance.choice(MECHANISMS)
        pen = self._request(SaslHandshakeRequest, 0, mechanism)
        if mechanism != "PLAIN" and chance.random() < 0.5:
            pen.take(self._bare(messages(mechanism)[0]))
        return bytes(pen.data) + struct.pack(">i", size) + message

    def _large_fields(self) -> bytes:
        """A text or an unknown tag that is large, and what follows."""
        chance = self.chance
        size = chance.choice((60_000, 250_000, MOST - 100))
        mechanism = chance.choice(SCRAMS)
        tags = b"\x01\x63" + varint(size) + b"x" * size
        name = varint(size + 1) + b"x" * size
        head = struct.pack(">hhih", 18, 3, 1, -1) + b"\0"
        first = head + chance.choice((name + b"\x02y\0", b"\x02y" + name + b"\0", b"\x02y\x02z" + tags))
        message = messages(mechanism)[0]
        asked = struct.pack(">hhih", 36, 2, 1, -1) + b"\0" + varint(len(message) + 1) + message
        asked += chance.choice((tags, b"\0"))
        shake = bytes(self._request(SaslHandshakeRequest, 1, mechanism).data)
        return b"".join((struct.pack(">i", len(first)), first, shake, struct.pack(">i", len(asked)), asked))

    def _pieces(self, data: bytes) -> list[bytes]:
        chance = self.chance
        if chance.random() < 0.7 or len(data) > LARGE:
            return [data]
        cuts = sorted(chance.randint(0, len(data)) for _ in range(chance.randint(1, 6)))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _mark_parts(pen: Pen, message: bytes) -> None:
    """Every part of PLAIN's and of SCRAM's messages can be changed alone."""
    start = len(pen.data) - len(message) - (not pen.data.endswith(message))  # behind a flexible message are its tags
    at = start
    for part in message.replace(b"\0", b",").split(b","):
        pen.marks.append(Mark("text", at, at + len(part), len(part), at + len(part)))
        at += len(part) + 1


def _took_s(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


@contextmanager
def fixed_nonce() -> Iterator[None]:
    """And no password of PLAIN fits a credential, without the time that a hash takes."""
    with (
        mock.patch.object(conversation_module, "mechanism_of", _fixed),
        mock.patch.object(mechanisms, "salted_password", return_value=b"x" * 32),
    ):
        yield


def exercised(data: bytes, pieces: list[bytes], at_the_end: Callable[[Login], None] = lambda login: None) -> bool:
    """True if the client gets in. `at_the_end` is called before it goes. Raises AssertionError for what must not be."""
    clock, pipe = Clock(), Pipe()
    owner = Owner(clock)
    entered: list[Done] = []

    def welcome(done: Done, software: tuple[str, str]) -> Inside:
        entered.append(done)
        return Inside()

    login = Login(owner, Conversation(terms()), 1, "SASL", (10.0, MOST), cast(Any, welcome))
    events._set_running_loop(cast(Any, clock))
    try:
        login.connection_made(pipe)
        for piece in pieces:
            if entered or pipe.closed:
                break
            login.data_received(piece)
            clock.run()
            assert login.held_bytes <= MOST + LEFT_BEHIND
            assert owner.door.bytes == login.held_bytes
        at_the_end(login)
        login.connection_lost(None)
        clock.run()
    finally:
        events._set_running_loop(None)
    assert (owner.door.bytes, len(owner.door)) == (0, 0), "the guest is still there"
    assert pipe.sent <= ANSWERED_BYTES, f"{pipe.sent} bytes are answered"
    if entered:
        # Without the last group of the proof in base64, in which some bits say nothing.
        secrets = [TOKEN, *(messages(name)[1][-40:-4] for name in SCRAMS)]
        assert any(secret in data for secret in secrets), "without a password"
        assert entered[0].user in ("alice", "bob")
    return bool(entered)
