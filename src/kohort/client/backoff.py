"""How long to wait before the next attempt, without clock or chance."""

from __future__ import annotations

from dataclasses import dataclass

MOST_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure, from `first` to `longest`; in whatever unit these two are.

    `jitter` is the part by which a pause varies either way, so that clients which failed together do not come back
    together.
    """

    first: float
    longest: float
    jitter: float = 0.2

    def pause(self, failures: int, chance: float = 0.5) -> float:
        """The pause after `failures` (1 or more) in a row. `chance`, from 0 to 1, chooses it within the jitter."""
        pause = min(self.first * (1 << min(failures - 1, MOST_DOUBLINGS)), self.longest)
        return pause * (1 - self.jitter + 2 * self.jitter * chance)
