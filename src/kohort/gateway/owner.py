"""The part of the gateway that a link (link.py) uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from kohort.broker.turn import Arrived
from kohort.config import Address
from kohort.gateway.buffers import Buffers
from kohort.gateway.metadata import Beginning
from kohort.server.connection import Connection
from kohort.server.log import LimitedLog
from kohort.wire.schemas.metadata import MetadataResponse


class Owner(Protocol):
    """The part of the gateway that a link uses."""

    log: LimitedLog
    max_bytes: int
    clients_authenticate: bool
    user_claim: str
    """The claim of an OAUTHBEARER token that names the user."""
    buffers: Buffers
    beat_s: float
    """How often a member that cannot send heartbeats gets one from its link, in seconds."""

    @property
    def is_known(self) -> bool:
        """The upstream cluster has been seen, now or by an earlier process."""

    def arrive(self, event: Arrived) -> None: ...
    def learn(self, metadata: MetadataResponse) -> None:
        """Called with each Metadata answer before it leaves. Raises ProtocolError if it is that of another cluster."""

    def learn_beginning(self, beginning: Beginning) -> None:
        """As `learn`, for the beginning of a large answer."""

    def topics_changed(self) -> None:
        """Called when a client has created, grown or deleted topics."""

    def address_of(self, broker: int, listener: str) -> Address | None: ...
    def coordinator(self) -> int: ...
    def is_coordinator_at(self, place: int) -> bool:
        """Groups are listed by the listeners at this place."""

    async def connect(self, place: int, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Open a connection to the broker at a place; place 0: to any. Raises OSError, and what TLS raises."""

    def own_of(self, own: Connection, user: str, software: tuple[str, str]) -> Connection:
        """A connection to kohort's broker in the place of another, for a user who has logged in."""

    def clock(self) -> float:
        """Seconds, for differences."""

    def opened(self, link: Any) -> None:
        """`link`: the `Link` itself, which this file cannot import."""

    def closed(self, link: Any) -> None: ...
