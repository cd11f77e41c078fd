"""The course of a scenario in this process, as hints for its run over sockets.

A server does not tell a client that it parks a request. So a shard in this process runs the commands first, and notes
which requests are answered at once, and which after which command. The run over sockets waits for these answers.
Hints only shorten the waiting: the run also finds unexpected and missing answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import departures
from lanes import STRICT, USUAL, Lane
from shard_world import ShardWorld

from kohort.conformance.play.commands import Name
from kohort.conformance.play.hints import Hints, epoch_of, label
from kohort.coordinator.events import Event, Reply, RequestId
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse

NEAR_MS = 500
"""A deadline that fires in the last milliseconds of a wait may be late on a real clock."""


def hints_for(commands: Iterable[str], lane: Lane = USUAL) -> Hints:
    guide = Guide(lane=lane)
    for command in commands:
        guide.play(command)
    return guide.hints


class Guide(ShardWorld):
    """`prompt`: deadlines that are due fire after each command, as they do where time is real."""

    def __init__(self, prompt: bool = False, lane: Lane = USUAL) -> None:
        super().__init__()
        self.settings["compatibility"] = lane.compatibility
        self._prompt = prompt
        self.hints = Hints(exact_epochs=lane is STRICT)
        self._answered: set[int] = set()
        self._last_fired = -1
        self.departed = False
        """True if a member left the consumer group, and no member of the consumer protocol has heartbeated since."""
        self.must_rejoin = False
        """True if the last answer was 27."""
        self.last_answer_is_good = False

    def play(self, command: str) -> None:
        self._answered, self._last_fired, before = set(), -1, self.now
        if self._prompt and self.hints.departs_at < 0:
            self._note_departure(command)
        size = self._size()
        self.run(command)
        if self._prompt:
            self._advance_to(self.now)
        if self._size() < size:
            self.departed = True
        elif command.startswith("beat ") and self.last_answer_is_good:
            self.departed = False
        if self._last_fired >= 0 and self.now - self._last_fired <= NEAR_MS:
            self.hints.fires_late.add(len(self.hints.answered))
        self.hints.answered.append(self._answered)
        self.hints.elapsed_ms.append(self.now - before)

    def _size(self) -> int:
        return sum(len(group.members) for group in self.shard.consumers.groups.values()) if self._shard else 0

    def _note_departure(self, command: str) -> None:
        known = departures.before(self, command)
        if known in departures.LOCAL:
            self.hints.local[len(self.hints.answered)] = known
        elif known:
            self.hints.departs_at, self.hints.departs_by = len(self.hints.answered), known

    def _ask(self, who: Name, version: int, body: Any, hold_ms: int = 0, software: str = "") -> None:
        super()._ask(who, version, body, 0, software)
        if self._prompt:
            self._advance_to(self.now)
        if self.last_request in self._answered:
            self.hints.at_once.add(self.last_request)

    def _reply(self, reply: Reply) -> None:
        number = int(reply.request_id)
        who, api, _ = self.asked[reply.request_id]
        body = reply.body
        error = getattr(body, "error_code", ErrorCode.NONE)
        if not (error == ErrorCode.REBALANCE_IN_PROGRESS and self._is_replaced(number, who, api)):
            self._answered.add(number)
        super()._reply(reply)
        self.must_rejoin, self.last_answer_is_good = error == ErrorCode.REBALANCE_IN_PROGRESS, not error
        if isinstance(body, JoinGroupResponse | ConsumerGroupHeartbeatResponse):
            if body.member_id:
                label(self.hints.labels, who.name, number, body.member_id)
            if not body.error_code:
                self.hints.epochs[number] = epoch_of(body)

    def _is_replaced(self, number: int, who: Name, api: str) -> bool:
        """True if the client has sent the same request again. Kafka never answers the earlier one (parked-replaced), so
        a run would wait until a session ends."""
        latest = self.asked.get(RequestId(self.last_request))
        return number < self.last_request and latest is not None and latest[:2] == (who, api)

    def _step(self, event: Event) -> None:
        if type(event).__name__ == "DeadlineReached":
            self._last_fired = self.now
        super()._step(event)

    def _check(self, *_: Any) -> None:
        """The in-process runner's checks of the log."""

    def _print(self, text: str) -> None:
        """No test reads this output."""
