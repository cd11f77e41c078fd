"""A member of a share group (KIP-932), without sockets, clock or chance: events go in, requests and actions out.

    member = ShareMembership(ShareSettings("mailers", str(uuid4()), ("jobs",)))
    member.join(now)
    for action in member.take():            # after every call
        match action:
            case Ask():             send its request to the coordinator; pass the answer to `received`
            case FindCoordinator(): close the connection to the coordinator; call `coordinator_found` with a new one
            case Fetches():         fetch from these partitions from now on
            case Waits():           the coordinator refuses for now; the member asks again
            case Ended():           the membership is over, with an error or without
    call `wake(now)` when `next_deadline()` has come

| phase | it heartbeats with | next phase |
| --- | --- | --- |
| OUTSIDE | nothing, until `join` | JOINING |
| JOINING | epoch 0 and its topics | MEMBER |
| MEMBER | its epoch, at the interval of the last answer | JOINING when it is fenced |
| LEAVING | -1, once | ENDED |

The assignment says where a member should look for records; it owns nothing. So nothing is given up before a new
assignment, and a member that is removed goes on fetching while it joins again: brokers check neither fetches nor
acknowledgements against the membership.

Errors: 14 asks again; 15 and 16 look for the coordinator; 25 and 110, and 69 for a member, join again at once; 29 asks
again, because rights may be granted. Any other error ends the membership.

Instants and durations are milliseconds; `chance`, from 0 to 1, spreads retries. Behaviour: KIP-932, and Java's
ShareHeartbeatRequestManager and ShareMembershipManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kohort.client.backoff import Backoff
from kohort.client.membership.coordinator_requests import (
    Ask,
    CoordinatorRequests,
    Ended,
    FindCoordinator,
    Millis,
    earliest,
)
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

TopicIdPartition = tuple[bytes, int]
"""The topic's id and the number of the partition."""

LEAVES = -1
FIRST_INTERVAL_MS = 5_000
"""Kafka's default of the heartbeat interval, until an answer says another."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings of a member; names and defaults are those of Kafka's share consumer."""

    group_id: str
    member_id: str
    """Made by the client, new for each process: a UUID."""
    topics: tuple[str, ...]
    rack_id: str | None = None
    request_timeout_ms: Millis = 30_000
    retry_backoff_ms: Millis = 100
    retry_backoff_max_ms: Millis = 1_000


class Phase(Enum):
    OUTSIDE = "outside"
    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Fetches:
    """The whole assignment: it replaces the one before."""

    epoch: int
    partitions: frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class Waits:
    """The coordinator refuses for now, with error 29. Emitted once until it accepts a heartbeat."""

    error: int


Action = Ask | FindCoordinator | Fetches | Waits | Ended

REJOINS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
REDISCOVERS = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class ShareMembership:
    """See the module docstring. After every call, carry out the actions of `take`."""

    def __init__(self, settings: ShareSettings) -> None:
        self.settings = settings
        self.phase = Phase.OUTSIDE
        self.epoch = 0
        """0 while it is not a member."""
        self.interval_ms: Millis | None = None
        """The heartbeat interval of the last answer."""
        self._requests = CoordinatorRequests(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms))
        self._send_all = True
        self._waits = False
        """Waits was emitted, and no heartbeat was accepted since."""
        self._heartbeat_at: Millis | None = None

    def join(self, now: Millis) -> None:
        """Become a member. Once only: a membership that has ended stays so."""
        if self.phase is not Phase.OUTSIDE:
            raise ValueError(f"join: the member is {self.phase.value}")
        self.phase = Phase.JOINING
        self._ask(now)

    def leave(self, now: Millis) -> None:
        """Leave the group. This gives no record back; the end of the share session does."""
        if self.phase in (Phase.LEAVING, Phase.ENDED):
            return
        if not (self._requests.sent > 0 and self._requests.coordinator_known):
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

    def received(self, number: int, response: ShareGroupHeartbeatResponse, now: Millis, chance: float = 0.5) -> None:
        """The answer to the Ask with this number."""
        if not self._requests.answered(number):
            return
        if self.phase is Phase.LEAVING:
            self._end(ErrorCode.NONE)
        elif response.error_code == ErrorCode.NONE:
            self._accepted(response)
        else:
            self._send_all = True
            self._refused(response.error_code, now, chance)

    def wake(self, now: Millis, chance: float = 0.5) -> None:
        """`next_deadline()` has come; an early call does no harm."""
        if self._requests.timed_out(now):
            self.failed(now, chance)
        due = self._heartbeat_at is not None and now >= self._heartbeat_at
        if self._requests.retry_due(now) or (due and self._is_idle):
            self._ask(now)

    def next_deadline(self) -> Millis | None:
        """When `wake` is due."""
        requests = self._requests
        heartbeat = self._heartbeat_at if self._is_idle and requests.coordinator_known else None
        return earliest(requests.timeout_at, requests.retry_at, heartbeat)

    @property
    def heartbeat_interval_ms(self) -> Millis:
        """The interval of the last answer; Kafka's default before the first."""
        return FIRST_INTERVAL_MS if self.interval_ms is None else self.interval_ms

    def take(self) -> list[Action]:
        """The actions since the last call, in order."""
        return self._requests.take()

    # -- inside

    @property
    def _is_idle(self) -> bool:
        return not self._requests.awaits_answer and self._requests.retry_at is None

    def _accepted(self, response: ShareGroupHeartbeatResponse) -> None:
        self.phase = Phase.MEMBER
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        self._requests.failures = 0
        self._waits = False
        self._heartbeat_at = self._requests.sent_at + self.interval_ms
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            found = frozenset((row.topic_id, index) for row in rows for index in row.partitions)
            self._requests.actions.append(Fetches(self.epoch, found))

    def _refused(self, error: int, now: Millis, chance: float) -> None:
        is_member = self.phase is Phase.MEMBER
        if error in REJOINS or (error == ErrorCode.GROUP_ID_NOT_FOUND and is_member):
            self.phase = Phase.JOINING
            self.epoch = 0
            self._heartbeat_at = None
            if is_member:
                self._ask(now)
            else:
                self._requests.retry_later(now, chance)
        elif error in REDISCOVERS:
            self.failed(now, chance)
        elif error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._requests.retry_later(now, chance)
        elif error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._requests.retry_later(now, chance)
            if not self._waits:
                self._waits = True
                self._requests.actions.append(Waits(error))
        else:
            self._end(error)

    def _end(self, error: int) -> None:
        self.phase = Phase.ENDED
        self.epoch = 0
        self._heartbeat_at = None
        self._requests.reset()
        self._requests.actions.append(Ended(error))

    def _ask(self, now: Millis) -> None:
        """Send a heartbeat, or look for the coordinator."""
        if self.phase in (Phase.OUTSIDE, Phase.ENDED) or not self._requests.ready():
            return
        settings = self.settings
        send_all = self.phase is Phase.JOINING or (self._send_all and self.phase is Phase.MEMBER)
        self._send_all = False
        request = ShareGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=settings.member_id,
            member_epoch=LEAVES if self.phase is Phase.LEAVING else self.epoch,
            rack_id=settings.rack_id if send_all else None,
            subscribed_topic_names=settings.topics if send_all else None,
        )
        self._requests.send(request, now, settings.request_timeout_ms)
