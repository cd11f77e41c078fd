"""The broker's state of one connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from kohort.broker.authorization import Principal
from kohort.broker.request import RequestContext
from kohort.broker.security.authorizer import Rights
from kohort.broker.turn import Opened
from kohort.coordinator.events import Client, RequestId
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse


class Work:
    """A request whose answer is being made in steps."""

    __slots__ = ("context", "size", "steps")

    def __init__(self, context: RequestContext, steps: Generator[int | None, None, Any], size: int) -> None:
        self.context = context
        self.steps = steps
        self.size = size
        """About the bytes of what has been made of the answer."""


class Connection:
    """No dataclass: mypyc makes a plain Python class of a dataclass with slots, and its attributes are slow."""

    __slots__ = (
        "backlog",
        "broker_id",
        "client",
        "closing",
        "host",
        "id",
        "is_costly",
        "is_held",
        "is_queued",
        "is_unread",
        "listener",
        "parked",
        "principal",
        "rights",
        "rules_version",
        "software",
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
        self.client = Client("", self.host, *opened.software)
        self.backlog: deque[bytes] = deque()
        """Requests that wait. Change it by `push`, `pop` and `keep`."""
        self.waiting_bytes = 0
        """The bytes of the backlog."""
        self.parked: RequestId | None = None
        self.work: Work | None = None
        """The request whose answer is being made in steps."""
        self.closing = False
        """A Disconnect was released; requests that still arrive are dropped."""
        self.is_costly = False
        """Its last request took much of a turn (ready.py)."""
        self.is_held = False
        """The answer to its last heartbeat was held; the next one goes to the handler, which can hold it again."""
        self.is_queued = False
        """It is in the broker's queue of ready connections."""
        self.is_unread = False
        """The client leaves many answers unread."""

    def note_software(self, request: ApiVersionsRequest, response: ApiVersionsResponse) -> None:
        if response.error_code == 0 and request.client_software_name:
            self.software = (request.client_software_name, request.client_software_version)
            self.client = Client(self.client.client_id, self.host, *self.software)

    def push(self, frame: bytes) -> None:
        self.backlog.append(frame)
        self.waiting_bytes += len(frame)

    def pop(self) -> bytes:
        frame = self.backlog.popleft()
        self.waiting_bytes -= len(frame)
        return frame

    def keep(self, wanted: Callable[[bytes], bool]) -> None:
        """Drop the other requests of the backlog."""
        if self.backlog:
            self.backlog = deque(filter(wanted, self.backlog))
            self.waiting_bytes = sum(map(len, self.backlog))

    @property
    def can_go_on(self) -> bool:
        """True if its next request, or the next step of its answer, can be handled."""
        return (self.work is not None or bool(self.backlog)) and self.parked is None and not self.is_unread

    @property
    def is_occupied(self) -> bool:
        """True if a request that arrives now has to wait behind others of the connection."""
        return self.parked is not None or self.work is not None or bool(self.backlog)


@dataclass(frozen=True, slots=True)
class ParkedRequest:
    connection: Connection
    context: RequestContext
    shard: int | None
    """The shard that holds the request; None for a fetch."""


def nothing(frame: bytes) -> bool:
    return False
