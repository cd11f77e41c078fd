"""A simulated worker that shares items with others: `client/coordination/sharding.py` in virtual time.

All workers of a group agree on the items, which change from time to time. Work on an item that is revoked ends after a
while, sometimes a long one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kohort.client.coordination.held_items import HeldItems
from kohort.client.coordination.item_assignment import Worker, divide
from kohort.client.coordination.sharding import PROTOCOL
from kohort.simulator.actors.library_user import LibraryUser
from kohort.wire.schemas.join_group import JoinGroupResponseMember

ITEMS = [f"item{n}" for n in range(8)]
REFRESH_MS = 4_000
GATHER_MS = 200


class Sharer(LibraryUser):
    protocol_type = "kohort-shards"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.holdings = HeldItems()
        self._divided: dict[str, float] = {}
        self._divided_in = -1
        self._refreshing = 0

    def holds(self, thing: str) -> bool:
        return (thing in self.holdings.held or thing in self.holdings.ending) and self.lease_lasts

    def items(self) -> dict[str, float]:
        """During the time of faults another item is missing every few seconds."""
        missing = None if self.world.healed else ITEMS[self.world.now // 5_000 % (2 * len(ITEMS)) % len(ITEMS)]
        return {item: 1.0 for item in ITEMS if item != missing}

    def metadata(self) -> Mapping[str, bytes]:
        return {PROTOCOL: json.dumps(self.holdings.claims()).encode()}

    def divide(self, members: Sequence[JoinGroupResponseMember]) -> Mapping[str, bytes]:
        workers = {member.member_id: Worker(claims=json.loads(bytes(member.metadata))) for member in members}
        self._divided = self.items()
        self._divided_in = self.membership.generation_id
        self._refreshing += 1
        self.soon(REFRESH_MS, self._refresh, self._refreshing)
        return {name: json.dumps(items).encode() for name, items in divide(self._divided, workers).items()}

    def _refresh(self, number: int) -> None:
        """While it believes that it leads."""
        if number != self._refreshing or self.membership.generation_id != self._divided_in:
            return
        self.soon(REFRESH_MS, self._refresh, number)
        if self.items() != self._divided:
            self.rejoin("the items have changed")

    def joined(self, generation: int, assignment: bytes) -> None:
        change = self.holdings.assigned(generation, json.loads(assignment) if assignment else ())
        for item in change.ended:
            delay = self.random.choice((0, 10, 300)) if self.random.random() < 0.9 else self.random.randrange(9_000)
            self.soon(delay, self._stopped, self.membership, item)
        if self.lease_lasts:
            for item, token in change.begun.items():
                self.tell(f"begins with {item}, token {token}")
                self.holders.begins(self, item, token)
        if change.again:
            self.soon(GATHER_MS, self._tell_again, self.membership)
        self.watch_lease()

    def _tell_again(self, membership: Any) -> None:
        if membership is self.membership:
            self.rejoin("items were given up")

    def _stopped(self, membership: Any, item: str) -> None:
        if self.holdings.released(item) and membership is self.membership:
            self.rejoin("items were given up")

    def lapse(self) -> None:
        self.holdings.lost()

    def forget(self) -> None:
        self.holdings = HeldItems()
