"""One connection to one broker, for asyncio.

`client/wire/exchange.py` has the messages, this module the socket. Several requests may be under way; answers come in
the order of the requests. `ask` sends at once and returns a future, so that the caller decides how long to wait; a
cancelled future drops its answer. After any failure the connection is closed, and all requests in flight fail with the
reason.

Authentication may get a token or hash a password, so its steps run in a thread. If the broker limits its lifetime, the
next request after most of that time begins it again; requests sent meanwhile wait until it is done.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Self, TypeVar, cast

from kohort.client.errors import AuthenticationFailed, BadAnswer, ConnectionFailed, KafkaError
from kohort.client.security.security import Security
from kohort.client.security.tls import looks_like_http, looks_like_tls, refusal
from kohort.client.wire.blocking_connection import DEFAULT_MAX_RESPONSE_BYTES, reason
from kohort.client.wire.exchange import ANSWERED_IN_HTTP, ANSWERED_IN_TLS, PLAINTEXT, Exchange, Question, api_name
from kohort.wire.framing import BadLength, FrameSplitter

RENEW_MS = 30_000
"""How long authenticating again may take."""

Response = TypeVar("Response")


class _Pending(NamedTuple):
    question: Question
    response_class: type | None
    """None: the raw frame is the answer."""
    answer: asyncio.Future[Any]


class AsyncConnection(asyncio.Protocol):
    """Made by `open`. Belongs to the event loop in which it was opened."""

    def __init__(self, exchange: Exchange, max_response_bytes: int) -> None:
        self.exchange = exchange
        self.address = exchange.address
        self._loop = asyncio.get_running_loop()
        self._frames = FrameSplitter(max_response_bytes)
        self._pending: deque[_Pending] = deque()
        self._held: deque[tuple[Any, type | None, asyncio.Future[Any]]] = deque()
        """The requests that wait for a new authentication."""
        self._renewing: asyncio.Task[None] | None = None
        self._renew_at: float | None = None
        """When to authenticate again, in the loop's time."""
        self._transport: asyncio.Transport | None = None
        self.on_close: Callable[[], None] | None = None
        """Called when the connection has ended, whoever has ended it."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = "kohort",
        connect_timeout_ms: int = 10_000,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        security: Security = PLAINTEXT,
    ) -> Self:
        """Connect, agree on versions and authenticate, all within `connect_timeout_ms`.

        Raises ConnectionFailed, AuthenticationFailed.
        """
        exchange = Exchange(host, port, client_id, security=security)
        connection = cls(exchange, max_response_bytes)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await connection._connect(host, port)
                await connection._negotiate()
                await connection._authenticate(connect_timeout_ms)
        except TimeoutError:
            connection.close()
            raise ConnectionFailed(exchange.address, f"no connection within {connect_timeout_ms} ms") from None
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self, host: str, port: int) -> None:
        tls = self.exchange.security.tls
        try:
            context = None if tls is None else tls.context()
        except ValueError as error:  # a file has changed and cannot be read now
            raise AuthenticationFailed(self.address, str(error)) from None
        try:
            await self._loop.create_connection(
                lambda: self, host, port, ssl=context, server_hostname=None if tls is None else host
            )
        except TimeoutError:
            raise
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if tls is None:
                raise ConnectionFailed(self.address, reason(error)) from None
            raise refusal(self.address, error) from None
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(self.address, reason(error)) from None

    async def _negotiate(self) -> None:
        asking = self.exchange.negotiate()
        question = next(asking)
        try:
            while True:
                question = asking.send(await self._send(question, None))
        except StopIteration:
            return

    async def _authenticate(self, timeout_ms: int) -> None:
        sasl = self.exchange.security.sasl
        if sasl is None:
            return
        asking = self.exchange.authenticate(sasl, timeout_ms)
        step = await asyncio.to_thread(_step, asking, None)
        while isinstance(step, Question):
            step = await asyncio.to_thread(_step, asking, await self._send(step, None))
        self._renew_at = None if step is None else self._loop.time() + step

    async def _renew(self) -> None:
        """Authenticate again, then send the requests that wait."""
        try:
            async with asyncio.timeout(RENEW_MS / 1000):
                await self._authenticate(RENEW_MS)
        except TimeoutError:
            self.close(f"no authentication within {RENEW_MS} ms")
        except KafkaError as error:
            self._fail(error)
        except Exception as error:  # raised by a token provider of the program
            self._fail(AuthenticationFailed(self.address, f"no token: {type(error).__name__}"))
        self._renewing = None
        while self._held:
            message, response_class, answer = self._held.popleft()
            if not answer.cancelled():
                self._send(self.exchange.question(message), response_class, answer)

    # -- the owner's side

    @property
    def closed(self) -> bool:
        return self._transport is None

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The names of the requests under way, oldest first."""
        held = (api_name(type(message)) for message, _, _ in self._held)
        return (*(pending.question.name for pending in self._pending), *held)

    def ask(self, message: Any, response_class: type[Response]) -> asyncio.Future[Response]:
        """Send a request. The future returns its answer, or raises ConnectionFailed.

        Raises UnsupportedVersion at once. The caller handles error codes in the answer.
        """
        return self._ask(message, response_class)

    async def ask_frame(self, message: Any) -> tuple[int, bytes]:
        """Send a request. Returns its version and the frame of the answer, with the response header.

        Raises ConnectionFailed, UnsupportedVersion.
        """
        return self.exchange.version_of(type(message)), await self._ask(message, None)

    def _ask(self, message: Any, response_class: type | None) -> asyncio.Future[Any]:
        if self._renew_at is not None and self._renewing is None and self._loop.time() >= self._renew_at:
            self._renewing = self._loop.create_task(self._renew())
        if self._renewing is None:
            return self._send(self.exchange.question(message), response_class)
        self.exchange.version_of(type(message))
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._held.append((message, response_class, answer))
        return answer

    def close(self, why: str = "the connection is closed") -> None:
        """Close the connection. Requests under way fail with ConnectionFailed."""
        self._fail(ConnectionFailed(self.address, why))

    def _send(
        self, question: Question, response_class: type | None, answer: asyncio.Future[Any] | None = None
    ) -> asyncio.Future[Any]:
        answer = self._loop.create_future() if answer is None else answer
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
        answers = [pending.answer for pending in self._pending] + [answer for _, _, answer in self._held]
        self._pending.clear()
        self._held.clear()
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # retrieved, in case that no caller waits
        if transport is not None and self.on_close is not None:
            self.on_close()

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError) and not isinstance(exc, ssl.SSLEOFError):
            return self._fail(refusal(self.address, exc))
        what = "closed the connection" if exc is None or isinstance(exc, ssl.SSLError) else reason(exc)
        return self._fail(ConnectionFailed(self.address, what + self.exchange.in_flight(self.unanswered)))

    def data_received(self, data: bytes) -> None:
        try:
            if not self.exchange.api_versions and looks_like_tls(data):
                raise BadAnswer(self.address, ANSWERED_IN_TLS)
            if not self.exchange.api_versions and looks_like_http(data):
                raise BadAnswer(self.address, ANSWERED_IN_HTTP)
            for frame in self._frames.feed(data):
                self._answered(frame)
        except BadLength as error:
            self._fail(BadAnswer(self.address, f"announced an answer that cannot be: {error}"))
        except KafkaError as error:
            self._fail(error)

    def _answered(self, frame: bytes) -> None:
        if not self._pending:
            if self._transport is not None:
                raise BadAnswer(self.address, "sent an answer without a request")
            return
        question, response_class, answer = self._pending[0]
        message = frame if response_class is None else self.exchange.answer(response_class, question, frame)
        self._pending.popleft()
        if not answer.done():
            answer.set_result(message)


def _step(asking: Generator[Question, bytes, float | None], frame: bytes | None) -> Question | float | None:
    """One step of a handshake: the next question, or its result. A thread cannot pass StopIteration on."""
    try:
        return next(asking) if frame is None else asking.send(frame)
    except StopIteration as end:
        result: float | None = end.value
        return result
