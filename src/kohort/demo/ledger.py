"""The sum of the workers' reports so far: owners, records read and how often, and commits.

Offsets of a partition are those of a log that begins at 0, without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Start:
    """Where a worker began to read a partition after it was assigned to it."""

    worker: str
    partition: int
    offset: int
    time: float


class Ledger:
    """Adds up the workers' events, which `worker.py` describes."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[int, ...]] = {}
        self.held_since: dict[str, float] = {}
        self.committed: dict[int, int] = {}
        self.starts: list[Start] = []
        self.failures: list[str] = []
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        self._by_worker: dict[str, int] = {}
        self._read_to: dict[str, dict[int, int]] = {}
        self._awaited: dict[str, set[int]] = {}

    def note(self, worker: str, event: dict[str, Any]) -> None:
        match event["event"]:
            case "assigned":
                self.held[worker] = tuple(event["partitions"])
                self.held_since[worker] = event["time"]
                self._awaited[worker] = set(event["partitions"])
            case "processed":
                for partition, (start, end) in event["ranges"].items():
                    self._processed(worker, int(partition), start, end, event["time"])
            case "committed":
                for partition, offset in event["offsets"].items():
                    self.committed[int(partition)] = offset
            case "failed":
                self.failures.append(f"{worker}: {event['error']}")

    def _processed(self, worker: str, partition: int, start: int, end: int, time: float) -> None:
        if partition in self._awaited.get(worker, ()):
            self._awaited[worker].discard(partition)
            self.starts.append(Start(worker, partition, start, time))
        self._read_to.setdefault(worker, {})[partition] = end
        self._ranges.setdefault(partition, []).append((start, end))
        self._by_worker[worker] = self._by_worker.get(worker, 0) + end - start

    @property
    def committed_records(self) -> int:
        return sum(self.committed.values())

    def processed_by(self, worker: str) -> int:
        return self._by_worker.get(worker, 0)

    @property
    def processed(self) -> int:
        """Records; a record that was read twice counts twice."""
        return sum(self._by_worker.values())

    @property
    def distinct(self) -> int:
        """Records that a worker has read at least once."""
        return sum(_covered(ranges) for ranges in self._ranges.values())

    def uncommitted(self, worker: str) -> int:
        """Records that a worker has read in its partitions beyond the committed offsets."""
        read = self._read_to.get(worker, {})
        return sum(
            max(0, read.get(partition, 0) - self.committed.get(partition, 0)) for partition in self.held.get(worker, ())
        )

    def missing(self, ends: dict[int, int]) -> int:
        """Records below the partitions' ends that no worker has read."""
        return sum(
            end - _covered([(start, min(stop, end)) for start, stop in self._ranges.get(partition, ()) if start < end])
            for partition, end in ends.items()
        )


def _covered(ranges: list[tuple[int, int]]) -> int:
    """The number of offsets in at least one range."""
    count = reached = 0
    for start, end in sorted(ranges):
        if end > reached:
            count += end - max(start, reached)
            reached = end
    return count
