"""The simulated world: one queue of things to come, one virtual clock, one seed. Nothing sleeps.

Everything that happens is a call in the queue, ordered by its instant and then by when it was asked for. Each actor and
each connection has a generator of its own, made of the seed and its name, so that to take an actor out of a run changes
nothing of what the others draw. The digest is of every byte that the server sent, with its instant.

When `telling`, the world keeps the story of the run, a line for each thing that happened: only runs that fail are told,
in a second run of the same plan.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from kohort.simulator.scenario import Scribe

Millis = int

START_MS = 1_760_000_000_000
"""The server's wall clock at instant 0 of the world (October 2025)."""


class Violation(Exception):
    """A promise was broken. `check` names the promise, `group` the group where it is about one."""

    def __init__(self, check: str, text: str, group: str = "") -> None:
        super().__init__(check, text, group)
        self.check = check
        self.text = text
        self.group = group

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


class World:
    def __init__(self, seed: int, *, telling: bool = False) -> None:
        self.seed = seed
        self.now: Millis = 0
        self.healed = False
        """The faults are over: what is alive must become stable."""
        self.latency_ms: Millis = 1
        """Of a message, one way, where nothing delays it."""
        self.topics: dict[str, int] = {}
        """Topics that the clients know, with their partitions."""
        self.events = 0
        self.story: list[str] = []
        self.scribe = Scribe() if telling else None
        self._telling = telling
        self._digest = hashlib.blake2b(digest_size=8)
        self._queue: list[tuple[Millis, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def random(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def at(self, when: Millis, action: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (when if when > self.now else self.now, self._count, action, arguments))

    def after(self, delay: Millis, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + delay, action, *arguments)

    def run(self, until: Millis, limit: int) -> None:
        """Let everything happen up to `until`, or until `limit` things have happened in all."""
        queue = self._queue
        while queue and queue[0][0] <= until and self.events < limit:
            self.now, _, action, arguments = heapq.heappop(queue)
            self.events += 1
            action(*arguments)
        self.now = max(self.now, until)

    def note(self, data: bytes) -> None:
        """Into the digest."""
        self._digest.update(self.now.to_bytes(8, "big") + data)

    def digest(self) -> str:
        return self._digest.hexdigest()

    @property
    def telling(self) -> bool:
        return self._telling

    def tell(self, who: str, what: str) -> None:
        if self._telling:
            self.story.append(f"{self.now / 1000:9.3f} {who}: {what}")
