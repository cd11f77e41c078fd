"""A group of `bench rebalance`: reports of its members, its settling, its pauses.

Members are in other processes (_librdkafka.py, java/RebalanceMembers.java) and report which partitions they read, with
times of one machine-wide clock. So the time at which a report arrives does not matter.

The owner of a partition is the member that read it last. After an event, the group has settled when the members own
even shares and have all read their partitions. The pause of a partition is the longest time without a record, minus the
usual interval. For a partition that has not moved, a pause counts if it is longer than all pauses of the quiet seconds
before.
"""

from __future__ import annotations

import subprocess
import threading
import time
from bisect import insort
from collections import Counter
from itertools import pairwise

WAIT_S = 90.0
LINGER_S = 0.4
"""Time of observation after the settling, because pauses may end later."""
WARM = "warm"
"""A member of another group, which reads a record and leaves: then a host has loaded its code."""


class Host:
    """A process with members of a group."""

    def __init__(self, command: list[str], group: Group) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._group = group
        self._warm = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def warm(self, group: str) -> None:
        self.say("join", group, WARM)
        assert self._warm.wait(WAIT_S), "members that are to be warm are not"
        self.say("leave", WARM)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, at, *read = line.split()
            if name != WARM:
                self._group.report(name, int(at), [int(index) for index in ",".join(read).split(",") if index])
            elif read:
                self._warm.set()


class Group:
    def __init__(self, partitions: int, period_s: float) -> None:
        self.partitions = partitions
        self.period_s = period_s
        self.present: set[str] = set()
        self.subscribed: dict[str, int] = {}
        self._reads: list[list[tuple[int, str]]] = [[] for _ in range(partitions)]
        self._lock = threading.RLock()

    def report(self, name: str, at: int, read: list[int]) -> None:
        """A member has read records of these partitions; its first report is without any and precedes subscribing."""
        with self._lock:
            self.subscribed.setdefault(name, at)
            for index in read:
                insort(self._reads[index], (at, name))

    # -- settled

    def owners(self) -> dict[int, str]:
        with self._lock:
            return {index: reads[-1][1] for index, reads in enumerate(self._reads) if reads}

    def is_settled(self, began: int = 0) -> bool:
        """Each partition has been read since `began` by its owner; the present members own even shares."""
        with self._lock:
            shares = Counter(self.owners().values())
            least, rest = divmod(self.partitions, len(self.present))
            return (
                shares.keys() == self.present
                and all(least <= share <= least + (1 if rest else 0) for share in shares.values())
                and all(reads and reads[-1][0] >= began for reads in self._reads)
            )

    def settle(self, began: int = 0) -> None:
        self._wait_until_settled(began)
        settled = time.monotonic_ns()
        time.sleep(LINGER_S)
        self._wait_until_settled(settled)

    def _wait_until_settled(self, began: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while not self.is_settled(began):
            assert time.monotonic() < deadline, f"not settled: the owners are {self.owners()}"
            time.sleep(0.02)

    # -- pauses

    def usual(self, seconds: float) -> float:
        """The longest time between two records of a partition in the last seconds. Forgets older reads except the
        last one of each partition."""
        since = time.monotonic_ns() - int(seconds * 1e9)
        longest = 0
        with self._lock:
            for index, reads in enumerate(self._reads):
                first = next((n for n, (at, _) in enumerate(reads) if at >= since), len(reads))
                longest = max([longest, *(b - a for (a, _), (b, _) in pairwise(reads[first:]))])
                self._reads[index] = reads[max(0, first - 1) :]
        return longest / 1e9

    def outcome(self, began: int, before: dict[int, str], usual_s: float, gone: str = "") -> dict[str, float]:
        """The outcome of an event at `began`, with the owners `before`. A `gone` member had stopped earlier: the
        pauses of its partitions count from `began`. `pause_s` is the sum of the pauses, `longest_ms` the longest;
        `stayed_paused` counts the partitions that paused without a move."""
        with self._lock:
            after, reads_of = self.owners(), [list(reads) for reads in self._reads]
        ends, pauses, stayed = [began], [0.0], 0
        moved = [index for index in after if after[index] != before.get(index)]
        for index, reads in enumerate(reads_of):
            gap_ns, end = _longest(reads, began, clip=before.get(index) == gone)
            pause_s = max(0.0, gap_ns / 1e9 - self.period_s)
            if index in moved:
                ends.append(next(at for at, name in reads if at >= began and name == after[index]))
                pauses.append(pause_s)
            elif gap_ns / 1e9 > max(usual_s, 2 * self.period_s):
                stayed += 1
                ends.append(end)
                pauses.append(pause_s)
        return {
            "settled_ms": (max(ends) - began) / 1e6,
            "pause_s": sum(pauses),
            "moved": len(moved),
            "stayed_paused": stayed,
            "longest_ms": max(pauses) * 1000,
            "usual_ms": usual_s * 1000,
        }


def _longest(reads: list[tuple[int, str]], began: int, *, clip: bool) -> tuple[int, int]:
    """The longest gap between two records that ends after `began`, and its end."""
    gaps = ((b - (max(a, began) if clip else a), b) for (a, _), (b, _) in pairwise(reads) if b >= began)
    return max(gaps, default=(0, began))
