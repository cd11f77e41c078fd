"""One connection to one broker, for asyncio.

`client/exchange.py` knows what is said, this module how it travels. Several requests may be under way; answers come in
the order of the questions. `ask` sends at once and returns a future, so that whoever owns the connection decides how
long to wait; a future that is cancelled only gives up its answer. After any failure the connection is closed, and
whatever was in flight fails with the reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple, Self, TypeVar

from kohort.client.connection import DEFAULT_MAX_RESPONSE_BYTES, reason
from kohort.client.errors import BadAnswer, ConnectionFailed, KafkaError
from kohort.client.exchange import Exchange, Question
from kohort.wire.framing import BadLength, FrameSplitter

Response = TypeVar("Response")


class _Pending(NamedTuple):
    question: Question
    response_class: type | None
    """None: the frame itself is the answer."""
    answer: asyncio.Future[Any]


class AsyncConnection(asyncio.Protocol):
    """Made by `open`. Belongs to the event loop in which it was opened."""

    def __init__(self, exchange: Exchange, max_response_bytes: int) -> None:
        self.exchange = exchange
        self.address = exchange.address
        self._loop = asyncio.get_running_loop()
        self._frames = FrameSplitter(max_response_bytes)
        self._pending: deque[_Pending] = deque()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = "kohort",
        connect_timeout_ms: int = 10_000,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> Self:
        """Connect and agree on versions, both within `connect_timeout_ms`. Raises ConnectionFailed."""
        exchange = Exchange(host, port, client_id)
        connection = cls(exchange, max_response_bytes)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await loop.create_connection(lambda: connection, host, port)
                await connection._negotiate()
        except TimeoutError:
            connection.close()
            raise ConnectionFailed(exchange.address, f"no connection within {connect_timeout_ms} ms") from None
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(exchange.address, reason(error)) from None
        except BaseException:
            connection.close()
            raise
        return connection

    async def _negotiate(self) -> None:
        asking = self.exchange.negotiate()
        question = next(asking)
        try:
            while True:
                question = asking.send(await self._send(question, None))
        except StopIteration:
            return

    # -- the owner's side

    @property
    def closed(self) -> bool:
        return self._transport is None

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The names of the requests under way, oldest first."""
        return tuple(pending.question.name for pending in self._pending)

    def ask(self, message: Any, response_class: type[Response]) -> asyncio.Future[Response]:
        """Send a request; the future brings its answer, or raises ConnectionFailed.

        Raises UnsupportedVersion at once. Error codes inside the answer are the caller's.
        """
        return self._send(self.exchange.question(message), response_class)

    def close(self, why: str = "the connection is closed") -> None:
        """Close the connection. What is under way fails with ConnectionFailed."""
        self._fail(ConnectionFailed(self.address, why))

    def _send(self, question: Question, response_class: type | None) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None:
            answer.set_exception(ConnectionFailed(self.address, "the connection is closed"))
        else:
            self._pending.append(_Pending(question, response_class, answer))
            self._transport.write(question.frame)
        return answer

    def _fail(self, error: KafkaError) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        while self._pending:
            answer = self._pending.popleft().answer
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # nobody need be waiting for it

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        what = ", ".join(dict.fromkeys(self.unanswered))
        while_ = f" while {what} was in flight" if what else ""
        self._fail(ConnectionFailed(self.address, f"{reason(exc) if exc else 'closed the connection'}{while_}"))

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._answered(frame)
        except BadLength as error:
            self._fail(BadAnswer(self.address, f"announced an answer that cannot be: {error}"))
        except KafkaError as error:
            self._fail(error)

    def _answered(self, frame: bytes) -> None:
        if not self._pending:
            if self._transport is not None:
                raise BadAnswer(self.address, "sent an answer that nobody had asked for")
            return
        question, response_class, answer = self._pending[0]
        message = frame if response_class is None else self.exchange.answer(response_class, question, frame)
        self._pending.popleft()
        if not answer.done():
            answer.set_result(message)
