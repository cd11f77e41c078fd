"""Which member works on which partition, as the members report it, and the cost of each change.

| figure | meaning |
| --- | --- |
| paused | partition-milliseconds without a member that works on the partition |
| twice | partition-milliseconds with two such members |
| repeated | partition-milliseconds of repeated work: the former owner's since its last accepted commit |
| moves | a partition's next owner is another member than the last one; members keep their names over restarts |
| resumed | the next owner is the same member: the partition only paused |
| needed | the least number of moves from the first owners to even shares of the remaining members |
| disturbances | each with the time until the last change that follows it, up to the next disturbance |

Figures count from `begin` on; earlier reports only set the first owners.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from kohort.simulator.world.world import Millis, World

NEVER: Millis = -1


@dataclass(frozen=True, slots=True)
class Tally:
    paused_ms: int
    longest_pause_ms: Millis
    """The longest pause of one partition."""
    partitions_paused: int
    twice_ms: int
    repeated_ms: int
    moves: int
    resumed: int
    needed_moves: int
    stable_ms: tuple[Millis, ...]
    """One for each disturbance."""
    settled: bool
    """At the end every partition had one member, which remained to the end."""


class Board:
    def __init__(self, world: World, partitions: int) -> None:
        self.world = world
        self.partitions = partitions
        self.changes: list[Millis] = []
        """Times at which a member began or ended work on a partition."""
        self._workers: list[list[str]] = [[] for _ in range(partitions)]
        self._last_owner: list[str | None] = [None] * partitions
        self._idle_since: list[Millis] = [0] * partitions
        self._twice_since: list[Millis] = [0] * partitions
        self._stopped_at: list[Millis] = [NEVER] * partitions
        self._covered: list[Millis] = [NEVER] * partitions
        """Work up to this time is committed."""
        self._began: Millis | None = None
        self._first_owners: dict[int, str] = {}
        self._disturbed: list[Millis] = []
        self._paused = self._twice = self._repeated = self._moves = self._resumed = 0
        self._longest: Millis = 0
        self._paused_places: set[int] = set()

    # -- reports of members

    def starts(self, place: int, member: str) -> None:
        now, workers = self.world.now, self._workers[place]
        self._changed(now)
        if not workers:
            self._end_of_pause(place, now)
        else:
            self._twice_since[place] = now
        counts = self._began is not None
        last = self._last_owner[place]
        if counts and last is not None:
            self._moves += last != member
            self._resumed += last == member
            stopped = now if workers else self._stopped_at[place]
            self._repeated += max(0, stopped - self._covered[place])
        workers.append(member)
        self._last_owner[place] = member
        self._covered[place] = max(self._covered[place], now)

    def stops(self, place: int, member: str) -> None:
        now, workers = self.world.now, self._workers[place]
        if member not in workers:
            return
        self._changed(now)
        if len(workers) == 2 and self._began is not None:
            self._twice += now - max(self._twice_since[place], self._began)
        workers.remove(member)
        if not workers:
            self._idle_since[place] = self._stopped_at[place] = now

    def committed(self, place: int, up_to: Millis) -> None:
        """The coordinator accepted a commit of the work up to then."""
        self._covered[place] = max(self._covered[place], up_to)

    # -- reports of the run

    def begin(self) -> None:
        self._began = self.world.now
        self._first_owners = {place: owner[0] for place, owner in enumerate(self._workers) if owner}

    def disturbed(self) -> None:
        self._disturbed.append(self.world.now)

    @property
    def complete(self) -> bool:
        """Every partition has one member."""
        return all(len(workers) == 1 for workers in self._workers)

    def owners(self) -> dict[int, str]:
        return {place: workers[0] for place, workers in enumerate(self._workers) if len(workers) == 1}

    def tally(self, remaining: Iterable[str]) -> Tally:
        """The end of the run. `remaining`: the members at that time."""
        now, stays = self.world.now, set(remaining)
        for place, workers in enumerate(self._workers):
            if not workers:
                self._end_of_pause(place, now)
                self._idle_since[place] = now
        return Tally(
            self._paused,
            self._longest,
            len(self._paused_places),
            self._twice,
            self._repeated,
            self._moves,
            self._resumed,
            needed_moves(self._first_owners, stays, self.partitions),
            self._stable(),
            self.complete and set(self.owners().values()) <= stays,
        )

    # -- figures

    def _changed(self, now: Millis) -> None:
        if not self.changes or self.changes[-1] != now:
            self.changes.append(now)

    def _end_of_pause(self, place: int, now: Millis) -> None:
        if self._began is None or now <= self._began:
            return
        pause = now - max(self._idle_since[place], self._began)
        if pause > 0:
            self._paused += pause
            self._longest = max(self._longest, pause)
            self._paused_places.add(place)

    def _stable(self) -> tuple[Millis, ...]:
        found = []
        for began, end in pairwise([*self._disturbed, self.world.now + 1]):
            last = bisect_left(self.changes, end) - 1
            found.append(max(0, self.changes[last] - began) if last >= 0 else 0)
        return tuple(found)


def needed_moves(owners: dict[int, str], members: set[str], partitions: int) -> int:
    """The least number of partitions that must change hands so that `members` have even shares of them all."""
    if not members:
        return 0
    counts = dict.fromkeys(sorted(members), 0)
    orphans = 0
    for owner in owners.values():
        if owner in counts:
            counts[owner] += 1
        else:
            orphans += 1
    least, larger = divmod(partitions, len(counts))
    held = sorted(counts.values(), reverse=True)
    return orphans + sum(max(0, count - least - (rank < larger)) for rank, count in enumerate(held))
