"""A member of a consumer group (KIP-848), without sockets, clock or chance: events go in, requests and actions out.

    member = ConsumerMembership(ConsumerSettings("orders", str(uuid4())), Subscription(("t",)))
    member.join(now)
    for action in member.take():            # after every call
        match action:
            case Ask():             send its request to the coordinator; pass the answer to `received`
            case FindCoordinator(): close the connection to the coordinator; call `coordinator_found` with a new one
            case Added():           work on these partitions, too
            case Revoke():          stop work on these partitions, commit, then call `revoked`
            case Lost():            others may own these already: stop at once; commits would be refused
            case Doubtful():        the coordinator did not answer for so long that others may own them; see below
            case Assured():         the coordinator answers again; the member owned its partitions all the time
            case Waits():           the coordinator refuses for now; the member asks again
            case Ended():           the membership is over, with an error or without
    call `wake(now)` when `next_deadline()` has come

| phase | it heartbeats with | next phase |
| --- | --- | --- |
| OUTSIDE | nothing, until `join` | JOINING |
| JOINING | epoch 0 and all its fields | MEMBER |
| MEMBER | its epoch, at the interval of the last answer | JOINING when it is fenced |
| LEAVING | -1, or -2 for a static member that may come back, once | ENDED |

Ownership changes partition by partition. An answer's assignment lists all partitions that the member may use. It first
revokes those that are not in it any more. When the application has given them up, a heartbeat says at once what the
member still owns; the coordinator gives the revoked partitions to others only then. The member owns new partitions as
soon as it has the answer. It acknowledges every assignment in this way, also one that changes nothing, because the
coordinator may wait for an acknowledgement that it missed.

A heartbeat carries only the fields that have changed since the last one. It carries all fields when the member joins,
and after an answer that was lost or was an error, because the coordinator may not have processed the request. The owned
partitions in a heartbeat include those that the member takes a moment later; a report without them would give them
away. One request is under way at a time, and the answer to any other is ignored. Only a leave or a new subscription
does not wait for the answer before, which the coordinator may hold.

A member that cannot reach its coordinator continues with its partitions, as Java's does. Most often its ownership has
not changed, and if all members stopped, all work would stop. The coordinator removes a member when its session ends,
or when it does not give up partitions within its rebalance timeout, counted from a decision that may not have reached
the member. Before `trusted_until` neither can happen, so no other member owns its partitions. The session is a
setting of the server that clients do not learn, so `session_timeout_ms` must not be longer. After `trusted_until` the
member's work may be done twice, and its commits are refused if it was removed. Doubtful says so; the application may
stop or not.

Errors: 14 asks again; 15 and 16 look for the coordinator; 25 and 110, and 69 for a member, lose everything and join
again at once. 111 asks again, because the session of the instance id's former member may not have ended yet (Java gives
up here). 29 asks again, because rights may be granted. Any other error ends the membership.

Instants and durations are milliseconds; `chance`, from 0 to 1, spreads retries. Behaviour: KIP-848, and Java's
ConsumerHeartbeatRequestManager and ConsumerMembershipManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kohort.client.backoff import Backoff
from kohort.client.membership.coordinator_requests import Millis, earliest
from kohort.client.membership.epoch_member import LEAVES, EpochMember, Partitions, Phase, Reaction
from kohort.wire.embedded import by_topic
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

NONE: Partitions = frozenset()

LEAVES_FOR_A_WHILE = -2


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: tuple[str, ...] = ()
    regex: str | None = None
    """Topics whose whole name matches (RE2), in addition to `topics`."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings of a member; names and defaults are those of Kafka's consumer."""

    group_id: str
    member_id: str
    """Made by the client, new for each process: a UUID."""
    instance_id: str | None = None
    """Makes it a static member (KIP-345): it may come back within its session without a rebalance."""
    rack_id: str | None = None
    server_assignor: str | None = None
    rebalance_timeout_ms: Millis = 300_000
    """How long it may take to give partitions up."""
    session_timeout_ms: Millis = 45_000
    """The server's, or less."""
    request_timeout_ms: Millis = 30_000
    """Longer than a heartbeat may be held."""
    retry_backoff_ms: Millis = 100
    retry_backoff_max_ms: Millis = 1_000


