"""New connections while addresses have quotas (KIP-612): one above its quota is held for a moment and closed.

Held connections are not read, and send nothing. Without such a quota no connection comes by here. Source:
ConnectionQuotas and the throttled sockets of Kafka's Acceptor.
"""

from __future__ import annotations

import asyncio
from typing import cast

from kohort.broker.quotas.meters import Meters
from kohort.server import log
from kohort.server.clock import Clock

MOST_HELD = 1_000
"""Connections that are held. Further ones are closed at once."""


class Arrivals:
    def __init__(self, meters: Meters, clock: Clock) -> None:
        self.meters = meters
        self.clock = clock
        self.log = log.LimitedLog()
        self.held: dict[Arrival, asyncio.TimerHandle] = {}

    def protocol(self, broker_id: int, inside: asyncio.Protocol) -> Arrival:
        """The protocol of a new connection, which continues with `inside` if its address is within its quota."""
        return Arrival(self, broker_id, inside)

    def close(self) -> None:
        for arrival in list(self.held):
            arrival.abort()


class Arrival:
    """An asyncio.Protocol by its methods."""

    def __init__(self, owner: Arrivals, broker_id: int, inside: asyncio.Protocol) -> None:
        self._owner = owner
        self._broker_id = broker_id
        self._inside = inside
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        owner = self._owner
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        host = peer[0] if peer else ""
        held_ms = owner.meters.connected(self._broker_id, host, owner.clock.now())
        if not held_ms:
            transport.set_protocol(self._inside)
            self._inside.connection_made(transport)
            return
        owner.log.info("connection refused", peer=host, reason="its address is above connection_creation_rate")
        if len(owner.held) >= MOST_HELD:
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        owner.held[self] = loop.call_later(held_ms / 1000, self.abort)
        loop.call_soon(self._stop_reading)

    def _stop_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def abort(self) -> None:
        timer = self._owner.held.pop(self, None)
        if timer is not None:
            timer.cancel()
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """It came before the reading stopped, and is dropped."""

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        timer = self._owner.held.pop(self, None)
        if timer is not None:
            timer.cancel()
