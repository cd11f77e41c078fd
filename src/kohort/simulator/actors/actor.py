"""The common part of simulated clients: a name, a random generator, connections, and a process that can pause or
end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.simulator.plan import Faults
from kohort.simulator.world.network import Link
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import Millis, World


class Actor:
    kind = ""
    """"consumer" for a well-behaved member of a consumer group."""

    def __init__(self, world: World, process: Process, faults: Faults, name: str) -> None:
        self.world = world
        self.process = process
        self.faults = faults
        self.name = name
        self.random: Random = world.random(f"actor/{name}")
        self.running = False
        self.paused = False
        self._missed: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        """Calls that came due during the pause, in order."""

    def tell(self, what: str) -> None:
        self.world.tell(self.name, what)

    def connect(self, broker_id: int, principal: Principal = ANONYMOUS) -> Link:
        return Link(self.world, self.process, self.faults, self, broker_id, principal)

    def any_broker(self) -> int:
        return self.process.config.broker_id + self.random.randrange(self.process.config.brokers)

    # -- a process that may be suspended

    def soon(self, delay: Millis, action: Callable[..., None], *arguments: Any) -> None:
        """Like World.after, but the call waits for the end of a pause, and is dropped at the end of the process."""
        self.world.after(delay, self._run, action, arguments)

    def _run(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.running:
            return
        if self.paused:
            self._missed.append((action, arguments))
            return
        action(*arguments)

    def pause(self, milliseconds: Millis) -> None:
        if self.running and not self.paused:
            self.tell(f"is paused for {milliseconds} ms")
            self.paused = True
            self.world.after(milliseconds, self.go_on)

    def go_on(self) -> None:
        if self.paused:
            self.paused = False
            self.tell("goes on")
            while self._missed and not self.paused:
                action, arguments = self._missed.popleft()
                self._run(action, arguments)

    def end(self) -> None:
        self.running = False
        self.paused = False
        self._missed.clear()

    # -- answers

    def answered(self, link: Link, tag: Any, response: Any) -> None:
        self._run(self.on_answer, (link, tag, response))

    def cut(self, link: Link) -> None:
        self._run(self.on_cut, (link,))

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        """An answer to a request that was sent with this tag."""

    def on_cut(self, link: Link) -> None:
        """The connection is gone."""
