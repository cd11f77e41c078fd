"""The broker's interface to a state machine: it owns one log, and its state is the fold of that log.

    step(event, now)      decide; returns effects and changes soft state only
    apply(record)         the only writer of hard state, live and in recovery
    next_deadline()       when step(DeadlineReached(), now) is due
    validate()            check the invariants

The broker starts a machine with the records of its log, appends the records of each step to that log, and applies them
before the next event. The shard of the group coordinator (shard.py) is such a machine, one for each partition of
`__consumer_offsets`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from kohort.coordinator.events import Effects, Millis


class LogName(NamedTuple):
    """The log that a state machine owns. No two machines own the same."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class StateMachine(Protocol):
    @property
    def log(self) -> LogName: ...

    def step(self, event: Any, now: Millis) -> Effects: ...

    def apply(self, record: Any, timestamp: Millis) -> None:
        """`record`: a Record, or what a step's effects have instead of several."""

    def next_deadline(self) -> Millis | None: ...

    def validate(self) -> None:
        """Raises AssertionError; for tests and the simulator."""
