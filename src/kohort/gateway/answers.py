"""The answers that a client gets, in the order of its requests. Without IO.

Requests of one connection are answered by kohort's coordinator, by the upstream cluster, and by the gateway itself.
Each of these keeps its own order. An answer that is not due waits in memory. The bytes of an answer that is due leave
as they arrive, so a large one is never held as a whole, unless addresses in it are rewritten. Of a large answer whose
addresses come first, the beginning alone is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct

from kohort.gateway.metadata import LARGE_BYTES
from kohort.gateway.requests import BARE, LENGTH, MOST_BARE, Request, Route
from kohort.wire.errors import ProtocolError

HEAD = Struct(">ii")
"""The length of a frame and the correlation id of an answer."""

Rewriting = Callable[[bytes], bytes]
"""From a whole answer to the one that the client gets; both with their length."""
BeginningRewriting = Callable[[bytes], bytes | None]
"""From the part of a large answer that has arrived, with the length of the whole answer, to what the client gets
instead. None: more bytes are needed first."""
MOST_BEGINNING = 1_048_576
"""Bytes of a beginning that is rewritten."""


class Owed:
    __slots__ = ("beginning", "correlation_id", "held", "is_bare", "is_done", "is_dropped", "rewriting", "source")

    def __init__(
        self,
        correlation_id: int,
        source: Route,
        rewriting: Rewriting | None,
        beginning: BeginningRewriting | None = None,
    ) -> None:
        self.correlation_id = correlation_id
        self.source = source
        self.rewriting = rewriting
        self.beginning = beginning
        self.held: list[bytes] = []
        self.is_done = False
        self.is_dropped = False
        self.is_bare = False
        """True if the answer is a length and bytes, without a correlation id."""

    @property
    def is_collected(self) -> bool:
        """True if no byte of the answer may leave yet, because it is to be rewritten."""
        return self.rewriting is not None or self.beginning is not None


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
        """`max_bytes`: the length of an upstream broker's answer that is collected. Others may have any length."""
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

    def expect(
        self,
        request: Request,
        source: Route,
        rewriting: Rewriting | None = None,
        beginning: BeginningRewriting | None = None,
    ) -> None:
        """`beginning` rewrites an answer of more than LARGE_BYTES, `rewriting` a smaller one."""
        owed = Owed(request.correlation_id, source, rewriting, beginning)
        owed.is_bare = request.key == BARE
        self._order.append(owed)
        self._streams[source].owed.append(owed)

    def drop(self, correlation_id: int, source: Route) -> None:
        """The next answer of this source is to a request of the gateway's own; the client does not get it."""
        owed = Owed(correlation_id, source, None)
        owed.is_dropped = True
        self._streams[source].owed.append(owed)

    @property
    def is_late(self) -> bool:
        """True if answers of the coordinator wait behind an answer of the upstream broker."""
        if self.due_from is not Route.UPSTREAM:
            return False
        return any(owed.is_done and owed.source is Route.OWN for owed in self._order)

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
                is_bare = bool(stream.owed) and stream.owed[0].is_bare
                if len(data) - at < (LENGTH.size if is_bare else HEAD.size):
                    stream.head = data[at:]
                    break
                self._begin(stream, data, at)
            owed = stream.under_way
            assert owed is not None
            part = data[at : at + stream.left]
            at += len(part)
            stream.left -= len(part)
            if not stream.left:
                stream.under_way = None
            self._take(owed, part, not stream.left, out)
        return out

    def _begin(self, stream: _Stream, data: bytes, at: int) -> None:
        if stream.owed and stream.owed[0].is_bare:
            (length,) = LENGTH.unpack_from(data, at)
            if not 0 <= length <= MOST_BARE:
                raise ProtocolError(f"a message of a login of {length} bytes")
            stream.under_way, stream.left = stream.owed.popleft(), LENGTH.size + length
            return
        length, correlation_id = HEAD.unpack_from(data, at)
        if length < 4:
            raise ProtocolError(f"an answer of {length} bytes")
        if not stream.owed:
            raise ProtocolError(f"an answer to no request (correlation id {correlation_id})")
        owed = stream.owed.popleft()
        if owed.correlation_id != correlation_id:
            raise ProtocolError(f"an answer to correlation id {correlation_id} instead of {owed.correlation_id}")
        if owed.beginning is not None and length > LARGE_BYTES:
            owed.rewriting = None
        else:
            owed.beginning = None
        if owed.rewriting is not None and length > self._max_bytes:
            raise ProtocolError(f"an answer of {length} bytes; the gateway rewrites at most {self._max_bytes}")
        stream.under_way, stream.left = owed, 4 + length

    def _take(self, owed: Owed, part: bytes, is_last: bool, out: list[bytes]) -> None:
        if owed.is_dropped:
            return
        is_due = owed is self._order[0]
        if is_due and not owed.is_collected:
            out.append(part)
            if is_last:
                self._order.popleft()
                out += self._due()
            return
        owed.held.append(part)
        self.held_bytes += len(part)
        if owed.beginning is not None:
            self._take_beginning(owed, owed.beginning, is_last)
        elif is_last and (rewriting := owed.rewriting) is not None:
            whole = b"".join(owed.held)
            owed.rewriting = None
            self._replace(owed, whole, rewriting(whole))
        owed.is_done = is_last
        if is_last or not owed.is_collected:
            out += self._due()

    def _take_beginning(self, owed: Owed, beginning: BeginningRewriting, is_last: bool) -> None:
        whole = b"".join(owed.held)
        made = beginning(whole)
        if made is not None:
            owed.beginning = None
        elif is_last or len(whole) > MOST_BEGINNING:
            raise ProtocolError("an answer whose beginning cannot be read")
        self._replace(owed, whole, whole if made is None else made)

    def _replace(self, owed: Owed, whole: bytes, made: bytes) -> None:
        owed.held = [made]
        self.held_bytes += len(made) - len(whole)

    def _due(self) -> list[bytes]:
        out: list[bytes] = []
        while self._order and not self._order[0].is_collected:
            owed = self._order[0]
            out += owed.held
            self.held_bytes -= sum(map(len, owed.held))
            owed.held = []
            if not owed.is_done:
                break
            self._order.popleft()
        return out
