"""Which job is next, without IO: jobs in the order of their arrival, with a limit for each key; and topics by
weight."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Generic, Protocol, TypeVar


class Keyed(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...


J = TypeVar("J", bound=Keyed)
Key = tuple[str, bytes]
"""A topic and the key of a record."""


class Backlog(Generic[J]):
    """Jobs that wait to be worked on. Jobs of one key come in the order in which they were added."""

    def __init__(self, key_limit: int | None) -> None:
        self._key_limit = key_limit
        self._ready: deque[J] = deque()
        """Jobs that can be handed out, unless their key has reached its limit since they were put here."""
        self._blocked: dict[Key, deque[J]] = {}
        """Jobs that wait until another job of their key has ended."""
        self._open: dict[Key, int] = {}
        """How many jobs of a key are worked on."""

    def __len__(self) -> int:
        return len(self._ready) + self.blocked

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def blocked(self) -> int:
        return sum(map(len, self._blocked.values()))

    def add(self, job: J) -> None:
        key = self._key(job)
        if key is not None and (key in self._blocked or self._used(key) >= (self._key_limit or 0)):
            self._blocked.setdefault(key, deque()).append(job)
        else:
            if key is not None:
                self._open[key] = self._open.get(key, 0) + 1
            self._ready.append(job)

    def pop(self) -> J | None:
        """The next job to be worked on; call `ended` when the work has ended."""
        return self._ready.popleft() if self._ready else None

    def ended(self, job: J) -> None:
        """The work on a job has ended, or it is not to be worked on any more."""
        key = self._key(job)
        if key is None:
            return
        waiting = self._blocked.get(key)
        if waiting:
            self._ready.append(waiting.popleft())  # it takes the place of the job that has ended
            if not waiting:
                del self._blocked[key]
        elif self._used(key) > 1:
            self._open[key] -= 1
        else:
            self._open.pop(key, None)

    def remove(self, job: J) -> bool:
        """A job that waits is not to be worked on. False if it does not wait."""
        if job in self._ready:
            self._ready.remove(job)
            self.ended(job)
            return True
        key = self._key(job)
        waiting = self._blocked.get(key) if key is not None else None
        if key is None or waiting is None or job not in waiting:
            return False
        waiting.remove(job)
        if not waiting:
            del self._blocked[key]
        return True

    def drain(self) -> list[J]:
        """All jobs that wait; none waits then."""
        blocked = [job for waiting in self._blocked.values() for job in waiting]
        ready = list(self._ready)
        self._blocked.clear()
        self._ready.clear()
        for job in ready:
            self.ended(job)
        return ready + blocked

    def _used(self, key: Key) -> int:
        return self._open.get(key, 0)

    def _key(self, job: J) -> Key | None:
        return None if self._key_limit is None or job.key is None else (job.topic, job.key)


class TopicTurns:
    """Which topics the next fetch asks: one at a time by weight, and all of them when all are empty.

    A topic that is asked first because of its weight is asked first again as soon as another one has had its turn. So a
    topic with a small weight gets its part, too (smooth weighted round robin).
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._credit = dict.fromkeys(weights, 0.0)
        self._empty: set[str] = set()
        """Asked in vain since something was found."""

    def next(self, topics: Collection[str]) -> str | None:
        """The topic to ask, among these. None: all of them, and wait for records."""
        if len(topics) < 2:
            return None
        candidates = [topic for topic in self._weights if topic in topics and topic not in self._empty]
        if not candidates:
            return None
        for topic in candidates:
            self._credit[topic] += self._weights[topic]
        chosen = max(candidates, key=self._credit.__getitem__)
        self._credit[chosen] -= sum(self._weights[topic] for topic in candidates)
        return chosen

    def fetched(self, topic: str | None, count: int) -> None:
        """The answer for `topic`, or for all if it is None, had so many records."""
        if count:
            self._empty.clear()
        elif topic is not None:
            self._empty.add(topic)
