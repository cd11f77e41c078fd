"""A planned change: what it would do, and how to do it; and the plans that wait for a confirmation.

A plan is carried out as it was shown: it is kept here, and its page has only its number. It can be confirmed once, and
not for longer than KEPT_S.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kohort.cli.output import Cell, Column
from kohort.client.cluster import Cluster

KEPT_S = 900.0
MOST = 50
"""Plans of a session, and outcomes; the oldest is forgotten for a new one."""
SHOWN = 200
"""Rows of a plan's table in its page."""

T = TypeVar("T")


class Wrong(Exception):
    """A field of a form has a wrong value; "" is the form as a whole."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class Outcome:
    text: str
    done: bool = True
    lines: Sequence[str] = ()
    """What else there is to know, such as commands that undo it."""
    undo: str = ""
    """The address of a form that undoes it."""


@dataclass(frozen=True, slots=True)
class Plan:
    question: str
    event: str
    """What is done, for the log: `offsets reset`."""
    button: str
    carry_out: Callable[[Cluster], Outcome]
    """Raises Failed, KafkaError."""
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[Cell]] = ()
    notes: Sequence[str] = ()
    typed: str = ""
    """A name that must be typed, because something may be deleted that does not come back; empty if none must be."""
    details: Mapping[str, str] = field(default_factory=dict)
    """For the log."""

    @property
    def hidden(self) -> int:
        """Rows that the page does not show."""
        return max(len(self.rows) - SHOWN, 0)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a change is of: `kind` is group, topic, or empty for something new."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Planned:
    plan: Plan
    change: str
    """Its name among `kinds.CHANGES`."""
    subject: Subject


@dataclass(frozen=True, slots=True)
class Ended:
    outcome: Outcome
    planned: Planned


class Shelf(Generic[T]):
    """Things by a number, for a while."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[int, tuple[float, T]] = {}
        self._last = 0

    def put(self, thing: T) -> int:
        self._last += 1
        now = self._clock()
        self._kept = {number: kept for number, kept in self._kept.items() if now - kept[0] < KEPT_S}
        self._kept[self._last] = now, thing
        if len(self._kept) > MOST:
            del self._kept[min(self._kept)]
        return self._last

    def get(self, number: int) -> T | None:
        kept_at, thing = self._kept.get(number, (0.0, None))
        return thing if thing is not None and self._clock() - kept_at < KEPT_S else None

    def take(self, number: int) -> T | None:
        """So that nobody else gets it."""
        thing = self.get(number)
        self._kept.pop(number, None)
        return thing


class Plans:
    """Those of one session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.waiting: Shelf[Planned] = Shelf(clock)
        self.ended: Shelf[Ended] = Shelf(clock)
