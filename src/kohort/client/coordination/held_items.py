"""The sharded items that a worker holds, without IO: claims go into each round, changes come out of it.

    claims = held.claims()                       # for JoinGroup: items that no other worker may get yet
    change = held.assigned(generation, items)
        change.begun      {item: token}: the worker owns these from now on
        change.ended      stop working on these; call `released` when that has happened
        change.again      another round is due: items claimed for this round were given up meanwhile
    held.released(item)                          # True: another round is due, so that another worker gets the item
    held.lost()                                  # the lease has ended: others may own all items

The token of an item is the generation in which this worker got it. The owner before got it in an earlier generation, so
the last owner always has the largest token; kohort never uses a generation twice.
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
    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        """The items that this worker may work on, with their tokens."""
        self.ending: dict[str, int] = {}
        """The items that the worker must give up and has not yet released."""
        self._claimed: frozenset[str] = frozenset()
        """The claims of the last round."""

    def claims(self) -> dict[str, int]:
        claims = self.held | self.ending
        self._claimed = frozenset(claims)
        return claims

    def assigned(self, generation: int, items: Iterable[str]) -> Change:
        """A round is over. An item that is being given up stays so, even if this round returned it to the worker."""
        given = set(items)
        ended = [item for item in self.held if item not in given]
        for item in ended:
            self.ending[item] = self.held.pop(item)
        begun = dict.fromkeys(sorted(given - self.held.keys() - self.ending.keys()), generation)
        self.held |= begun
        gone = self._claimed - self.held.keys() - self.ending.keys()
        return Change(begun, ended, again=bool(gone))

    def released(self, item: str) -> bool:
        """No task works on the item any more. Returns whether the group has to rebalance."""
        return self.ending.pop(item, None) is not None

    def lost(self) -> list[str]:
        """The items held until now."""
        lost = [*self.held, *self.ending]
        self.held, self.ending = {}, {}
        return lost
