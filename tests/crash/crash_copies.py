"""The records that copies of a topic must hold: each input record once, and nothing of an aborted transaction.

A worker copies records of the input into the output of its group, and names each by its place: the value `2:17` is the
copy of offset 17 in partition 2. A worker that is going to abort writes values that begin with ABORTED.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ABORTED = "aborted "


def copy_of(partition: int, offset: int) -> str:
    return f"{partition}:{offset}"


@dataclass(slots=True)
class Copies:
    """The committed records of one group's output, as a reader of committed records gets them."""

    group: str
    seen: dict[int, set[int]] = field(default_factory=dict)
    """The offsets of each input partition."""
    violations: list[str] = field(default_factory=list)
    _next: dict[int, int] = field(default_factory=dict)
    """Of each output partition, the least offset that the reader may get."""
    _first_missing: dict[int, int] = field(default_factory=dict)

    def add(self, partition: int, offset: int, value: str) -> None:
        """A record of the output partition `partition`."""
        if offset < self._next.get(partition, 0):
            self.violations.append(f"{self.group}-{partition}: the reader got offset {offset} again or too late")
        self._next[partition] = offset + 1
        if value.startswith(ABORTED):
            self.violations.append(f"{self.group}-{partition}: {value!r} at {offset} is of an aborted transaction")
            return
        source, _, place = value.partition(":")
        seen = self.seen.setdefault(int(source), set())
        if int(place) in seen:
            self.violations.append(f"{self.group}-{partition}: {value!r} at {offset} was copied before")
        seen.add(int(place))

    def first_missing(self, partition: int) -> int:
        """The first input offset without a copy."""
        seen = self.seen.get(partition, set())
        first = self._first_missing.get(partition, 0)
        while first in seen:
            first += 1
        self._first_missing[partition] = first
        return first

    def last(self, partition: int) -> int:
        """The last input offset with a copy; -1 without one."""
        return max(self.seen.get(partition, ()), default=-1)

    def total(self) -> int:
        return sum(map(len, self.seen.values()))
