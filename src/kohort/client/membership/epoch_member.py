"""What members of consumer groups (KIP-848) and of share groups (KIP-932) have in common: heartbeats with an epoch.

A heartbeat joins with epoch 0, keeps the membership with the epoch of the last answer, and leaves with a negative one.
`consumer` and `share` say what their heartbeats carry, and what an assignment means.

Instants and durations are milliseconds; `chance`, from 0 to 1, spreads retries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from kohort.client.backoff import Backoff
from kohort.client.membership.coordinator_requests import CoordinatorRequests, Ended, Millis, earliest
from kohort.wire.errors import ErrorCode

TopicIdPartition = tuple[bytes, int]
"""The topic's id and the number of the partition."""
Partitions = frozenset[TopicIdPartition]

LEAVES = -1


class Phase(Enum):
    OUTSIDE = "outside"
    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Waits:
    """The coordinator refuses for now, with `error`. Emitted once until it accepts a heartbeat."""

    error: int


class Reaction(Enum):
    RETRY = "ask again after a pause"
    REDISCOVER = "find the coordinator, then ask again"
    WAIT = "ask again after a pause, and emit Waits"
    REJOIN = "all is lost: join again"
    END = "the membership cannot go on"


class EpochMember(ABC):
    """After every call, carry out the actions of `take`."""

    REACTIONS: ClassVar[Mapping[int, Reaction]] = {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.REDISCOVER,
        ErrorCode.NOT_COORDINATOR: Reaction.REDISCOVER,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.REJOIN,
        ErrorCode.FENCED_MEMBER_EPOCH: Reaction.REJOIN,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.WAIT,
    }

    def __init__(self, backoff: Backoff, request_timeout_ms: Millis) -> None:
        self.phase = Phase.OUTSIDE
        self.epoch = 0
        """0 while it is not a member."""
        self.interval_ms: Millis | None = None
        """The heartbeat interval of the last answer."""
        self._requests = CoordinatorRequests(backoff)
        self._request_timeout_ms = request_timeout_ms
        self._send_all = True
        """The next heartbeat carries all fields, because the coordinator may not have processed the last one."""
        self._leave_epoch = LEAVES
        self._waits = False
        """Waits was emitted, and no heartbeat was accepted since."""
        self._heartbeat_at: Millis | None = None

    # -- what the application does

    def join(self, now: Millis) -> None:
        """Become a member. Once only: a membership that has ended stays so."""
        if self.phase is not Phase.OUTSIDE:
            raise ValueError(f"join: the member is {self.phase.value}")
        self.phase = Phase.JOINING
        self._ask(now)

    def _leave(self, now: Millis) -> None:
        if self.phase in (Phase.LEAVING, Phase.ENDED):
            return
        is_known = self._requests.sent > 0 and self._requests.coordinator_known
        self._lose("it leaves")
        if not is_known:
            self._end(ErrorCode.NONE)  # its session will end
            return
        self.phase = Phase.LEAVING
        self._requests.reset()
        self._ask(now)

    # -- what the edge calls

    def coordinator_found(self, now: Millis) -> None:
        """There is a connection to the coordinator."""
        if self._requests.found():
            self._ask(now)

    def failed(self, now: Millis, chance: float = 0.5) -> None:
        """The connection to the coordinator broke, or the request under way got no answer in time."""
        self._requests.coordinator_known = False
        if self.phase is Phase.LEAVING:
            self._end(ErrorCode.NONE)
        elif self.phase in (Phase.JOINING, Phase.MEMBER):
            self._send_all = True
            self._requests.failed(now, chance)

    def received(self, number: int, response: Any, now: Millis, chance: float = 0.5) -> None:
        """The answer to the Ask with this number."""
        if not self._requests.answered(number):
            return
        if self.phase is Phase.LEAVING:
            self._end(ErrorCode.NONE)
        elif response.error_code == ErrorCode.NONE:
            self.phase = Phase.MEMBER
            self.epoch = response.member_epoch
            self.interval_ms = response.heartbeat_interval_ms
            self._requests.failures = 0
            self._waits = False
            self._heartbeat_at = self._requests.sent_at + response.heartbeat_interval_ms
            self._accepted(response, now)
        else:
            self._send_all = True
            self._refused(response.error_code, now, chance)

    def wake(self, now: Millis, chance: float = 0.5) -> None:
        """`next_deadline()` has come; an early call does no harm."""
        if self._requests.timed_out(now):
            self.failed(now, chance)
        if self._requests.retry_due(now):
            self._ask(now)
        if self._heartbeat_at is not None and now >= self._heartbeat_at:
            self._ask_if_idle(now)

    def next_deadline(self) -> Millis | None:
        """When `wake` is due."""
        requests = self._requests
        idle = not requests.awaits_answer and requests.coordinator_known and requests.retry_at is None
        return earliest(requests.timeout_at, requests.retry_at, self._heartbeat_at if idle else None)

    def take(self) -> list[Any]:
        """The actions since the last call, in order."""
        return self._requests.take()

    # -- inside

    def _refused(self, error: int, now: Millis, chance: float) -> None:
        reaction = self.REACTIONS.get(error, Reaction.END)
        if error == ErrorCode.GROUP_ID_NOT_FOUND and self.phase is Phase.MEMBER:
            reaction = Reaction.REJOIN
        match reaction:
            case Reaction.RETRY:
                self._requests.retry_later(now, chance)
            case Reaction.WAIT:
                self._requests.retry_later(now, chance)
                if not self._waits:
                    self._waits = True
                    self._requests.actions.append(Waits(error))
            case Reaction.REDISCOVER:
                self.failed(now, chance)
            case Reaction.REJOIN:
                self._rejoin(error, now, chance)
            case Reaction.END:
                self._end(error)

    def _lose(self, reason: str) -> None:
        """Forget everything of the former epochs."""
        self.epoch = 0
        self._heartbeat_at = None

    def _end(self, error: int) -> None:
        self._lose("the membership is over")
        self.phase = Phase.ENDED
        self._requests.reset()
        self._requests.actions.append(Ended(error))

    def _ask_if_idle(self, now: Millis) -> None:
        requests = self._requests
        if self.phase in (Phase.JOINING, Phase.MEMBER) and not requests.awaits_answer and requests.retry_at is None:
            self._ask(now)

    def _ask(self, now: Millis) -> None:
        """Send a heartbeat, or look for the coordinator."""
        if self.phase not in (Phase.OUTSIDE, Phase.ENDED) and self._requests.ready():
            self._requests.send(self._request(now), now, self._request_timeout_ms)

    @abstractmethod
    def _accepted(self, response: Any, now: Millis) -> None: ...

    @abstractmethod
    def _rejoin(self, error: int, now: Millis, chance: float) -> None: ...

    @abstractmethod
    def _request(self, now: Millis) -> Any: ...
