"""One blocking connection to one broker.

The constructor connects and asks for the broker's API versions; from then on `request` chooses the highest version
of a message that this client, the broker and `VERSION_CAPS` have in common. An ApiVersions request that is too new
is answered in version 0 with UNSUPPORTED_VERSION (35) and the range that the broker does serve; the question is then
asked again inside that range.

A connection belongs to one thread. `send` and `receive` are `request` in two halves, so that one thread can have a
question pending at several brokers; on one connection, answers come in the order of the questions, and each answer's
correlation id is checked against the question's. Bytes behind an answer are ignored, as Kafka's own clients do
(librdkafka's mock broker sends one too many). After any failure the connection is closed and stays closed:
what was in flight is unknown, and a half-read frame cannot be skipped.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

from kohort import __version__
from kohort.client.errors import BadAnswer, ConnectionFailed, TimedOut, UnsupportedVersion
from kohort.wire.codec import decode_prefix, encode_request
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest
from kohort.wire.schemas.produce import ProduceRequest

VERSION_CAPS: Mapping[type, int] = {FetchRequest: 12, ProduceRequest: 12, OffsetCommitRequest: 9, OffsetFetchRequest: 9}
"""The next version of each names topics by id instead of by name. Callers of this library name topics, and every
broker that speaks the ids also speaks these, so ids would only add a look-up that can be stale."""

DEFAULT_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
SOFTWARE_NAME = "kohort"
API_VERSIONS = 18

Response = TypeVar("Response")


class VersionRange(NamedTuple):
    """Versions of one API that a broker serves, both included."""

    first: int
    last: int


class Pending(NamedTuple):
    """A question that was sent and not yet answered."""

    correlation_id: int
    name: str
    api_key: int
    version: int
    deadline: float


class Connection:
    """A connection to one broker, open and negotiated once constructed. Use it from one thread.

    `connect_timeout_ms` bounds connecting and the version handshake each, `request_timeout_ms` a request from
    sending to its whole answer, `max_response_bytes` the size of an answer.
    Raises ConnectionFailed, TimedOut, UnsupportedVersion.
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
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.max_response_bytes = max_response_bytes
        self.version_caps = version_caps
        self.api_versions: dict[int, VersionRange] = {}
        self._correlation_ids = itertools.count(1)
        self._pending: deque[Pending] = deque()
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout=connect_timeout_ms / 1000)
        except TimeoutError:
            raise ConnectionFailed(self.address, f"no connection within {connect_timeout_ms} ms") from None
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(self.address, _reason(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._negotiate(connect_timeout_ms)
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        return self._socket is None

    def close(self) -> None:
        """Close the connection. Questions in flight are given up."""
        opened, self._socket = self._socket, None
        self._pending.clear()
        if opened is not None:
            opened.close()

    def version_of(self, request_class: type) -> int:
        """The version in which a request of this class is sent here. Raises UnsupportedVersion."""
        schema = schema_of(request_class)
        assert schema.api_key is not None
        assert schema.versions is not None
        name = _api_name(request_class)
        served = self.api_versions.get(schema.api_key)
        if served is None:
            raise UnsupportedVersion(f"the broker at {self.address} does not serve {name}")
        last = min(served.last, schema.versions.last, self.version_caps.get(request_class, served.last))
        if last < max(served.first, schema.versions.first):
            raise UnsupportedVersion(
                f"the broker at {self.address} serves {name} in versions {served.first} to {served.last}, "
                f"this client speaks {schema.versions.first} to {schema.versions.last}"
            )
        return last

    def serves(self, request_class: type) -> bool:
        """Whether there is a common version of a request class."""
        try:
            self.version_of(request_class)
        except UnsupportedVersion:
            return False
        return True

    def request(
        self,
        message: Any,
        response_class: type[Response],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Response:
        """Send a request and wait for its answer.

        `version` None: the highest common one. `timeout_ms` None: the connection's request timeout.
        Raises ConnectionFailed, TimedOut, UnsupportedVersion. Error codes inside the answer are the caller's.
        """
        self.send(message, version=version, timeout_ms=timeout_ms)
        return self.receive(response_class)

    def send(self, message: Any, *, version: int | None = None, timeout_ms: int | None = None) -> None:
        """The first half of `request`; the time-out counts from here and ends with the answer."""
        if version is None:
            version = self.version_of(type(message))
        pending = self._send(message, version, timeout_ms)
        self._pending.append(pending)

    def send_unanswered(self, message: Any) -> None:
        """Send a request to which the broker gives no answer (Produce with acks=0)."""
        self._send(message, self.version_of(type(message)), None)

    def receive(self, response_class: type[Response]) -> Response:
        """The second half of `request`: the answer of the oldest question that was sent."""
        pending = self._pending.popleft()
        try:
            frame = self._receive_frame(pending)
            flexible = pending.version in schema_of(response_class).flexible
            correlation_id, body = read_response_header(frame, flexible=flexible, api_key=pending.api_key)
            if correlation_id != pending.correlation_id:
                self._distrust(f"answered correlation id {correlation_id} to {pending.correlation_id} ({pending.name})")
            message, _ = decode_prefix(response_class, pending.version, frame, body)
            return message
        except ProtocolError as error:
            self._distrust(f"malformed {pending.name} answer, version {pending.version}: {error}")
        except BaseException:
            self.close()  # an interrupt may leave half an answer unread
            raise

    def _send(self, message: Any, version: int, timeout_ms: int | None) -> Pending:
        schema = schema_of(type(message))
        assert schema.api_key is not None
        timeout_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        pending = Pending(
            next(self._correlation_ids),
            _api_name(type(message)),
            schema.api_key,
            version,
            time.monotonic() + timeout_ms / 1000,
        )
        frame = encode_request(message, version, pending.correlation_id, self.client_id)
        try:
            self._arm(pending).sendall(frame)
        except TimeoutError:
            self._time_out(pending)
        except OSError as error:
            self._fail(_reason(error))
        except BaseException:
            self.close()
            raise
        return pending

    def _receive_frame(self, pending: Pending) -> bytes:
        size = int.from_bytes(self._receive_exactly(4, pending), "big", signed=True)
        if not 4 <= size <= self.max_response_bytes:
            self._distrust(f"announced an answer of {size} bytes; the limit is {self.max_response_bytes}")
        return bytes(self._receive_exactly(size, pending))

    def _receive_exactly(self, size: int, pending: Pending) -> bytearray:
        buffer = bytearray(size)
        rest = memoryview(buffer)
        try:
            while rest:
                count = self._arm(pending).recv_into(rest)
                if count == 0:
                    self._fail(f"closed the connection while {pending.name} was in flight")
                rest = rest[count:]
        except TimeoutError:
            self._time_out(pending)
        except OSError as error:
            self._fail(_reason(error))
        return buffer

    def _arm(self, pending: Pending) -> socket.socket:
        """The socket, its time-out set to what is left of the question's."""
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

    def _distrust(self, why: str) -> NoReturn:
        self.close()
        raise BadAnswer(self.address, why) from None

    def _time_out(self, pending: Pending) -> NoReturn:
        self.close()
        raise TimedOut(f"{self.address}: {pending.name} was not answered in time") from None

    def _negotiate(self, timeout_ms: int) -> None:
        versions = schema_of(ApiVersionsRequest).versions
        assert versions is not None
        version = versions.last
        answer = self._ask_versions(version, timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            served = next((row.max_version for row in answer.api_keys if row.api_key == API_VERSIONS), 0)
            answer = self._ask_versions(max(0, min(served, version - 1)), timeout_ms)
        if answer.error_code:
            self._distrust(f"answered ApiVersions with error {answer.error_code}")
        self.api_versions = {row.api_key: VersionRange(row.min_version, row.max_version) for row in answer.api_keys}

    def _ask_versions(self, version: int, timeout_ms: int) -> ApiVersionsResponse:
        """The answer in the version asked, or in version 0 where its error code is UNSUPPORTED_VERSION."""
        pending = self._send(
            ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__),
            version,
            timeout_ms,
        )
        frame = self._receive_frame(pending)
        refused = False
        try:
            correlation_id, body = read_response_header(frame, flexible=False, api_key=pending.api_key)
            if correlation_id != pending.correlation_id:
                self._distrust(f"answered correlation id {correlation_id} to {pending.correlation_id}; is this Kafka?")
            refused = frame[body : body + 2] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
            answer, _ = decode_prefix(ApiVersionsResponse, 0 if refused else version, frame, body)
            return answer
        except ProtocolError as error:
            if refused:  # librdkafka's mock broker writes this answer's array as version 3 does; version 0 always works
                return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=())
            self._distrust(f"malformed ApiVersions answer ({error}); is this Kafka?")


def _api_name(request_class: type) -> str:
    return request_class.__name__.removesuffix("Request")


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "unknown host name"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
