"""The simulated world: one event queue, one virtual clock, one seed. Nothing sleeps.

Each event is a call in the queue, ordered by its time and then by when it was scheduled. Each actor and each connection
has a random generator of its own, seeded by the seed and its name: removing an actor does not change the others' random
numbers. The digest covers every byte that the server sent, with its time.

With `telling`, the world keeps the story of the run, a line for each event. Only failing runs have a story; a second
run of the same plan writes it.
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
    """A promise is broken. `check` names the promise; `group` is the group concerned, or ""."""

    def __init__(self, check: str, text: str, group: str = "") -> None:
        super().__init__(check, text, group)
        self.check = check
        self.text = text
        self.group = group

    @classmethod
    def of(cls, group: str, check: str, text: str) -> Violation:
        """A promise to a group is broken."""
        return cls(check, f"{group}: {text}", group)

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


class World:
    def __init__(self, seed: int, *, telling: bool = False) -> None:
        self.seed = seed
        self.now: Millis = 0
        self.healed = False
        """The faults are over: live groups must become stable."""
        self.latency_ms: Millis = 1
        """The time of one way for a message without a delay."""
        self.topics: dict[str, int] = {}
        """Topics that the clients know, with their partitions."""
        self.events = 0
        self.story: list[str] = []
        self.scribe = Scribe() if telling else None
        self.telling = telling
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
        """Run the events up to `until`, or until `limit` events in all."""
        queue = self._queue
        while queue and queue[0][0] <= until and self.events < limit:
            self.now, _, action, arguments = heapq.heappop(queue)
            self.events += 1
            action(*arguments)
        self.now = max(self.now, until)

    def note(self, data: bytes) -> None:
        """Add bytes to the digest."""
        self._digest.update(self.now.to_bytes(8, "big") + data)

    def digest(self) -> str:
        return self._digest.hexdigest()

    def tell(self, who: str, what: str) -> None:
        if self.telling:
            self.story.append(f"{self.now / 1000:9.3f} {who}: {what}")
