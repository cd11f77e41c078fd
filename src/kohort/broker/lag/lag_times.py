"""How old the first record is that a group has not committed (lag in seconds).

For each partition in which a group lags there is a ring of points: an end offset, and the server's time at which the
log ended there. The record at a committed offset came in between the last point that ends at or before the offset and
the next one. Records before the ring's first point have the largest timestamp of their batch, which the producer may
have set, so it counts as no newer than that point.

A ring begins when a scrape or a client first asks for the lag of its partition. The upkeep takes a point of each ring
once a second, some rings a turn, while somebody asks. A full ring drops every second point of its older half. Source
of the rules for equal offsets: kafka-lag-exporter, LookupTable.scala.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from kohort.broker.logs.partition import Partition
from kohort.broker.turn import Millis
from kohort.storage.protocol import LogKey, Storage, StorageError

UNKNOWN, IN_BATCH = -1, -2
"""Values of a lag in milliseconds: it cannot be told; the batch of the record tells it (`look_up`)."""
POINTS = 120
"""Of one ring: about two minutes in full, some quarter of an hour with older points further apart."""
MOST_RINGS = 4_000
"""Partitions with a ring, some 10 MB."""
LOOKUPS = 2_000
"""Batches that one scrape or one answer looks up, at some 20 µs each."""
FORGET_MS = 120_000
"""A partition for whose lag nobody has asked for so long, or which has none, loses its ring."""
SAMPLE_MS = 1_000
RINGS_A_TURN = 500
"""Rings that get a point in one turn: less than a millisecond."""
NEVER: Millis = 1 << 60


class Ring:
    def __init__(self) -> None:
        self.ends = array("q")
        self.times = array("q")
        self.used_ms: Millis = 0
        """When somebody last asked for it."""

    def add(self, end: int, now: Millis) -> None:
        """Of equal offsets the first and the last time are kept."""
        if len(self.ends) >= 2 and self.ends[-1] == self.ends[-2] == end:
            self.times[-1] = now
            return
        if self.times and now <= self.times[-1]:
            return
        self.ends.append(end)
        self.times.append(now)
        if len(self.ends) > POINTS:
            half = POINTS // 2
            self.ends = self.ends[:half:2] + self.ends[half:]
            self.times = self.times[:half:2] + self.times[half:]

    def arrival(self, offset: int) -> Millis | None:
        """When the record at `offset` came in; None if that was before the first point, or after the last."""
        at = bisect_right(self.ends, offset)
        if at == 0 or at == len(self.ends):
            return None
        before, after = self.ends[at - 1], self.ends[at]
        share = (offset - before) / (after - before)
        return round(self.times[at - 1] + share * (self.times[at] - self.times[at - 1]))

    def end_at(self, time: Millis) -> int | None:
        """Where the log ended at the last point that is no later; None if there is none."""
        at = bisect_right(self.times, time)
        return self.ends[at - 1] if at else None

    def ended_by(self, offset: int, since: Millis) -> bool:
        """Whether a point at or after `since` has an end that is not beyond `offset`: an end only grows."""
        at = bisect_left(self.times, since)
        return at < len(self.ends) and self.ends[at] <= offset


class LagTimes:
    def __init__(self, storage: Storage) -> None:
        self.rings: dict[LogKey, Ring] = {}
        self.due_ms: Millis = NEVER
        """When `sample` is to be called next."""
        self._partitions: dict[LogKey, Partition] = {}
        self._storage = storage
        self._left: list[LogKey] = []
        """The rings that have no point of this second yet."""
        self._began: Millis = 0

    def sample(self, now: Millis) -> None:
        """Take a point of each ring, of RINGS_A_TURN at a time. Call this in a turn that is due, at its end."""
        if not self._left:
            self._left = list(self.rings)
            self._began = now
        for _ in range(min(RINGS_A_TURN, len(self._left))):
            log = self._left.pop()
            ring = self.rings[log]
            if now - ring.used_ms > FORGET_MS:
                del self.rings[log], self._partitions[log]
            else:
                ring.add(self._partitions[log].end_offset, now)
        if self._left:
            self.due_ms = now + 1
        else:
            self.due_ms = self._began + SAMPLE_MS if self.rings else NEVER

    def lag_ms(self, partition: Partition, offset: int, end: int, now: Millis) -> Millis:
        """The age of the record at a committed offset, as far as a ring tells it; 0 if there is none yet.

        `end`: where the log ended at `now`."""
        if offset >= end:
            return 0
        ring = self.rings.get(partition.log)
        if ring is None:
            if len(self.rings) >= MOST_RINGS:
                return IN_BATCH
            ring = self.rings[partition.log] = Ring()
            if self.due_ms == NEVER:
                self.due_ms = now + SAMPLE_MS
        self._partitions[partition.log] = partition
        ring.used_ms = now
        ring.add(end, now)
        if offset >= ring.ends[-1]:
            return max(now - ring.times[-1], 0)  # of this very turn
        arrived = ring.arrival(offset)
        return IN_BATCH if arrived is None else max(now - arrived, 0)

    def look_up(self, partition: Partition, offset: int, now: Millis) -> Millis:
        """The same, by the largest timestamp of the record's batch; UNKNOWN if it has none. Reads the storage."""
        try:
            batch = next(self._storage.batches(partition.log, max(offset, partition.start_offset)), None)
        except StorageError:
            return UNKNOWN
        if batch is None or batch.max_timestamp < 0:
            return UNKNOWN
        ring = self.rings.get(partition.log)
        newest = ring.times[0] if ring is not None else now
        return max(now - min(batch.max_timestamp, newest), 0)


class Ages:
    """What one scrape or one answer finds, with the number of batches that it may still look up."""

    def __init__(self, times: LagTimes, lookups: int = LOOKUPS) -> None:
        self.times = times
        self.lookups = lookups

    def look_up(self, partition: Partition, offset: int, now: Millis) -> Millis:
        """See `LagTimes.look_up`; UNKNOWN if it may look up no more."""
        if self.lookups <= 0:
            return UNKNOWN
        self.lookups -= 1
        return self.times.look_up(partition, offset, now)
