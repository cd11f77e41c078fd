"""The broker's state of one connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.broker.request import RequestContext
from kohort.broker.security.authorizer import Rights
from kohort.broker.turn import ConnectionId, LateRequest, Millis, Opened
from kohort.coordinator.events import Client, RequestId
from kohort.wire.framing import RequestHeaderView
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse

FETCHES = (b"\0\1", b"\0\x4e")
"""The first bytes of Fetch and ShareFetch requests: their API keys."""


class Work:
    """A request whose answer is being made in steps."""

    __slots__ = ("context", "has_begun", "size", "steps", "waits")

    def __init__(self, context: RequestContext, steps: Generator[Any, None, Any], size: int) -> None:
        self.context = context
        self.steps = steps
        self.has_begun = False
        """One of its steps is done."""
        self.waits = False
        """It goes on when a read is done (waits/reads.py), or an answer of another connection (works.py)."""
        self.size = size
        """About the bytes of what has been made of the answer."""


class Connection:
    """No dataclass: mypyc makes a plain Python class of a dataclass with slots, and its attributes are slow."""

    __slots__ = (
        "arrivals",
        "arrived",
        "backlog",
        "broker_id",
        "client",
        "closing",
        "grace",
        "has_first",
        "has_member",
        "has_passed",
        "host",
        "id",
        "is_costly",
        "is_held",
        "is_muted",
        "is_queued",
        "is_unread",
        "listener",
        "parked",
        "principal",
        "rights",
        "rules_version",
        "software",
        "spent_ns",
        "waiting_bytes",
        "work",
    )

    def __init__(self, opened: Opened, rules_version: int) -> None:
        self.id = opened.connection
        self.broker_id = opened.broker_id
        self.listener = opened.listener
        self.host = f"/{opened.host}"
        """As Kafka prints it."""
        self.principal: Principal = opened.principal
        self.rights: Rights | None = None
        """What its principal may do, if there is an authorizer and it has asked something."""
        self.rules_version = rules_version
        """The version of the authorizer's rules at which its cached answers were allowed."""
        self.software = opened.software
        """Name and version, from ApiVersions."""
        self.client = self._client("")
        self.backlog: deque[bytes] = deque()
        """Requests that wait. Change it by `push`, `pop` and `keep`."""
        self.waiting_bytes = 0
        """The bytes of the backlog."""
        self.arrivals: deque[Millis] = deque()
        """When the requests of the backlog arrived."""
        self.arrived: Millis = 0
        """When the request arrived that arrived last, or is handled now."""
        self.parked: RequestId | None = None
        self.work: Work | None = None
        """The request whose answer is being made in steps."""
        self.closing = False
        """A Disconnect was released; requests that still arrive are dropped."""
        self.has_first = False
        """The client has closed the connection, and the next request of the backlog was the first one when it did."""
        self.is_costly = False
        """Its last request took much of a turn (ready.py)."""
        self.is_held = False
        """The answer to its last heartbeat was held; the next one goes to the handler, which can hold it again."""
        self.has_passed = False
        """A request that arrived after its last one was forwarded by a gateway."""
        self.is_queued = False
        """It is in the broker's queue of ready connections."""
        self.is_unread = False
        """The client leaves many answers unread."""
        self.is_muted = False
        """The client is above its quota: its requests wait (quotas/throttling.py)."""
        self.has_member = False
        """A member has sent heartbeats on it since quotas were there."""
        self.grace = 0
        """So many answers from now on do not mute it, because a heartbeat waits behind their requests."""
        self.spent_ns = 0
        """The time of its requests that no quota has counted yet."""

    def _client(self, client_id: str) -> Client:
        principal = "" if self.principal == ANONYMOUS else str(self.principal)
        return Client(client_id, self.host, *self.software, principal=principal)

    def context(self, request_id: RequestId, header: RequestHeaderView, size: int, now: Millis) -> RequestContext:
        """The context of a request of `size` bytes."""
        client_id = header.client_id or ""
        if self.client.client_id != client_id:
            self.client = self._client(client_id)
        return RequestContext(
            request_id,
            self.id,
            self.broker_id,
            header.api_key,
            header.api_version,
            header.correlation_id,
            self.client,
            now,
            bool(self.backlog) or self.has_passed,
            self.principal,
            self.listener,
            size,
            0,
            None,
            self.arrived,
        )

    def note_software(self, request: ApiVersionsRequest, response: ApiVersionsResponse) -> None:
        if response.error_code == 0 and request.client_software_name:
            self.software = (request.client_software_name, request.client_software_version)
            self.client = self._client(self.client.client_id)

    def push(self, frame: bytes) -> None:
        """A request that has just arrived."""
        self.backlog.append(frame)
        self.arrivals.append(self.arrived)
        self.waiting_bytes += len(frame)

    def pop(self) -> bytes:
        frame = self.backlog.popleft()
        self.arrived = self.arrivals.popleft()
        self.waiting_bytes -= len(frame)
        return frame

    def keep(self, wanted: Callable[[bytes], bool]) -> None:
        """Drop the other requests of the backlog."""
        if self.backlog:
            kept = [(frame, at) for frame, at in zip(self.backlog, self.arrivals, strict=True) if wanted(frame)]
            self.backlog = deque(frame for frame, _ in kept)
            self.arrivals = deque(at for _, at in kept)
            self.waiting_bytes = sum(map(len, self.backlog))

    def closes(self, outlasts: Callable[[bytes], bool], are_last_words: Callable[[bytes], bool]) -> None:
        """The client has closed the connection. Of the backlog, keep the first request if its effect `outlasts` the
        client, and all last words."""
        self.is_unread = False
        self.has_first = bool(self.backlog) and outlasts(self.backlog[0])
        first = self.backlog[0] if self.has_first else None
        self.keep(lambda frame: frame is first or are_last_words(frame))

    def take_first(self) -> bool:
        """Whether the next request of the backlog was the first when the client closed; False for later requests."""
        is_first, self.has_first = self.has_first, False
        return is_first

    def wait_from(self, now: Millis) -> None:
        """What has waited so far waited on purpose: behind a parked request, for the end of a mute, or for the client
        to read its answers."""
        if self.arrivals:
            self.arrivals = deque([now] * len(self.arrivals))

    def late(self, frame: bytes, now: Millis) -> LateRequest:
        """A repeated request, which is answered at once when it is its turn."""
        return LateRequest(self.id, int.from_bytes(frame[:2], "big"), self.client.client_id, now - self.arrived)

    def hurries(self, early_fetches: bool) -> bool:
        """True if a request other than a fetch waits behind a parked fetch, which is answered for it. Clients look for
        their coordinator and for offsets on the connection on which they fetch."""
        return early_fetches and bool(self.backlog) and self.backlog[0][:2] not in FETCHES

    @property
    def can_go_on(self) -> bool:
        """True if its next request, or the next step of its answer, can be handled."""
        if self.parked is not None or self.is_unread:
            return False
        if self.work is not None:
            return not self.work.waits
        return bool(self.backlog) and not self.is_muted

    @property
    def is_occupied(self) -> bool:
        """True if a request that arrives now has to wait: behind others of the connection, or because of a quota."""
        return self.parked is not None or self.work is not None or bool(self.backlog) or self.is_muted


