"""Holders of leaderships and of sharded items, and their tokens.

| event | promise |
| --- | --- |
| a process begins to hold a thing | no other process with a valid lease holds it, running or paused |
| a process begins to hold a thing | its token is larger than those of all former holders |
| the end of the run | there is a leader, each item has a worker, the shares are even |

A killed process holds no thing. A paused one does until its lease is over, by the clock.
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
        """Set if requests may be duplicated: after a late copy two may hold a thing, with different tokens."""
        self._holding: dict[tuple[str, str], Holder] = {}
        """The last holder of each thing of a group."""
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
