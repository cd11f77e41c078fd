"""The lines of the server's log about decisions: denied at info, allowed at debug, as Kafka's kafka.authorizer.logger.

A client that is refused asks again and again. So a line about the same principal, operation and resource is written at
most once in REPEAT_MS, with the number of times since the last one; and all lines together have a limit.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.broker.authorization import Operation, Principal, Resource

REPEAT_MS = 10_000
MOST_LINES = 100
"""Different lines in REPEAT_MS; more are counted alone."""
LONGEST = 249

Tell = Callable[..., None]
"""As `TurnBuilder.tell`."""


def printable(text: str) -> str:
    """Names are chosen by clients: no line breaks and no control characters reach the log."""
    return text[: 2 * LONGEST].encode("unicode_escape").decode("ascii")


class Audit:
    def __init__(self) -> None:
        self._since = 0
        self._times: dict[tuple[str, str, str, str, str], int] = {}
        self._left_out = 0
        self.denials: dict[tuple[str, str], int] = {}
        """How many, by operation and kind of resource."""

    def denied(
        self,
        tell: Tell,
        now: int,
        who: tuple[Principal, str],
        operation: Operation,
        resource: Resource,
        name: str,
        api_key: int,
    ) -> None:
        """`who`: the principal and its address."""
        principal, host = who
        kind = operation.name, resource.name
        self.denials[kind] = self.denials.get(kind, 0) + 1
        if now - self._since >= REPEAT_MS:
            self._begin(tell, now)
        line = (str(principal), operation.name, resource.name, name, host)
        if line in self._times:
            self._times[line] += 1
        elif len(self._times) >= MOST_LINES:
            self._left_out += 1
        else:
            self._times[line] = 0
            self._tell(tell, line, api_key=api_key)

    def _begin(self, tell: Tell, now: int) -> None:
        """The next interval: say how often the lines of the last one would have been repeated."""
        times, self._times, self._since = self._times, {}, now
        for line, again in times.items():
            if again:
                self._tell(tell, line, again=again)
        if self._left_out:
            tell("denied", other_requests=self._left_out)
            self._left_out = 0

    def _tell(self, tell: Tell, line: tuple[str, str, str, str, str], **more: str | int) -> None:
        principal, operation, resource, name, host = line
        tell(
            "denied",
            principal=printable(principal),
            operation=operation,
            resource=f"{resource}:{printable(name)}",
            host=host,
            **more,
        )
