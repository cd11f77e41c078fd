"""What the broker knows of a connection."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kohort.broker.turn import ConnectionId
from kohort.coordinator.events import Client, RequestId

if TYPE_CHECKING:
    from kohort.broker.heartbeats import Beat


@dataclass(slots=True)
class Connection:
    id: ConnectionId
    broker_id: int
    host: str
    client: Client
    software: tuple[str, str]
    backlog: deque[bytes]
    parked: RequestId | None = None
    closing: bool = False
    """Told to disconnect; whatever still comes from it is dropped."""
    beat: Beat | None = None
    """The last heartbeat that was answered without a handler."""
    beats: dict[bytes, Beat] | None = None
    """Where members share the connection: theirs, by all that follows the correlation id."""
    is_held: bool = False
    """Its last heartbeat's answer was held, so that of the next one will be: it goes to the handler at once."""
