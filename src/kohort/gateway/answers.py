"""The answers that a client gets, in the order of its requests. Without IO.

Requests of one connection are answered by kohort's coordinator, by the upstream cluster, and by the gateway itself.
Each of these keeps its own order. An answer that is not due waits in memory. The bytes of an answer that is due leave
as they arrive, so a large one is never held as a whole, unless addresses in it are rewritten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct

from kohort.config import INT_MAX
from kohort.gateway.requests import Request, Route
from kohort.wire.errors import ProtocolError

HEAD = Struct(">ii")
"""The length of a frame and the correlation id of an answer."""

Rewriting = Callable[[bytes], bytes]
"""From a whole answer to the one that the client gets; both with their length."""


class Owed:
    __slots__ = ("correlation_id", "held", "is_done", "rewriting", "source")

    def __init__(self, correlation_id: int, source: Route, rewriting: Rewriting | None) -> None:
        self.correlation_id = correlation_id
        self.source = source
        self.rewriting = rewriting
        self.held: list[bytes] = []
        self.is_done = False


class _Stream:
    """The answers of one source."""

    __slots__ = ("head", "left", "owed", "under_way")

    def __init__(self) -> None:
        self.owed: deque[Owed] = deque()
        self.under_way: Owed | None = None
        self.left = 0
        self.head = b""


class Answers:
    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: the length of an upstream broker's answer. The coordinator limits its own."""
        self._max_bytes = max_bytes
        self._order: deque[Owed] = deque()
        self._streams = {Route.OWN: _Stream(), Route.UPSTREAM: _Stream()}
        self.held_bytes = 0
        """Bytes of answers that are not due, or not complete."""

    def __len__(self) -> int:
        """How many answers the client waits for."""
        return len(self._order)

    @property
    def due_from(self) -> Route | None:
        """Whose answer is next; None if no answer is missing."""
        return self._order[0].source if self._order else None

    def waits_for(self, source: Route) -> bool:
        stream = self._streams[source]
        return bool(stream.owed) or stream.under_way is not None

    def expect(self, request: Request, source: Route, rewriting: Rewriting | None = None) -> None:
        owed = Owed(request.correlation_id, source, rewriting)
        self._order.append(owed)
        self._streams[source].owed.append(owed)

    def made(self, answer: bytes) -> list[bytes]:
        """The gateway's own answer to the last request. Returns what may leave now."""
        owed = Owed(0, Route.WHOLE, None)
        owed.held, owed.is_done = [answer], True
        self._order.append(owed)
        self.held_bytes += len(answer)
        return self._due()

    def feed(self, source: Route, data: bytes) -> list[bytes]:
        """Returns what may leave now. Raises ProtocolError if `data` is no answer to what was asked."""
        stream = self._streams[source]
        out: list[bytes] = []
        if stream.head:
            data, stream.head = stream.head + data, b""
        at = 0
        while at < len(data):
            if not stream.left:
                if len(data) - at < HEAD.size:
                    stream.head = data[at:]
                    break
                self._begin(stream, data, at, self._max_bytes if source is Route.UPSTREAM else INT_MAX)
            owed = stream.under_way
            assert owed is not None
            part = data[at : at + stream.left]
            at += len(part)
            stream.left -= len(part)
            if not stream.left:
                stream.under_way = None
            self._take(owed, part, not stream.left, out)
        return out

    def _begin(self, stream: _Stream, data: bytes, at: int, max_bytes: int) -> None:
        length, correlation_id = HEAD.unpack_from(data, at)
        if not 4 <= length <= max_bytes:
            raise ProtocolError(f"an answer of {length} bytes")
        if not stream.owed:
            raise ProtocolError(f"an answer to no request (correlation id {correlation_id})")
        owed = stream.owed.popleft()
        if owed.correlation_id != correlation_id:
            raise ProtocolError(f"an answer to correlation id {correlation_id} instead of {owed.correlation_id}")
        stream.under_way, stream.left = owed, 4 + length

    def _take(self, owed: Owed, part: bytes, is_last: bool, out: list[bytes]) -> None:
        is_due = owed is self._order[0]
        if is_due and owed.rewriting is None:
            out.append(part)
            if is_last:
                self._order.popleft()
                out += self._due()
            return
        owed.held.append(part)
        self.held_bytes += len(part)
        if is_last:
            if owed.rewriting is not None:
                whole = b"".join(owed.held)
                owed.held = [owed.rewriting(whole)]
                owed.rewriting = None
                self.held_bytes += len(owed.held[0]) - len(whole)
            owed.is_done = True
            out += self._due()

    def _due(self) -> list[bytes]:
        out: list[bytes] = []
        while self._order and self._order[0].rewriting is None:
            owed = self._order[0]
            out += owed.held
            self.held_bytes -= sum(map(len, owed.held))
            owed.held = []
            if not owed.is_done:
                break
            self._order.popleft()
        return out