# -- what comes out


@dataclass(frozen=True, slots=True)
class Added:
    """The member owns these from now on, in addition to the others."""

    epoch: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Revoke:
    """Give these up. The member still owns them, for commits; call `revoked` when done."""

    epoch: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Lost:
    """The member does not own these any more. It joins again by itself, unless it left."""

    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Others may own these: see the module docstring."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Assured:
    """The partitions are certainly still the member's."""


class ConsumerMembership(EpochMember):
    """See the module docstring. `epoch` is for commits, too."""

    REACTIONS: ClassVar[Mapping[int, Reaction]] = {
        **EpochMember.REACTIONS,
        ErrorCode.UNRELEASED_INSTANCE_ID: Reaction.WAIT,
    }

    def __init__(self, settings: ConsumerSettings, subscription: Subscription) -> None:
        super().__init__(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms), settings.request_timeout_ms)
        self.settings = settings
        self.subscription = subscription
        self.owned: Partitions = NONE
        """Includes the partitions that it is about to give up."""
        self._target: Partitions = NONE
        """The last assignment."""
        self._revoking: Partitions = NONE
        """The partitions that the application is giving up."""
        self._had_regex = False
        self._send_subscription = False
        self._send_owned = False
        self._assured_at: Millis | None = None
        """When the last request that was accepted was sent."""
        self._unanswered_since: Millis | None = None
        """When the first of the requests was sent that have no answer; the coordinator may have processed them."""
        self._revoke_since: Millis | None = None
        """When the coordinator may have decided, at the earliest, that partitions must be given up."""
        self._doubtful = False

    # -- what the application does

    def subscribe(self, subscription: Subscription, now: Millis) -> None:
        """Change the subscription. A heartbeat carries it at once."""
        self.subscription = subscription
        self._send_subscription = True
        if self.phase in (Phase.JOINING, Phase.MEMBER):
            if self._requests.awaits_answer:
                self._send_all = True  # the answer under way will be ignored
                self._requests.forget()
            if self._requests.retry_at is None:
                self._ask(now)

    def revoked(self, now: Millis) -> None:
        """The application has stopped work on the partitions of the last Revoke. Ignored if that is over already."""
        if self._revoking:
            self.owned -= self._revoking
            self._revoking = NONE
            self._send_owned = True
            self._advance()
            self._ask_if_idle(now)

    def leave(self, now: Millis, *, static_too: bool = False) -> None:
        """Give everything up. A static member may come back within its session, unless `static_too`."""
        stays = self.settings.instance_id is not None and not static_too
        self._leave_epoch = LEAVES_FOR_A_WHILE if stays else LEAVES
        self._leave(now)

    def commit_answered(self, error: int, epoch: int, now: Millis) -> None:
        """The error of an OffsetCommit in this member's name, in this epoch. A heartbeat finds out more."""
        fenced = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID)
        if error in fenced and self.phase is Phase.MEMBER and epoch == self.epoch:
            self._ask_if_idle(now)

    # -- what the edge calls

    def wake(self, now: Millis, chance: float = 0.5) -> None:
        """`next_deadline()` has come; an early call does no harm."""
        until = self.trusted_until()
        if until is not None and now >= until and not self._doubtful:
            self._doubtful = True
            self._requests.actions.append(Doubtful(self.owned))
        super().wake(now, chance)

    def next_deadline(self) -> Millis | None:
        """When `wake` is due."""
        return earliest(super().next_deadline(), self.trusted_until() if not self._doubtful else None)

    @property
    def heartbeat_interval_ms(self) -> Millis:
        """The interval of the last answer; a guess before the first."""
        return self.interval_ms if self.interval_ms is not None else self.settings.session_timeout_ms // 3

    def trusted_until(self) -> Millis | None:
        """Until then no other member can own this member's partitions. None if the member owns no partition."""
        if not self.owned or self._assured_at is None:
            return None
        until = self._assured_at + self.settings.session_timeout_ms
        for since in (self._unanswered_since, self._revoke_since):
            if since is not None:
                until = min(until, since + self.settings.rebalance_timeout_ms)
        return until

    # -- answers

    def _accepted(self, response: ConsumerGroupHeartbeatResponse, now: Millis) -> None:
        self._assured_at = self._requests.sent_at
        since = self._requests.sent_at if self._unanswered_since is None else self._unanswered_since
        self._unanswered_since = None
        if not self._revoking and not self._send_owned:
            self._revoke_since = None  # the coordinator knows what was given up
        if response.assignment is not None:
            self._target = _partitions(response.assignment)
            self._send_owned = True
            if self._advance():
                self._send_owned = False
                self._revoke_since = since
        until = self.trusted_until()
        if self._doubtful and (until is None or now < until):
            self._doubtful = False
            self._requests.actions.append(Assured())
        if self._send_owned or self._send_subscription:
            self._ask(now)

    def _advance(self) -> bool:
        """One step from the owned partitions to the assignment: give up, then take. True if there are partitions to
        give up."""
        if self._revoking:
            return False
        gone, new = self.owned - self._target, self._target - self.owned
        if gone:
            self._revoking = gone
            self._requests.actions.append(Revoke(self.epoch, gone))
        elif new:
            self.owned = self._target
            self._requests.actions.append(Added(self.epoch, new))
        return bool(gone)

    def _rejoin(self, error: int, now: Millis, chance: float) -> None:
        self._lose(f"error {error}")
        self.phase = Phase.JOINING
        self._ask(now)

    def _lose(self, reason: str) -> None:
        super()._lose(reason)
        if self.owned:
            self._requests.actions.append(Lost(self.owned, reason))
        self.owned = self._target = self._revoking = NONE
        self._assured_at = self._unanswered_since = self._revoke_since = None
        self._doubtful = False

    # -- requests

    def _request(self, now: Millis) -> ConsumerGroupHeartbeatRequest:
        if self._unanswered_since is None:
            self._unanswered_since = now
        settings = self.settings
        if self.phase is Phase.LEAVING:
            return ConsumerGroupHeartbeatRequest(
                group_id=settings.group_id,
                member_id=settings.member_id,
                member_epoch=self._leave_epoch,
                instance_id=settings.instance_id,
            )
        send_all = self._send_all or self.phase is Phase.JOINING
        subscription = self.subscription if send_all or self._send_subscription else None
        owned = self.owned | self._target if send_all or self._send_owned else None
        rows = None
        if owned is not None:
            rows = tuple(HeartbeatTopicPartitions(topic_id=id, partitions=p) for id, p in by_topic(sorted(owned)))
        self._send_all = self._send_subscription = self._send_owned = False
        return ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=settings.member_id,
            member_epoch=self.epoch,
            instance_id=settings.instance_id,
            rack_id=settings.rack_id if send_all else None,
            rebalance_timeout_ms=settings.rebalance_timeout_ms if send_all else -1,
            subscribed_topic_names=subscription.topics if subscription is not None else None,
            subscribed_topic_regex=self._regex(subscription) if subscription is not None else None,
            server_assignor=settings.server_assignor if send_all else None,
            topic_partitions=rows,
        )

    def _regex(self, subscription: Subscription) -> str | None:
        """An empty one removes the regex of an earlier heartbeat."""
        self._had_regex |= subscription.regex is not None
        return subscription.regex or ("" if self._had_regex else None)


def _partitions(assignment: HeartbeatAssignment) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in assignment.topic_partitions for index in topic.partitions)
