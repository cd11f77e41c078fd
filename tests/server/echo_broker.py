"""A broker of a few lines, for tests of the edge alone: the frame is the command.

anything else     answered with itself
\\0\\1N           a "Fetch" (the edge reads only its API key): answered with N bytes, in pieces
park              parked; what follows on the connection waits behind it
wake              answered with itself, and all parked requests are answered with "woken"
write             answered with itself, after an operation was committed
bad               the connection is closed
bug               raises
at once           answered with itself, without a turn where it may; "bug at once" raises then
at once N         answered with N bytes, without a turn where it may
"""

from __future__ import annotations

import random as random_module
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from kohort.broker.quotas.entities import Quotas
from kohort.broker.quotas.meters import Meters
from kohort.broker.security.credentials import Credentials
from kohort.broker.turn import (
    Arrived,
    Closed,
    ConnectionId,
    Disconnect,
    Frame,
    Millis,
    Opened,
    Release,
    Send,
    Shutdown,
    Turn,
)
from kohort.broker.works import Works
from kohort.config import Config
from kohort.storage.protocol import CreateLog, LogKey, Operation, Storage

BAD = "it said bad"
PIECE = 70_000


@lru_cache(maxsize=8)
def fetched(size: int) -> bytes:
    """The answer to a Fetch, with this many bytes and no repeated part."""
    return b"".join(b"%08d" % n for n in range(size // 8 + 1))[:size]


class EchoBroker:
    busy = False

    def __init__(
        self,
        config: Config,
        storage: Storage,
        *,
        now: Millis,
        random: random_module.Random,
        endpoints: Sequence[Any],
        assignors: Mapping[str, Any],
        stopwatch: Callable[[], int],
        parks_reads: bool,
        slots: None = None,
    ) -> None:
        quotas = Quotas()
        catalog = SimpleNamespace(
            config_of=lambda broker_id: config,
            credentials=Credentials(),
            broker_configs={},
            quotas=quotas,
            upstream=None,
            topics={},
        )
        self.state = SimpleNamespace(
            absent=frozenset(), log_level=config.log_level, catalog=catalog, meters=Meters(quotas, config)
        )
        self.turns: list[list[Arrived]] = []
        self.backlogs: dict[ConnectionId, deque[bytes]] = {}
        self.parked: list[ConnectionId] = []
        self.releases: list[Release] = []
        self.operations: list[Operation] = []
        self.written = 0
        self.deadline: Millis | None = None
        self.times: list[Millis] = []
        self.works = Works(1 << 20, lambda connection: None)
        self.waiting = self

    def bytes_of(self, connection: ConnectionId) -> int:
        return sum(map(len, self.backlogs.get(connection, ())))

    def is_ready(self, connection: ConnectionId) -> bool:
        return connection not in self.parked and self.bytes_of(connection) > 0

    def is_occupied(self, connection: ConnectionId) -> bool:
        return connection in self.parked or self.bytes_of(connection) > 0

    def next_deadline(self) -> Millis | None:
        return self.deadline

    def at_once(self, connection_id: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]:
        if data[4:] == b"bug at once":
            raise RuntimeError("this is the bug")
        if data[4:].startswith(b"at once "):
            return bytes(int(data[12:])), len(data)
        if data[4:] != b"at once":
            return b"", 0
        self.times.append(now)
        return data, len(data)

    def load(self, replaying: Callable[[int, int], object]) -> None:
        pass

    def step(self, arrived: Sequence[Arrived], now: Millis, time_is_up: Callable[[], int]) -> Turn:
        self.turns.append(list(arrived))
        self.times.append(now)
        self.deadline = None
        for event in arrived:
            match event:
                case Opened():
                    self.backlogs[event.connection] = deque()
                case Closed():
                    del self.backlogs[event.connection]
                    self.parked = [c for c in self.parked if c != event.connection]
                case Frame():
                    if event.connection in self.parked:
                        self.backlogs[event.connection].append(event.data)
                    else:
                        self._handle(event.connection, event.data, now)
                case Shutdown():
                    self._wake(now)
                case _:
                    pass
        turn = Turn(tuple(self.operations), tuple(self.releases))
        self.operations, self.releases = [], []
        return turn

    def _handle(self, connection: ConnectionId, data: bytes, now: Millis) -> None:
        if Disconnect(connection, BAD) in self.releases:
            return
        if data == b"park":
            self.parked.append(connection)
        elif data == b"bad":
            self.releases.append(Disconnect(connection, BAD))
        elif data == b"bug":
            raise RuntimeError("this is the bug")
        elif data.startswith(b"\0\1"):
            self._send_pieces(connection, fetched(int(data[2:])))
        elif data.startswith(b"in "):
            self.deadline = now + int(data[3:])
            self._send(connection, data)
        else:
            if data == b"wake":
                self._wake(now)
            elif data == b"write":
                self.written += 1
                self.operations.append(CreateLog(LogKey(self.written.to_bytes(16, "big"), 0)))
            self._send(connection, data)

    def _wake(self, now: Millis) -> None:
        parked, self.parked = self.parked, []
        for connection in parked:
            self._send(connection, b"woken")
            backlog = self.backlogs[connection]
            while backlog and connection not in self.parked:
                self._handle(connection, backlog.popleft(), now)

    def _send(self, connection: ConnectionId, data: bytes) -> None:
        self.releases.append(Send(connection, struct.pack(">i", len(data)) + data))

    def _send_pieces(self, connection: ConnectionId, data: bytes) -> None:
        pieces = tuple(data[at : at + PIECE] for at in range(0, len(data), PIECE))
        self.releases.append(Send(connection, struct.pack(">i", len(data)), pieces))
