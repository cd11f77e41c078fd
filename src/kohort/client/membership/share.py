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

from kohort.client.backoff import Backoff
from kohort.client.membership.coordinator_requests import Millis
from kohort.client.membership.epoch_member import EpochMember, Partitions, Phase
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

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


@dataclass(frozen=True, slots=True)
class Fetches:
    """The whole assignment: it replaces the one before."""

    epoch: int
    partitions: Partitions


class ShareMembership(EpochMember):
    """See the module docstring."""

    def __init__(self, settings: ShareSettings) -> None:
        super().__init__(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms), settings.request_timeout_ms)
        self.settings = settings

    def leave(self, now: Millis) -> None:
        """Leave the group. This gives no record back; the end of the share session does."""
        self._leave(now)

    @property
    def heartbeat_interval_ms(self) -> Millis:
        """The interval of the last answer; Kafka's default before the first."""
        return FIRST_INTERVAL_MS if self.interval_ms is None else self.interval_ms

    # -- inside

    def _accepted(self, response: ShareGroupHeartbeatResponse, now: Millis) -> None:
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            found = frozenset((row.topic_id, index) for row in rows for index in row.partitions)
            self._requests.actions.append(Fetches(self.epoch, found))

    def _rejoin(self, error: int, now: Millis, chance: float) -> None:
        was_member = self.phase is Phase.MEMBER
        self._lose(f"error {error}")
        self.phase = Phase.JOINING
        if was_member:
            self._ask(now)
        else:
            self._requests.retry_later(now, chance)

    def _request(self, now: Millis) -> ShareGroupHeartbeatRequest:
        settings = self.settings
        leaves = self.phase is Phase.LEAVING
        send_all = not leaves and (self._send_all or self.phase is Phase.JOINING)
        self._send_all = False
        return ShareGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=settings.member_id,
            member_epoch=self._leave_epoch if leaves else self.epoch,
            rack_id=settings.rack_id if send_all else None,
            subscribed_topic_names=settings.topics if send_all else None,
        )
