"""New connections: a listener accepts one when there is a place for it.

A listener waits when `max.connections` are open, and for a moment when more than `max.connection.creation.rate` came in
a second. It has then accepted one connection; BACKLOG further ones wait in the queue of the system. Other listeners and
open connections do not wait. A connection whose client has gone meanwhile takes no place and does not count, so clients
that give up and come again do not keep the others waiting.

A connection above the quota of its address (KIP-612) is held for a moment, unread, and closed.

Source: SocketServer.scala (Acceptor, ConnectionQuotas).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from kohort.broker.quotas.meters import Meters
from kohort.server import open_files
from kohort.server.clock import Clock
from kohort.server.connections import Connections

BACKLOG = 4096
MOST_AT_ONCE = 50
"""Connections that a listener accepts before other events of the loop are handled."""
MOST_HELD = 1_000
"""Connections that are held. Further ones are closed at once, as are those that get one of the last open files."""
LOOK_S = 0.25
"""A listener that waits for a place looks so often, because `max.connections` may be raised."""
PAUSE_S = 1.0
"""After an error of the system, such as a lack of open files."""


class Arrivals:
    """What all listeners share."""

    def __init__(self, meters: Meters, clock: Clock, connections: Connections) -> None:
        self.connections = connections
        self.log = connections.log
        self._meters = meters
        self._clock = clock
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self._waiting: dict[Acceptor, None] = {}
        """Those that wait for a place, in their order."""
        self._is_planned = False
        connections.place_is_free = self._place_is_free

    def close(self) -> None:
        for accepted in list(self._held):
            self._drop(accepted)

    # -- rates

    def delay_s(self, broker_id: int, listener: str) -> float:
        """Count a connection. Returns for how long it waits."""
        rates = self.connections.rates_of(broker_id, listener)
        now = self._clock.now()
        return max((self._meters.arrived(broker_id, place, rate, now) for place, rate in rates), default=0) / 1000

    def is_held(self, accepted: socket.socket, host: str, broker_id: int, listener: str) -> bool:
        """True if the connection is above the quota of its address: it will be closed, and does not count."""
        if not self._meters.quotas.on_connections:
            return False
        now = self._clock.now()
        held_ms = self._meters.connected(broker_id, host, now)
        if not held_ms:
            return False
        for place, _ in self.connections.rates_of(broker_id, listener):
            self._meters.not_arrived(broker_id, place, now)
        self.log.info("connection refused", peer=host, reason="its address is above connection_creation_rate")
        if len(self._held) >= MOST_HELD or open_files.refusal(accepted.fileno()):
            accepted.close()
        else:
            self._held[accepted] = asyncio.get_running_loop().call_later(held_ms / 1000, self._drop, accepted)
        return True

    def _drop(self, accepted: socket.socket) -> None:
        self._held.pop(accepted).cancel()
        accepted.close()

    # -- places

    def wait(self, acceptor: Acceptor) -> None:
        self._waiting[acceptor] = None

    def waits_no_more(self, acceptor: Acceptor) -> None:
        self._waiting.pop(acceptor, None)

    def _place_is_free(self) -> None:
        if self._waiting and not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_planned = False
        for acceptor in list(self._waiting):
            acceptor.go_on()


class Acceptor:
    """Accepts the connections of one listener of one broker."""

    def __init__(
        self, owner: Arrivals, broker_id: int, listener: str, new_connection: Callable[[], asyncio.Protocol]
    ) -> None:
        self._owner = owner
        self._broker_id = broker_id
        self._listener = listener
        self._new_connection = new_connection
        self._sockets: Sequence[socket.socket] = ()
        self._waiting: tuple[socket.socket, str] | None = None
        """The accepted connection that waits, and its host."""
        self._due = 0.0
        """When its rate allows it."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop

    @property
    def is_busy(self) -> bool:
        """Connections that were accepted are not open yet. They are not cancelled, because uvloop would not tell their
        protocols."""
        return bool(self._tasks)

    def start(self, sockets: Sequence[socket.socket]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._resume()

    def stop(self) -> None:
        if not self._sockets:
            return
        self._pause()
        self._sockets = ()
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            self._waiting[0].close()
            self._waiting = None
        self._owner.waits_no_more(self)

    def _resume(self) -> None:
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _pause(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening)

    def _later(self, delay_s: float, then: Callable[[], None]) -> None:
        self._timer = self._loop.call_later(delay_s, then)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(MOST_AT_ONCE):
            if self._waiting is not None or not self._sockets:
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._owner.log.warning("connections cannot be accepted", listener=self._listener, error=str(error))
                self._pause()
                self._later(PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            if _has_gone(accepted):
                accepted.close()
            else:
                self._take(accepted, address[0])

    def _take(self, accepted: socket.socket, host: str) -> None:
        owner = self._owner
        delay_s = owner.delay_s(self._broker_id, self._listener)
        full = owner.connections.is_full(self._broker_id, self._listener)
        if not delay_s and not full:
            self._begin(accepted, host)
            return
        reason = full or f"new connections come faster than max.connection.creation.rate: {delay_s:.3g} s"
        owner.log.warning("connections wait", listener=self._listener, reason=reason)
        self._waiting = accepted, host
        self._due = self._loop.time() + delay_s
        self._pause()
        owner.wait(self)
        self._later(delay_s or LOOK_S, self.go_on)

    def go_on(self) -> None:
        """A place may be free, or the time is over."""
        if self._waiting is None:
            return
        accepted, host = self._waiting
        owner = self._owner
        has_gone = _has_gone(accepted)
        now = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
        if now < self._due or (not has_gone and owner.connections.is_full(self._broker_id, self._listener)):
            self._later(max(self._due - now, 0.0) or LOOK_S, self.go_on)
            return
        self._waiting = None
        owner.waits_no_more(self)
        if has_gone:
            accepted.close()
        else:
            self._begin(accepted, host)
        self._resume()

    def _begin(self, accepted: socket.socket, host: str) -> None:
        if self._owner.is_held(accepted, host, self._broker_id, self._listener):
            return
        self._owner.connections.arriving(self._listener, 1)
        task = self._loop.create_task(self._connect(accepted))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._begun(accepted, task))

    def _begun(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._owner.connections.arriving(self._listener, -1)
        if task.cancelled():
            accepted.close()

    async def _connect(self, accepted: socket.socket) -> None:
        loop = self._loop
        try:
            await loop.connect_accepted_socket(self._new_connection, accepted)
        except OSError:
            accepted.close()
        except Exception as error:
            loop.call_exception_handler({"message": "a connection cannot begin", "exception": error})


def _has_gone(accepted: socket.socket) -> bool:
    """True if the client has closed the connection and sent nothing."""
    try:
        return not accepted.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
