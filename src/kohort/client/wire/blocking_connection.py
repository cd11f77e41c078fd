"""One blocking connection to one broker.

The constructor connects, with TLS if the settings say so, asks for the broker's API versions and authenticates.
`client/wire/exchange.py` has the messages, this module the socket. If the broker limits the lifetime of an
authentication, it is done again between two requests. A connection belongs to one thread. `send` and `receive` are
`request` in two halves, so that one thread can have requests pending at several brokers; on one connection, answers
come in the order of the requests. After any failure the connection is closed and stays closed: the outcome of requests
in flight is unknown, and a half-read frame cannot be skipped.

A client above its quota is told in an answer for how long the broker will not read from the connection (KIP-219). That
time is no part of the timeout of later requests.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

from kohort.client.errors import AuthenticationFailed, ConnectionFailed, TimedOut
from kohort.client.security.security import Security
from kohort.client.security.tls import Tls, refusal
from kohort.client.wire.exchange import PLAINTEXT, VERSION_CAPS, Exchange, Question, VersionRange, size_of

DEFAULT_MAX_RESPONSE_BYTES = 256 * 1024 * 1024

Response = TypeVar("Response")
T = TypeVar("T")


class Pending(NamedTuple):
    """A request under way, and the deadline of its answer."""

    question: Question
    deadline: float


class Connection:
    """A connection to one broker, open and negotiated once constructed. Use it from one thread.

    `connect_timeout_ms` limits connecting, the TLS handshake, and each request of the version and SASL handshakes,
    `request_timeout_ms` a request from sending to its whole answer, `max_response_bytes` the size of an answer.
    Raises ConnectionFailed, AuthenticationFailed, TimedOut, UnsupportedVersion.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "kohort",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        version_caps: Mapping[type, int] = VERSION_CAPS,
        security: Security = PLAINTEXT,
    ) -> None:
        self._exchange = Exchange(host, port, client_id, version_caps, security)
        self.address = self._exchange.address
        self._connect_timeout_ms = connect_timeout_ms
        self.request_timeout_ms = request_timeout_ms
        self.max_response_bytes = max_response_bytes
        self._pending: deque[Pending] = deque()
        self._muted_until = 0.0
        """Until when the broker does not read, because a quota is used up."""
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout=connect_timeout_ms / 1000)
        except TimeoutError:
            raise ConnectionFailed(self.address, f"no connection within {connect_timeout_ms} ms") from None
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(self.address, reason(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._renew_at: float | None = None
        """When to authenticate again."""
        try:
            if security.tls is not None:
                self._socket = self._in_tls(self._socket, host, security.tls)
            self._converse(self._exchange.negotiate(), connect_timeout_ms)
            self._authenticate()
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        return self._socket is None

    def detach(self) -> socket.socket:
        """The open, authenticated socket, for a caller that writes frames itself. The connection is closed without it.
        Raises ConnectionFailed if it is closed."""
        opened, self._socket = self._socket, None
        if opened is None:
            raise ConnectionFailed(self.address, "the connection is closed")
        return opened

    def close(self) -> None:
        """Close the connection. Requests in flight are given up."""
        opened, self._socket = self._socket, None
        self._pending.clear()
        if opened is not None:
            opened.close()

    @property
    def api_versions(self) -> Mapping[int, VersionRange]:
        """The versions that the broker serves, by API key."""
        return self._exchange.api_versions

    @property
    def finalized(self) -> Mapping[str, int]:
        """The levels of the cluster's finalized features (KIP-584)."""
        return self._exchange.finalized

    def version_of(self, request_class: type) -> int:
        """The version in which a request of this class is sent here. Raises UnsupportedVersion."""
        return self._exchange.version_of(request_class)

    def serves(self, request_class: type) -> bool:
        """Whether there is a common version of a request class."""
        return self._exchange.serves(request_class)

    def request(
        self,
        message: Any,
        response_class: type[Response],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Response:
        """Send a request and wait for its answer.

        `version` None: the highest common one. `timeout_ms` None: the connection's request timeout. Raises
        ConnectionFailed, TimedOut, UnsupportedVersion, AuthenticationFailed. The caller handles error codes in the
        answer.
        """
        self.send(message, version=version, timeout_ms=timeout_ms)
        return self.receive(response_class)

    def send(self, message: Any, *, version: int | None = None, timeout_ms: int | None = None) -> None:
        """The first half of `request`; the timeout counts from here to the whole answer."""
        self._renew()
        self._pending.append(self._send(self._exchange.question(message, version), timeout_ms))

    def send_unanswered(self, message: Any) -> None:
        """Send a request to which the broker gives no answer (Produce with acks=0)."""
        self._renew()
        self._send(self._exchange.question(message), None)

    def receive(self, response_class: type[Response], *, timeout_ms: int | None = None) -> Response:
        """The second half of `request`: the answer to the oldest request.

        Waits at least `timeout_ms`, if it is given, even if the request was sent long ago.
        """
        pending = self._pending.popleft()
        if timeout_ms is not None:
            pending = pending._replace(deadline=max(pending.deadline, time.monotonic() + timeout_ms / 1000))
        try:
            answer = self._exchange.answer(response_class, pending.question, self._receive_frame(pending))
        except BaseException:
            self.close()  # an interrupt may leave half an answer unread
            raise
        if throttle_ms := getattr(answer, "throttle_time_ms", 0):
            self._muted_until = time.monotonic() + throttle_ms / 1000
        return answer

    def _send(self, question: Question, timeout_ms: int | None) -> Pending:
        timeout_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        pending = Pending(question, max(time.monotonic(), self._muted_until) + timeout_ms / 1000)
        try:
            self._arm(pending).sendall(question.frame)
        except TimeoutError:
            self._time_out(pending)
        except OSError as error:
            self._fail(reason(error) + self._exchange.in_flight((question.name,)))
        except BaseException:
            self.close()
            raise
        return pending

    def _receive_frame(self, pending: Pending) -> bytes:
        size = size_of(self._receive_exactly(4, pending), self.address, self.max_response_bytes)
        return bytes(self._receive_exactly(size, pending))

    def _receive_exactly(self, size: int, pending: Pending) -> bytearray:
        buffer = bytearray(size)
        rest = memoryview(buffer)
        try:
            while rest:
                count = self._arm(pending).recv_into(rest)
                if count == 0:
                    self._fail("closed the connection" + self._exchange.in_flight((pending.question.name,)))
                rest = rest[count:]
        except TimeoutError:
            self._time_out(pending)
        except ssl.SSLEOFError:
            self._fail("closed the connection" + self._exchange.in_flight((pending.question.name,)))
        except ssl.SSLError as error:
            self.close()
            raise refusal(self.address, error) from None
        except OSError as error:
            self._fail(reason(error) + self._exchange.in_flight((pending.question.name,)))
        return buffer

    def _arm(self, pending: Pending) -> socket.socket:
        """The socket, with the rest of the request's timeout."""
        if self._socket is None:
            raise ConnectionFailed(self.address, "the connection is closed")
        left = pending.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket

    def _fail(self, why: str) -> NoReturn:
        self.close()
        raise ConnectionFailed(self.address, why) from None

    def _time_out(self, pending: Pending) -> NoReturn:
        self.close()
        raise TimedOut(f"{self.address}: {pending.question.name} was not answered in time") from None

    def _in_tls(self, plain: socket.socket, host: str, tls: Tls) -> socket.socket:
        try:
            return tls.context().wrap_socket(plain, server_hostname=host)
        except TimeoutError:
            self._fail(f"no TLS handshake within {self._connect_timeout_ms} ms")
        except OSError as error:
            raise refusal(self.address, error) from None
        except ValueError as error:  # a file has changed and cannot be read now
            raise AuthenticationFailed(self.address, str(error)) from None

    def _authenticate(self) -> None:
        sasl = self._exchange.security.sasl
        if sasl is None:
            return
        lasts_s = self._converse(self._exchange.authenticate(sasl, self._connect_timeout_ms), self._connect_timeout_ms)
        self._renew_at = None if lasts_s is None else time.monotonic() + lasts_s

    def _renew(self) -> None:
        """Authenticate again if it is time; not between a request and its answer, which would come out of order."""
        if self._renew_at is None or self._pending or time.monotonic() < self._renew_at or self._socket is None:
            return
        try:
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def _converse(self, asking: Generator[Question, bytes, T], timeout_ms: int) -> T:
        """Carry out a handshake: send what it yields, and pass the answers in."""
        try:
            question = next(asking)
            while True:
                question = asking.send(self._receive_frame(self._send(question, timeout_ms)))
        except StopIteration as end:
            result: T = end.value
            return result


def reason(error: Exception) -> str:
    """The operating system's message, worded as a part of a sentence."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "unknown host name"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
