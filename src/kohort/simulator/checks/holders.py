"""Who holds what at every instant, of leaderships and of sharded items, and with which tokens.

| who | promise |
| --- | --- |
| whoever begins to hold something | nobody else holds it whose lease lasts, running or standing still |
| whoever begins to hold something | has a larger token than all others who held it before |
| everybody, when the faults are over | a leader there is, each item has a worker, the shares are even |

A process that was killed holds nothing. One that stands still does: by the clock, until its lease is over.
"""

from __future__ import annotations

from typing import Protocol

from kohort.simulator.world.world import Violation


class Holder(Protocol):
    """A simulated leader or worker."""

    name: str
    group: str

    def holds(self, thing: str) -> bool: ...


class Holders:
    def __init__(self) -> None:
        self.requests_come_twice = False
        """Then a copy may claim what its sender claimed earlier, and two may hold the same; their tokens differ."""
        self._holding: dict[tuple[str, str], Holder] = {}
        """Who held a thing of a group last."""
        self._tokens: dict[tuple[str, str], int] = {}

    def begins(self, who: Holder, thing: str, token: int) -> None:
        key = (who.group, thing)
        other = self._holding.get(key)
        if other is not None and other is not who and other.holds(thing) and not self.requests_come_twice:
            text = f"{who.group}: {who.name} begins with {thing}, token {token}, while {other.name} holds it"
            raise Violation("one holder at every instant", text, who.group)
        last = self._tokens.get(key, -1)
        if token < last or (token == last and other is not who):
            former = other and other.name
            text = f"{who.group}: {who.name} begins with {thing}, token {token}; {former} was given {last}"
            raise Violation("tokens grow", text, who.group)
        self._holding[key] = who
        self._tokens[key] = token
