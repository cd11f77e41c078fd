"""What a server tells systemd, or another supervisor with its protocol (sd_notify(3)): datagrams to $NOTIFY_SOCKET.

READY=1 and STOPPING=1 mark the beginning and the end of the service. During a long replay, EXTEND_TIMEOUT_USEC says
that the start goes on; each one is sent because something was read, so a start that hangs is still ended. WATCHDOG=1 is
sent from the event loop at half the time that the supervisor waits, and only while turns end.

Without $NOTIFY_SOCKET nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence

from kohort.broker.turn import Arrived, Turn
from kohort.server import log

EXTEND_EVERY_S = 5.0
EXTEND_S = 60.0
"""A start that reads nothing for this time is ended, if it has lasted longer than TimeoutStartSec."""


class Supervisor:
    """Tells a supervisor the state of the service. It is an observer of turns, for the watchdog."""

    def __init__(
        self, address: str = "", *, watchdog_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`address`: a path, or @NAME in the abstract namespace; empty: nobody is told. `watchdog_s`: the supervisor
        ends a service that it does not hear from for this time; 0: never. `clock`: seconds that never go back."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._half_s = watchdog_s / 2
        self._clock = clock
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self._failed = False
        self._extended_at = clock()
        self._turn_began: float | None = None

    @property
    def is_there(self) -> bool:
        return self._socket is not None

    @property
    def observers(self) -> tuple[Supervisor, ...]:
        """Itself, if there is a watchdog."""
        return (self,) if self._socket is not None and self._half_s else ()

    def tell(self, *lines: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._failed:
                self._failed = True
                log.warning("the supervisor cannot be told", address=self._address.replace("\0", "@"), error=str(error))

    def replaying(self, done: int, logs: int) -> None:
        """The replay has read something; `done` of the logs are read."""
        now = self._clock()
        if now - self._extended_at >= EXTEND_EVERY_S:
            self._extended_at = now
            self.tell(f"EXTEND_TIMEOUT_USEC={int(EXTEND_S * 1e6)}", f"STATUS=Replaying the logs: {done} of {logs}")

    def ready(self, status: str) -> None:
        """The service runs. Begins with the watchdog; needs the event loop."""
        self.tell("READY=1", f"STATUS={status}")
        if self.observers:
            asyncio.get_running_loop().call_later(self._half_s, self._look)

    def stopping(self, why: str) -> None:
        self.tell("STOPPING=1", f"STATUS=Stopping: {why}")

    def failed(self, text: str) -> None:
        """`text`: what ended the server."""
        self.tell(f"STATUS={text.splitlines()[0] if text else 'failed'}")

    def _look(self) -> None:
        if self.turns_end:
            self.tell("WATCHDOG=1")
        asyncio.get_running_loop().call_later(self._half_s, self._look)

    # -- the turns

    @property
    def turns_end(self) -> bool:
        """False while a turn has been under way for half the watchdog's time."""
        return self._turn_began is None or self._clock() - self._turn_began < self._half_s

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        self._turn_began = self._clock()

    def decided(self, turn: Turn) -> None: ...

    def committed(self, turn: Turn) -> None: ...

    def turn_ends(self, turn: Turn) -> None:
        self._turn_began = None


def supervisor_of(environment: Mapping[str, str], process: int | None = None) -> Supervisor:
    """The supervisor that the environment names. `process`: the id of this process, by default its own."""
    address = environment.get("NOTIFY_SOCKET", "")
    if address and (address[0] not in "/@" or not hasattr(socket, "AF_UNIX")):
        log.warning("NOTIFY_SOCKET is not understood", address=address)
        address = ""
    return Supervisor(address, watchdog_s=_watchdog_s(environment, os.getpid() if process is None else process))


def _watchdog_s(environment: Mapping[str, str], process: int) -> float:
    """Source: sd_watchdog_enabled(3). The watchdog may be meant for another process."""
    time_us = environment.get("WATCHDOG_USEC", "")
    meant = environment.get("WATCHDOG_PID", "")
    if not time_us.isdecimal() or (meant and meant != str(process)):
        return 0.0
    return int(time_us) / 1e6
