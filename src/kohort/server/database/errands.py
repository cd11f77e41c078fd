"""Requests between this node and the controller (broker/sharing/asks.py), through the database.

What this node passes on is a row, and its answer is taken when a look finds it. The controller takes the rows of other
nodes as requests of connections with negative ids, and writes their answers when they are released: what they have
changed is durable by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kohort.broker.authorization import Principal
from kohort.broker.sharing.asks import FROM_NODES, NOBODY, Ask
from kohort.broker.sharing.slots import Slots
from kohort.broker.turn import Arrived, AskAnswered, Closed, ConnectionId, Frame, Opened, Release, Send
from kohort.coordinator.events import RequestId
from kohort.storage.protocol import StorageError

if TYPE_CHECKING:
    from kohort.storage.postgres.engine import PostgresStorage

ANSWER_S = 30.0
"""How long a client waits for the answer of the controller."""


class Errands:
    """All methods run in the server's event loop."""

    def __init__(self, storage: PostgresStorage, slots: Slots, arrive: Callable[[Arrived], None]) -> None:
        self._storage = storage
        self._slots = slots
        self._arrive = arrive
        self._asked: dict[int, tuple[RequestId, float]] = {}
        """By the number of the row: the request, and when its client has waited long enough."""
        self._served: set[int] = set()
        """Rows of other nodes that this one handles."""
        self._tasks: set[asyncio.Task[None]] = set()
        slots.asks.send = self._send

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def look(self) -> None:
        """Take answers; and, as the controller, requests."""
        now = asyncio.get_running_loop().time()
        if self._asked:
            for number, answer in await asyncio.to_thread(self._storage.answers, list(self._asked)) or ():
                self._done(number, answer)
            for number in [number for number, (_, until) in self._asked.items() if until < now]:
                self._done(number, b"")
        if self._slots.controls:
            for number, frame, host, kind, name, listener in (
                await asyncio.to_thread(self._storage.asked, list(self._served)) or ()
            ):
                self._served.add(number)
                connection = ConnectionId(FROM_NODES - number)
                self._arrive(Opened(connection, self._slots.node, host, Principal(name, kind), listener))
                self._arrive(Frame(connection, frame))

    def taken(self, releases: Sequence[Release]) -> Sequence[Release]:
        """The releases without those that answer requests of other nodes."""
        own = [release for release in releases if release.connection < FROM_NODES]
        if not own:
            return releases
        for release in own:
            answer = release.whole[4:] if isinstance(release, Send) else b""
            self._begin(self._answer(FROM_NODES - release.connection, answer))
        return [release for release in releases if release.connection >= FROM_NODES]

    # -- this node's requests

    def _send(self, ask: Ask) -> None:
        self._begin(self._ask(ask))

    async def _ask(self, ask: Ask) -> None:
        number = await asyncio.to_thread(self._storage.ask, ask.frame, ask.host, *ask.principal, ask.listener)
        if ask.request_id == NOBODY:
            return
        if number is None:
            self._arrive(AskAnswered(ask.request_id, b""))
            return
        self._asked[number] = ask.request_id, asyncio.get_running_loop().time() + ANSWER_S
        self._storage.look_again()  # the answer may be there already

    def _done(self, number: int, answer: bytes) -> None:
        request_id, _ = self._asked.pop(number)
        self._arrive(AskAnswered(request_id, answer))

    # -- requests of other nodes

    async def _answer(self, number: int, answer: bytes) -> None:
        self._arrive(Closed(ConnectionId(FROM_NODES - number)))
        await asyncio.to_thread(self._storage.answer, number, answer)
        self._served.discard(number)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    with suppress(StorageError):  # the server stops
        await work
