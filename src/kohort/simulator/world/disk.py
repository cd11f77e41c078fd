"""The simulated disk: the memory engine, and the fate of each commit.

| fate | what happens |
| --- | --- |
| SYNCED | the commit is durable after `sync_ms`; events that arrive meanwhile wait for the next turn |
| TORN | the process dies while it writes: the restart discards the tail that was not synced |
| UNHEARD | the process dies after the sync and before it sends a reply |
| FAILED | the disk reports an error: the process stops (fail-stop); the commit is not durable |

An engine makes a commit whole or not at all (tests/storage proves it, with torn tails and crashes at every write), so
TORN and FAILED leave the log unchanged; they differ in what the process does.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from kohort.simulator.plan import Faults
from kohort.simulator.world.world import Millis
from kohort.storage.memory import MemoryStorage


class Fate(Enum):
    SYNCED = "synced"
    TORN = "the process dies during the sync, the tail is torn"
    UNHEARD = "the process dies after the sync, before a reply leaves"
    FAILED = "a disk error"


class Disk:
    def __init__(self, faults: Faults, random: Random) -> None:
        self.storage = MemoryStorage()
        self._faults = faults
        self._random = random
        self.healed = False

    def next_commit(self) -> tuple[Fate, Millis]:
        """The fate of the next commit, and how long its sync takes."""
        faults, random = self._faults, self._random
        if self.healed:
            return Fate.SYNCED, 1
        sync_ms = 1
        if faults.slow_sync and random.random() < faults.slow_sync:
            sync_ms = random.randrange(10, 1_500)
        if faults.crash_in_commit and random.random() < faults.crash_in_commit:
            return random.choice((Fate.TORN, Fate.UNHEARD)), sync_ms
        if faults.disk_error and random.random() < faults.disk_error:
            return Fate.FAILED, sync_ms
        return Fate.SYNCED, sync_ms
