"""What a worker holds of the sharded items, without IO: claims go into each round, changes come out of it.

    claims = held.claims()                   # for JoinGroup: what nobody else may have yet
    change = held.assigned(generation, items)
        change.begun      {item: token}: its own from now on
        change.ended      stop working on these; `released` when that has happened
        change.again      another round is due: what was claimed for this one has been let go of meanwhile
    held.released(item)                      # True: another round is due, so that somebody else gets it
    held.lost()                              # the lease is over: all of it is somebody else's by now

The token of an item is the generation in which this worker got it. Whoever had it before got it in an earlier one, so
of all who ever held an item the last has the largest token; on kohort a generation is never used twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    begun: dict[str, int]
    ended: list[str]
    again: bool = False


class HeldItems:
    """See the module's text."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        """Item to token: what this worker may work on."""
        self.ending: dict[str, int] = {}
        """What it has to give up and has not yet."""
        self._claimed: frozenset[str] = frozenset()
        """What the group was told last."""

    def claims(self) -> dict[str, int]:
        claims = self.held | self.ending
        self._claimed = frozenset(claims)
        return claims

    def assigned(self, generation: int, items: Iterable[str]) -> Change:
        """A round is over. What is being given up stays so, even if it was given back: the next round gives it away."""
        given = set(items)
        ended = [item for item in self.held if item not in given]
        for item in ended:
            self.ending[item] = self.held.pop(item)
        begun = dict.fromkeys(sorted(given - self.held.keys() - self.ending.keys()), generation)
        self.held |= begun
        gone = self._claimed - self.held.keys() - self.ending.keys()
        return Change(begun, ended, again=bool(gone))

    def released(self, item: str) -> bool:
        """Nobody works on it here any more. Whether the group should hear of it."""
        return self.ending.pop(item, None) is not None

    def lost(self) -> list[str]:
        """What was held until now."""
        lost = [*self.held, *self.ending]
        self.held, self.ending = {}, {}
        return lost
