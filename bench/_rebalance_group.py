"""A group of `bench rebalance`: reports of its members, its settling, its pauses.

Members are in other processes (_rebalance_members.py, java/RebalanceMembers.java) and report new, revoked and read
partitions with times of one machine-wide clock. So the time at which a report arrives does not matter.

A partition is *read again* when its new owner reads its first record; the group has settled when all partitions are
read again and the members have even shares. The pause of a partition is the longest time without a record, minus the
usual one. For a partition that has not moved, a pause counts if it is longer than all pauses of the quiet seconds
before.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from itertools import pairwise

WAIT_S = 90.0
LINGER_S = 0.4
"""Time of observation after the settling, because pauses may end later."""


class Host:
    """A process with members."""

    def __init__(self, command: list[str], hear: Callable[[list[str]], None]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._hear = hear
        self._warm = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def wait_until_warm(self) -> None:
        assert self._warm.wait(WAIT_S), "members that are to be warm are not"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words == ["warm"]:
                self._warm.set()
            elif len(words) >= 3:
                self._hear(words)


class Group:
    def __init__(self, partitions: int, period_s: float) -> None:
        self.partitions = partitions
        self.period_s = period_s
        self.present: set[str] = set()
        self.subscribed: dict[str, int] = {}
        self.held: dict[str, set[int]] = {}
        self._since: dict[int, int] = {}
        """When each partition's owner got it."""
        self._reads: list[list[tuple[int, str]]] = [[] for _ in range(partitions)]
        self._lock = threading.Lock()

    # -- reports of members

    def hear(self, words: list[str]) -> None:
        what, name, at = words[0], words[1], int(words[2])
        listed = [int(index) for index in words[3].split(",")] if len(words) > 3 else []
        with self._lock:
            match what:
                case "read":
                    for index in listed:
                        self._reads[index].append((at, name))
                    return
                case "subscribed":
                    self.subscribed[name] = at
                    self.held.setdefault(name, set())
                case "assigned":
                    self.held[name].update(listed)
                    self._since.update(dict.fromkeys(listed, at))
                case "revoked" | "lost":
                    self.held[name].difference_update(listed)

    def gone(self, name: str) -> None:
        with self._lock:
            self.present.discard(name)
            self.held.pop(name, None)

    # -- settled

    def owners(self) -> dict[int, str]:
        with self._lock:
            return {index: name for name, held in self.held.items() for index in held}

    def is_settled(self, began: int = 0) -> bool:
        """Each partition has one owner, which has read it since its assignment and `began`; the shares are even."""
        shares = [self.held.get(name, set()) for name in self.present]
        least, rest = divmod(self.partitions, len(shares))
        even = all(least <= len(share) <= least + (1 if rest else 0) for share in shares)
        if not even or sum(map(len, shares)) != self.partitions or len(set().union(*shares)) != self.partitions:
            return False
        last = {(i, name): self._reads[i][-1:] for name in self.present for i in self.held[name]}
        return all(
            reads and reads[0][1] == name and reads[0][0] >= max(began, self._since[index])
            for (index, name), reads in last.items()
        )

    def settle(self, began: int = 0) -> None:
        self._wait_until_settled(began)
        time.sleep(LINGER_S)
        self._wait_until_settled(began)

    def _wait_until_settled(self, began: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            with self._lock:
                if self.is_settled(began):
                    return
                assert time.monotonic() < deadline, f"not settled: partitions held {self.held}"
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
        after = self.owners()
        ends, pauses, stayed = [began], [0.0], 0
        moved = [index for index in after if after[index] != before.get(index)]
        for index in range(self.partitions):
            reads = self._reads[index]
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
    longest, end = 0, began
    for (a, _), (b, _) in pairwise(reads):
        if b >= began:
            gap = b - (max(a, began) if clip else a)
            if gap > longest:
                longest, end = gap, b
    return longest, end
