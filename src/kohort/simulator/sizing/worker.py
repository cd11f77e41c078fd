"""The common part of members of both protocols: they work on partitions, commit, start and end.

While it works, a member learns of new and revoked partitions only between two polls (`at_poll`). For new partitions it
fetches the committed offsets, and after the client's own time and `start_ms` it works on them. It commits all positions
regularly, and those of revoked partitions right before it releases them.

Each pending call carries the number of its life: a process that was killed and started again is another one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kohort.simulator.actors.offsets import commit_request, fetch_request
from kohort.simulator.actors.participant import Participant
from kohort.simulator.plan import Faults
from kohort.simulator.sizing.board import Board
from kohort.simulator.sizing.clients import CLIENTS
from kohort.simulator.sizing.point import Point
from kohort.simulator.sizing.topics import Topics
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import Millis, World
from kohort.wire.schemas.offset_commit import OffsetCommitResponse
from kohort.wire.schemas.offset_fetch import OffsetFetchResponse

COMMIT_VERSION = FETCH_VERSION = 9
"""The newest with names of topics."""
ASK_AGAIN_MS = 2_000
COMMIT_WITHIN_MS = 5_000
"""Limit of the wait for a commit before a revocation."""
AGAIN_MS = 500
"""A process whose membership ended with an error starts again after this time."""
FAULTLESS = Faults()


class Worker(Participant):
    def __init__(
        self, world: World, process: Process, point: Point, topics: Topics, board: Board, group: str, number: int
    ) -> None:
        name = f"{group}-{number}"
        options = {"group": group, "held": True, "instance": name if point.static else None, "life": "asked"}
        super().__init__(world, process, FAULTLESS, name, options)
        self.point = point
        self.board = board
        self.topics = topics
        self.client = CLIENTS[point.client]
        self.greeting = self.client.greeting
        self.wanted = False
        """True if the worker's process should run."""
        self.given: set[int] = set()
        """Its own partitions, at work or about to start."""
        self.works_on: set[int] = set()

    @abstractmethod
    def epoch(self) -> int:
        """The positions of its commits."""

    @abstractmethod
    def member_id(self) -> str: ...

    @property
    @abstractmethod
    def content(self) -> bool:
        """The worker is a member, and no rebalance is running."""

    # -- its life

    def come(self) -> None:
        """Its process starts."""
        self.wanted = True
        self.revive()

    def begin(self) -> None:
        self.join()
        self.soon(self.point.commit_ms, self._commit_all, self.lives)

    @abstractmethod
    def join(self) -> None:
        """Create the membership and join."""

    def scatter(self) -> None:
        """Shift its heartbeats to another time of the interval."""

    def go(self) -> None:
        """An orderly end: stop work, commit, leave."""
        self.wanted = False
        if self.running:
            places = self.stop_work(self.works_on)
            self.commit_then(places, self._leave)

    def _leave(self) -> None:
        self.say_goodbye(static_too=False)
        self.act()

    def kill(self) -> None:
        self.wanted = False
        self.die()

    def forget(self) -> None:
        self.stop_work(self.works_on)
        self.given.clear()

    def over(self, error: int) -> None:
        super().over(error)
        if self.wanted:
            self.world.after(AGAIN_MS, self._again)

    def _again(self) -> None:
        if self.wanted:
            self.revive()

    # -- between polls

    def at_poll(self, action: Callable[..., None], *arguments: Any) -> None:
        """The time of the next poll: now if it has no work."""
        wait = self.random.randint(0, self.point.poll_ms) if self.works_on else 0
        self.later(wait, action, *arguments)

    def later(self, delay: Millis, action: Callable[..., None], *arguments: Any) -> None:
        """In this life only."""
        self.soon(delay, self._in_life, self.lives, action, arguments)

    def _in_life(self, life: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if life == self.lives:
            action(*arguments)

    # -- work

    def take_on(self, places: Iterable[int]) -> None:
        """New partitions: fetch the committed offsets, then work on them."""
        new = sorted(set(places) - self.given)
        self.given.update(new)
        self._ask_positions(tuple(new))

    def stop_work(self, places: Iterable[int]) -> tuple[int, ...]:
        """Those of the partitions on which it worked."""
        stopped = tuple(sorted(self.works_on.intersection(places)))
        for place in stopped:
            self.works_on.discard(place)
            self.board.stops(place, self.name)
        return stopped

    def _ask_positions(self, places: tuple[int, ...]) -> None:
        places = tuple(place for place in places if place in self.given and place not in self.works_on)
        if not places:
            return
        answered = partial(self._positions_known, self.lives, places)
        self.send(fetch_request(self.group, self.topics.at(places)), FETCH_VERSION, answered)
        self.later(ASK_AGAIN_MS + self.client.first_record_ms + self.point.start_ms, self._ask_positions, places)

    def _positions_known(self, life: int, places: tuple[int, ...], response: OffsetFetchResponse) -> None:
        if life == self.lives and not response.groups[0].error_code:
            self.later(self.client.first_record_ms + self.point.start_ms, self._first_records, places)

    def _first_records(self, places: tuple[int, ...]) -> None:
        for place in places:
            if place in self.given and place not in self.works_on:
                self.works_on.add(place)
                self.board.starts(place, self.name)

    # -- commits

    def _commit_all(self, life: int) -> None:
        if life != self.lives:
            return
        if self.works_on:
            self._commit(tuple(sorted(self.works_on)))
        self.soon(self.point.commit_ms, self._commit_all, life)

    def commit_then(self, places: tuple[int, ...], action: Callable[[], None]) -> None:
        """Commit the positions of these partitions, and continue with the answer, or after a time limit."""
        done: list[bool] = []

        def once() -> None:
            if not done:
                done.append(True)
                action()

        if not places or self._link is None:
            once()
            return
        self._commit(places, lambda: self.later(self.point.revoke_ms, once))
        self.later(COMMIT_WITHIN_MS + self.point.revoke_ms, once)

    def _commit(self, places: tuple[int, ...], then: Callable[[], None] | None = None) -> None:
        now = self.world.now
        offsets = dict.fromkeys(self.topics.at(places), now)
        request = commit_request(self.group, self.epoch(), self.member_id(), self.instance, offsets)
        self.send(request, COMMIT_VERSION, partial(self._committed, self.lives, places, now, self.epoch(), then))

    def _committed(
        self,
        life: int,
        places: tuple[int, ...],
        up_to: Millis,
        epoch: int,
        then: Callable[[], None] | None,
        response: OffsetCommitResponse,
    ) -> None:
        errors = {partition.error_code for topic in response.topics for partition in topic.partitions}
        if errors == {0}:
            for place in places:
                self.board.committed(place, up_to)
        if life != self.lives:
            return
        if errors != {0}:
            self.membership.commit_answered(max(errors), epoch, self.world.now)
            self.act()
        if then is not None and life == self.lives:
            then()
