"""Reads of records by the server, as in server/reading.py, of a storage that answers later and in any order.

What a read finds is that of some instant between its begin and its end. During the time of faults some reads fail.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.broker.turn import ReadAsked, ReadDone
from kohort.broker.waits.outcomes import outcome
from kohort.simulator.world.world import Millis, World
from kohort.storage.protocol import Storage

DELAYS_MS: tuple[Millis, ...] = (0, 1, 1, 1, 40, 400, 3_000)


class SlowReads:
    def __init__(
        self, world: World, storage: Storage, done: Callable[[ReadDone, int], None], failed_reads: float
    ) -> None:
        """`failed_reads`: the chance that a read fails."""
        self._world = world
        self._reader = storage.reader()
        self._done = done
        self._failed_reads = failed_reads
        self._random = world.random("reads")

    def start(self, asked: ReadAsked, life: int) -> None:
        """`life`: the server's; an outcome that comes in another life is dropped."""
        self._world.after(self._delay_ms(), self._read, asked, life)

    def _read(self, asked: ReadAsked, life: int) -> None:
        if not self._world.healed and self._random.random() < self._failed_reads:
            done = ReadDone(asked.read_id, failure="a planned failure")
        else:
            self._world.tell(
                "storage", f"reads {asked.log.topic_id.hex()[:6]}-{asked.log.partition} from {asked.offset}"
            )
            done = outcome(self._reader, asked)
        self._world.after(self._delay_ms(), self._done, done, life)

    def _delay_ms(self) -> Millis:
        return 1 if self._world.healed else self._random.choice(DELAYS_MS)
