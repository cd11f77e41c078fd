"""What the broker knows of a connection."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kohort.broker.turn import ConnectionId
from kohort.coordinator.events import Client, RequestId

if TYPE_CHECKING:
    from kohort.broker.shortcuts.commits import Kept
    from kohort.broker.shortcuts.heartbeats import Beat


class Connection:
    """No dataclass: mypyc makes a plain class of one with slots, and its attributes cost what they cost in Python."""

    __slots__ = (
        "backlog",
        "beat",
        "beats",
        "broker_id",
        "client",
        "closing",
        "commit",
        "commit_size",
        "commits_in_vain",
        "host",
        "id",
        "is_held",
        "parked",
        "software",
    )

    def __init__(self, connection: ConnectionId, broker_id: int, host: str) -> None:
        self.id = connection
        self.broker_id = broker_id
        self.host = f"/{host}"
        """As Kafka prints it."""
        self.client = Client("", self.host)
        self.software = ("", "")
        """Name and version, from ApiVersions."""
        self.backlog: deque[bytes] = deque()
        self.parked: RequestId | None = None
        self.closing = False
        """Told to disconnect; whatever still comes from it is dropped."""
        self.beat: Beat | None = None
        """The last heartbeat that was answered without a handler."""
        self.beats: dict[bytes, Beat] | None = None
        """Where members share the connection: theirs, by all that follows the correlation id."""
        self.commit: Kept | None = None
        """A commit that may be repeated."""
        self.commit_size = 0
        """Bytes of the last frame with a commit."""
        self.commits_in_vain = 0
        """How many were kept since one was repeated."""
        self.is_held = False
        """Its last heartbeat's answer was held, so that of the next one will be: it goes to the handler at once."""
