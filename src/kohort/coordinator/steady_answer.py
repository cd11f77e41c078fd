"""Answers that may be given again without a step of the shard.

A request whose only effects are its answer and a later end of its member's session leads to a `SteadyAnswer`. An equal
request gets the same answer while `Shard.version` is the answer's version; then only the session is postponed.
"""

from __future__ import annotations

from kohort.coordinator.deadlines import Deadline
from kohort.coordinator.events import Millis

NEVER = -1
"""No shard has this version."""


class SteadyAnswer:
    __slots__ = ("answer", "lasts", "session", "session_ms", "version")

    def __init__(self, answer: int, session: Deadline, session_ms: Millis, *, lasts: bool = True) -> None:
        self.answer = answer
        """The content of the response: the error, or the interval of a consumer group's heartbeat."""
        self.session = session
        self.session_ms = session_ms
        self.lasts = lasts
        """False if an equal request may get another answer although the version is the same."""
        self.version = NEVER
        """The shard's version at the time; NEVER for an answer that does not last."""
