"""The requests of one member to its group's coordinator, without sockets, clock or chance.

One request is under way at a time. It has a number and a time-out; the answer to any other number is ignored. After a
failure the next request waits for a growing pause. If the coordinator is unknown, it is looked up first. The
memberships (`classic`, `consumer`, `share`) have one `CoordinatorRequests`, which also keeps the actions that they hand
out.

Instants and durations are milliseconds. `chance`, from 0 to 1, spreads retries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kohort.client.backoff import Backoff

Millis = int


@dataclass(frozen=True, slots=True)
class Ask:
    """Send `request` to the coordinator, in the newest version that both speak, and give the answer to `received`."""

    number: int
    request: Any


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Close the connection to the coordinator, if there is one, and look for the coordinator again."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The membership is over. `error` is 0 after `leave`; FENCED_INSTANCE_ID (82) when another has taken its place."""

    error: int


class CoordinatorRequests:
    def __init__(self, backoff: Backoff) -> None:
        self.actions: list[Any] = []
        self.coordinator_known = False
        self.sent = 0
        """How many requests were sent; the number of the last one."""
        self.sent_at: Millis = 0
        """When the last request was sent."""
        self.awaits_answer = False
        self.timeout_at: Millis | None = None
        self.retry_at: Millis | None = None
        self.failures = 0
        """In a row; the membership resets it."""
        self._backoff = backoff
        self._searching = False

    def take(self) -> list[Any]:
        """The actions since the last call, in order."""
        actions, self.actions = self.actions, []
        return actions

    def found(self) -> bool:
        """There is a connection to the coordinator. Returns whether a request may be sent now."""
        self.coordinator_known = True
        self._searching = False
        return self.retry_at is None

    def ready(self) -> bool:
        """True if a request can be sent now. Looks for the coordinator if it is unknown."""
        if self.awaits_answer:
            return False
        if not self.coordinator_known and not self._searching:
            self._searching = True
            self.actions.append(FindCoordinator())
        return self.coordinator_known

    def send(self, request: Any, now: Millis, timeout_ms: Millis) -> None:
        self.sent += 1
        self.sent_at = now
        self.awaits_answer = True
        self.timeout_at = now + timeout_ms
        self.actions.append(Ask(self.sent, request))

    def answered(self, number: int) -> bool:
        """True if the answer to this request number is awaited. After this call the answer is not awaited any more."""
        if not self.awaits_answer or number != self.sent:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """Ignore the answer to the request under way."""
        self.awaits_answer = False
        self.timeout_at = None

    def reset(self) -> None:
        """Forget the request under way, and do not wait before the next one."""
        self.forget()
        self.retry_at = None

    def retry_later(self, now: Millis, chance: float) -> None:
        self.failures += 1
        self.retry_at = now + int(self._backoff.pause(self.failures, chance))

    def failed(self, now: Millis, chance: float) -> None:
        """The connection broke or the request timed out: retry after a pause, and find the coordinator again."""
        self.coordinator_known = False
        self.forget()
        self.retry_later(now, chance)
        self.ready()

    def timed_out(self, now: Millis) -> bool:
        return self.timeout_at is not None and now >= self.timeout_at

    def retry_due(self, now: Millis) -> bool:
        """True if the pause after a failure has just ended."""
        if self.retry_at is None or now < self.retry_at:
            return False
        self.retry_at = None
        return True


def earliest(*instants: Millis | None) -> Millis | None:
    return min((at for at in instants if at is not None), default=None)
