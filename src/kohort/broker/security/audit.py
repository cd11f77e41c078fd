"""The lines of the server's log about decisions: denied at info, allowed at debug, as Kafka's kafka.authorizer.logger.

Clients ask for the same again and again. So a line about the same principal, operation and resource is written at most
once in REPEAT_MS, with the number of times since the last one; and all lines of a decision together have a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import Literal, TypeVar

from kohort.broker.authorization import Operation, Principal, Resource

REPEAT_MS = 10_000
MOST_LINES = 100
"""Different lines of a decision in REPEAT_MS; more are counted alone."""
LONGEST = 249
MOST_PLACES = 20
"""Partitions that one line names, or fewer if their names are long."""

_T = TypeVar("_T")

Decision = Literal["denied", "allowed"]
DENIED: Decision = "denied"
ALLOWED: Decision = "allowed"

Tell = Callable[..., None]
"""As `TurnBuilder.tell_of_decision`."""


def printable(text: str) -> str:
    """Names are chosen by clients: no line breaks and no control characters reach the log."""
    return text[: 2 * LONGEST].encode("unicode_escape").decode("ascii")


def listed(places: Collection[_T], told: Callable[[_T], str]) -> str:
    """The first places, and how many more there are. `printable` cuts none of it: half of a number is a wrong one."""
    found: list[str] = []
    room = 2 * LONGEST - len(", and 1000000 more")
    for text in map(told, islice(places, MOST_PLACES)):
        room -= len(text) + len(", ")
        if room < 0:
            break
        found.append(text)
    more = len(places) - len(found)
    return ", ".join(found) + (f" and {more} more" if more else "")


class _Lines:
    """Those of a decision, since the interval began."""

    def __init__(self) -> None:
        self.since = 0
        self.times: dict[tuple[str, str, str, str, str], int] = {}
        self.left_out = 0


class Audit:
    def __init__(self) -> None:
        self._lines: dict[Decision, _Lines] = {DENIED: _Lines(), ALLOWED: _Lines()}
        self.denials: dict[tuple[str, str], int] = {}
        """How many, by operation and kind of resource."""

    def decided(
        self,
        tell: Tell,
        now: int,
        decision: Decision,
        who: tuple[Principal, str],
        operation: Operation,
        resource: Resource,
        name: str,
        api_key: int,
    ) -> None:
        """`who`: the principal and its address."""
        principal, host = who
        if decision == DENIED:
            kind = operation.name, resource.name
            self.denials[kind] = self.denials.get(kind, 0) + 1
        lines = self._lines[decision]
        if now - lines.since >= REPEAT_MS:
            lines = self._begin(tell, now, decision)
        line = (str(principal), operation.name, resource.name, name, host)
        if line in lines.times:
            lines.times[line] += 1
        elif len(lines.times) >= MOST_LINES:
            lines.left_out += 1
        else:
            lines.times[line] = 0
            _tell(tell, decision, line, api_key=api_key)

    def _begin(self, tell: Tell, now: int, decision: Decision) -> _Lines:
        """The next interval: say how often the lines of the last one would have been repeated."""
        former = self._lines[decision]
        for line, again in former.times.items():
            if again:
                _tell(tell, decision, line, again=again)
        if former.left_out:
            tell(_level(decision), decision, other_requests=former.left_out)
        begun = self._lines[decision] = _Lines()
        begun.since = now
        return begun


def _level(decision: Decision) -> str:
    return "debug" if decision == ALLOWED else "info"


def _tell(tell: Tell, decision: Decision, line: tuple[str, str, str, str, str], **more: str | int) -> None:
    principal, operation, resource, name, host = line
    tell(
        _level(decision),
        decision,
        principal=printable(principal),
        operation=operation,
        resource=f"{resource}:{printable(name)}",
        host=host,
        **more,
    )