class Waiting:
    """What waits in the broker, for the edge."""

    def __init__(self, connections: Mapping[ConnectionId, Connection]) -> None:
        self._connections = connections

    def bytes_of(self, connection: ConnectionId) -> int:
        """Bytes of this connection's requests that wait, for whatever reason."""
        found = self._connections.get(connection)
        return found.waiting_bytes if found is not None else 0

    def is_ready(self, connection: ConnectionId) -> bool:
        """True if requests of this connection wait for a later turn, or for the end of a mute, and for nothing else."""
        found = self._connections.get(connection)
        return found is not None and (found.can_go_on or found.is_muted)

    def is_occupied(self, connection: ConnectionId) -> bool:
        """True if a request of this connection is not answered yet."""
        found = self._connections.get(connection)
        return found is not None and found.is_occupied


@dataclass(frozen=True, slots=True)
class ParkedRequest:
    connection: Connection
    context: RequestContext
    shard: int | None
    """The shard that holds the request; None for a fetch."""

    def end(self, now: Millis) -> None:
        """It is answered."""
        self.connection.parked = None
        self.context.parked_ms = now - self.context.now
        self.connection.wait_from(now)


def late_request(context: RequestContext, now: Millis) -> LateRequest:
    """A request that is answered now."""
    return LateRequest(
        context.connection,
        context.api_key,
        context.client.client_id,
        context.now - context.arrived,
        now - context.now - context.parked_ms,
        context.parked_ms,
    )


def nothing(frame: bytes) -> bool:
    return False
