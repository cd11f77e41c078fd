"""Requests and their answers on a plain socket: kohort's codec, and no client around it.

A `Wire` is one connection. Requests are sent without waiting; answers come in their order. A connection that the server
closes stays closed, and its requests get no answer.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from kohort.conformance.play.broker import CONNECT_S, Address, broker_of, response_of
from kohort.wire.codec import decode, encode_request
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of

CHUNK = 1 << 16


class Answer(NamedTuple):
    """The answer to the request of that number; None if the server closed the connection instead."""

    number: int
    body: Any


class Wire:
    def __init__(self, address: Address, client_id: str | None) -> None:
        self._socket = broker_of(address).open(client_id)
        self._socket.settimeout(CONNECT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._asked: deque[tuple[int, int, type]] = deque()
        """The number, the version and the type of the answer of each request on its way."""
        self._buffer = b""
        self._correlation = 0
        self.closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_idle(self) -> bool:
        return not self._asked and not self.closed

    @property
    def waits(self) -> bool:
        return bool(self._asked) and not self.closed

    def send(self, number: int, request: Any, version: int) -> None:
        self._correlation += 1
        self._asked.append((number, version, response_of(type(request))))
        try:
            self._socket.sendall(encode_request(request, version, self._correlation, self._client_id))
        except OSError:
            self.close()

    def receive(self) -> list[Answer]:
        """The answers that have arrived. If the connection is closed: None for each request that waits."""
        try:
            data = self._socket.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            lost = [Answer(number, None) for number, _, _ in self._asked]
            self.close()
            return lost
        self._buffer += data
        found = []
        while (frame := self._frame()) is not None:
            number, version, response = self._asked.popleft()
            schema = schema_of(response)
            _, start = read_response_header(frame, flexible=version in schema.flexible, api_key=schema.api_key or 0)
            found.append(Answer(number, decode(response, version, frame, start)))
        return found

    def _frame(self) -> bytes | None:
        if len(self._buffer) < 4:
            return None
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        if len(self._buffer) < end:
            return None
        frame, self._buffer = self._buffer[4:end], self._buffer[end:]
        return frame

    def call(self, request: Any, version: int, timeout_s: float = 30.0) -> Any:
        """One request and its answer, on a connection without other requests."""
        self.send(0, request, version)
        while not self.closed:
            if not ready([self], timeout_s):
                raise TimeoutError(f"no answer to {type(request).__name__} within {timeout_s:g} s")
            for answer in self.receive():
                if answer.body is not None:
                    return answer.body
        raise ConnectionError(f"the connection was closed instead of an answer to {type(request).__name__}")

    def close(self) -> None:
        self.closed = True
        self._asked.clear()
        self._socket.close()


def ready(wires: Iterable[Wire], timeout_s: float) -> list[Wire]:
    """The connections with data, after this time at most."""
    waiting = {wire.fileno(): wire for wire in wires}
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    return [waiting[descriptor] for descriptor, _ in poll.poll(max(0.0, timeout_s) * 1000)]
