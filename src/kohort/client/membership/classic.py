"""A member of a classic group, without sockets, clock or chance: events go in, requests and other actions come out.

    member = Membership(Settings("orders", (Protocol("range", subscription),)))
    member.join(now)
    for action in member.take():            # after every call
        match action:
            case Ask():             send its request to the coordinator; pass the answer to `received`
            case FindCoordinator(): close the connection to the coordinator; call `coordinator_found` with a new one
            case LetGo():           stop work on the assignment, commit, then call `let_go`
            case Assign():          this member leads: compute the assignment of every member, then call `assign`
            case Assigned():        work on the assignment until LetGo or Lost
            case Lost():            others may own the assignment already: stop at once; commits would be refused
            case Ended():           the membership is over, with an error or without
    call `wake(now)` when `next_deadline()` has come

| phase | it waits for | next phase |
| --- | --- | --- |
| OUTSIDE | `join` | JOINING |
| LETTING_GO | `let_go` | JOINING |
| JOINING | JoinGroup's answer | ASSIGNING as the leader, else SYNCING |
| ASSIGNING | `assign` | SYNCING |
| SYNCING | SyncGroup's answer | STABLE |
| STABLE | a heartbeat that says to rebalance | LETTING_GO |
| LEAVING | LeaveGroup's answer, once | ENDED |

The first heartbeat goes out right after the sync, and the next one as soon as the coordinator has answered one that it
held. So the coordinator always has a heartbeat that it can answer the moment the group rebalances.

With `keeps`, the member owns its assignment also after `let_go`: until Assigned brings the next one, or until the
assignment is Lost. It is Lost when the session ends while no JoinGroup is under way.

Without `rejoins`, a member that has lost its assignment goes OUTSIDE and waits for another `join`, so that the
application can act first. It also gets Lost after `let_go` if the group goes on without it. Leaders and workers keep
their work over a rebalance as long as the lease lasts. After Lost, others own it.

The reactions to error codes (`classic_reactions`) follow Java's consumer, with two exceptions. The session counts
from when a request was sent, not from its answer. When the session ends by the member's own clock, the member stops
without waiting for the coordinator. So it never uses an assignment for longer than the coordinator grants it.

Instants and durations are milliseconds. `chance`, from 0 to 1, spreads retries so that clients which failed together
do not come back together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from kohort.client.backoff import Backoff
from kohort.client.membership.classic_reactions import COMMIT_REACTIONS, REACTIONS, Reaction
from kohort.client.membership.coordinator_requests import (
    Ask,
    CoordinatorRequests,
    Ended,
    FindCoordinator,
    Millis,
    earliest,
)
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol (an assignor) that the member supports, and its subscription in that protocol's bytes."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a member; names and defaults are those of Kafka's consumer."""

    group_id: str
    protocols: tuple[Protocol, ...]
    protocol_type: str = "consumer"
    instance_id: str | None = None
    """Makes it a static member (KIP-345): it may come back within its session without a rebalance."""
    session_timeout_ms: Millis = 45_000
    rebalance_timeout_ms: Millis = 300_000
    heartbeat_interval_ms: Millis = 3_000
    request_timeout_ms: Millis = 30_000
    retry_backoff_ms: Millis = 100
    retry_backoff_max_ms: Millis = 1_000
    rejoins: bool = True
    """True if the member joins again by itself after it has lost its assignment."""
    keeps: bool = False
    """Whether the member keeps its assignment while the group rebalances (KIP-429): until the next one, or Lost."""


JOIN_MARGIN_MS = 5_000
"""A JoinGroup may be parked for the rebalance timeout; its answer gets this much longer (Java's JOIN_GROUP_TIMEOUT)."""


class Phase(Enum):
    OUTSIDE = "outside"
    LETTING_GO = "letting go"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    ENDED = "ended"


# -- what comes out


@dataclass(frozen=True, slots=True)
class LetGo:
    """The group rebalances. The member still owns `assignment`, for commits; call `let_go` when done."""

    generation_id: int
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Assign:
    """This member leads the generation: call `assign` with the assignment of every member."""

    generation_id: int
    protocol: str
    members: tuple[JoinGroupResponseMember, ...]


@dataclass(frozen=True, slots=True)
class Assigned:
    """The member owns the assignment, in this generation."""

    generation_id: int
    member_id: str
    leads: bool
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """The member does not own the assignment any more. It joins again, by itself if `rejoins`."""

    generation_id: int
    assignment: bytes
    reason: str


Action = Ask | FindCoordinator | LetGo | Assign | Assigned | Lost | Ended


class Membership:
    """See the module docstring. After every call, carry out the actions of `take`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.phase = Phase.OUTSIDE
        self.member_id = ""
        self.generation_id = -1
        self._requests = CoordinatorRequests(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms))
        self._owned: bytes | None = None
        """The assignment, while the member owns it."""
        self._kept: tuple[int, bytes] | None = None
        """Without `rejoins`: generation and assignment of the last `let_go`, until the next assignment, or Lost."""
        self._granted: bytes | None = None
        """An assignment that came so late that a heartbeat must confirm it."""
        self._protocol: str | None = None
        self._leads = False
        self._assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        self._reason = ""
        """The reason of a join or leave, for the coordinator's log (KIP-800)."""
        self._heartbeat_at: Millis | None = None
        self._session_ends_at: Millis | None = None
        self._lease_ends_at: Millis = 0
        self._undisturbed_at: Millis = 0
        """When the last request was sent whose answer reported no rebalance. A rebalance that runs now began later."""

    # -- what the application does

    def join(self, now: Millis, reason: str = "") -> None:
        """Become a member. Not possible once the membership has ended."""
        if self.phase is not Phase.OUTSIDE:
            raise ValueError(f"join: the member is {self.phase.value}")
        self._reason = reason
        self._enter(Phase.JOINING, now)

    def subscribe(self, protocols: Sequence[Protocol], now: Millis, reason: str = "the subscription changed") -> None:
        """Change the protocols or the subscription; a member of a group makes it rebalance."""
        self.settings = replace(self.settings, protocols=tuple(protocols))
        if self.phase in (Phase.JOINING, Phase.ASSIGNING, Phase.SYNCING, Phase.STABLE):
            self._reason = reason
            self._rebalance(now)

    def let_go(self, now: Millis) -> None:
        """The application has stopped work on the assignment of the last LetGo. Ignored if that is out of date."""
        if self.phase is Phase.LETTING_GO:
            if not self.settings.keeps:
                if self._owned is not None and not self.settings.rejoins:
                    self._kept = self.generation_id, self._owned
                self._owned = None
            self._enter(Phase.JOINING, now)

    def assign(self, generation_id: int, assignments: Mapping[str, bytes], now: Millis) -> None:
        """The leader's answer to Assign: assignments by member id. Ignored if the generation is over."""
        if self.phase is Phase.ASSIGNING and generation_id == self.generation_id:
            self._assignments = tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            )
            self._enter(Phase.SYNCING, now)

    def leave(self, now: Millis, reason: str = "", *, static_too: bool = False) -> None:
        """Give everything up. A static member sends nothing, so that it may come back, unless `static_too`."""
        if self.phase is Phase.ENDED:
            return None
        self._lose("it leaves")
        self._lease_ends_at = 0
        silent = self.settings.instance_id is not None and not static_too
        if silent or not self.member_id or not self._requests.coordinator_known:
            return self._end(ErrorCode.NONE)
        self._reason = reason
        return self._enter(Phase.LEAVING, now)

    def commit_answered(self, error: int, generation_id: int, now: Millis) -> None:
        """The error of an OffsetCommit that was sent in this member's name, in this generation."""
        if generation_id == self.generation_id and self.phase in (Phase.STABLE, Phase.LETTING_GO):
            reaction = COMMIT_REACTIONS.get(error)
            if reaction is not None:
                self._react(reaction, error, now, 0.5)

    # -- what the edge calls

    def coordinator_found(self, now: Millis) -> None:
        """There is a connection to the coordinator."""
        if self._requests.found():
            self._ask(now)

    def failed(self, now: Millis, chance: float = 0.5) -> None:
        """The connection to the coordinator broke, or the request under way got no answer in time."""
        self._requests.coordinator_known = False
        if self.phase is Phase.LEAVING:
            self._end(ErrorCode.NONE)  # the coordinator removes it when its session ends
        elif self.phase not in (Phase.OUTSIDE, Phase.ENDED):
            self._requests.failed(now, chance)

    def received(self, number: int, response: Any, now: Millis, chance: float = 0.5) -> None:
        """The answer to the Ask with this number."""
        if not self._requests.answered(number):
            return
        match response:
            case JoinGroupResponse(error_code=ErrorCode.NONE):
                self._joined(response, now)
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = response.member_id
                self._ask(now)
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                self._synced(response, now)
            case HeartbeatResponse(error_code=ErrorCode.NONE):
                self._alive(now)
                self._own_granted()
            case HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS):
                self._alive(now, rebalancing=True)
                self._rebalance(now)
            case LeaveGroupResponse():
                self._end(ErrorCode.NONE)
            case _:
                reaction = REACTIONS[type(response)].get(response.error_code, Reaction.END)
                self._react(reaction, response.error_code, now, chance)

    def wake(self, now: Millis, chance: float = 0.5) -> None:
        """`next_deadline()` has come; an early call does no harm."""
        if self._session_ends_at is not None and now >= self._session_ends_at:
            self._requests.coordinator_known = False
            self._join_again("the coordinator did not answer for as long as the session", now)
        kept_until = self._kept_until()
        if kept_until is not None and now >= kept_until:
            self._join_again("the coordinator was out of reach for as long as the session", now)
        if self._requests.timed_out(now):
            self.failed(now, chance)
        if self._requests.retry_due(now):
            self._ask(now)
        if self._heartbeat_at is not None and now >= self._heartbeat_at and not self._requests.awaits_answer:
            self._ask(now)

    def next_deadline(self) -> Millis | None:
        """When `wake` is due."""
        requests = self._requests
        heartbeat = None if requests.awaits_answer or not requests.coordinator_known else self._heartbeat_at
        return earliest(self._session_ends_at, self._kept_until(), requests.timeout_at, requests.retry_at, heartbeat)

    @property
    def heartbeat_interval_ms(self) -> Millis:
        return self.settings.heartbeat_interval_ms

    def owns(self, now: Millis) -> bool:
        """Whether the member owns the assignment at this instant: it does not once its session has ended by its own
        clock, even if no call has noticed that yet."""
        return self._owned is not None and self._session_ends_at is not None and now < self._session_ends_at

    def lease_left(self, now: Millis) -> Millis:
        """For how long at least the coordinator keeps this member: a session, counted from the last accepted request.

        It counts also while the group rebalances. A member that does not join again is removed when the rebalance
        timeout ends, and so does the lease. The lease can last over a rebalance if the rebalance timeout is at least
        twice the session."""
        return max(self._lease_ends_at - now, 0)

    def take(self) -> list[Action]:
        """The actions since the last call, in order."""
        return self._requests.take()

    # -- phases

    def _enter(self, phase: Phase, now: Millis) -> None:
        self.phase = phase
        self._granted = None
        self._requests.reset()
        if phase not in (Phase.LETTING_GO, Phase.ASSIGNING, Phase.STABLE):
            self._heartbeat_at = None
            self._session_ends_at = None
        if phase in (Phase.JOINING, Phase.SYNCING, Phase.LEAVING):
            self._ask(now)

    def _joined(self, response: JoinGroupResponse, now: Millis) -> None:
        self._requests.failures = 0
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        self._protocol = response.protocol_name
        self._leads = response.leader == response.member_id
        self._assignments = ()
        self._reason = ""
        if not self._leads or response.skip_assignment:
            return self._enter(Phase.SYNCING, now)
        self._enter(Phase.ASSIGNING, now)
        self._heartbeat_at = now + self.settings.heartbeat_interval_ms
        self._requests.actions.append(Assign(self.generation_id, response.protocol_name or "", response.members))
        return None

    def _synced(self, response: SyncGroupResponse, now: Millis) -> None:
        if response.protocol_name is not None and response.protocol_name != self._protocol:
            return self._end(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._enter(Phase.STABLE, now)
        self._granted = response.assignment
        if now < self._requests.sent_at + self.settings.session_timeout_ms:
            self._alive(now)
            self._heartbeat_at = now
            return self._own_granted()
        # The request or its answer took longer than a session; a heartbeat finds out whether the member still exists.
        return self._ask(now)

    def _own_granted(self) -> None:
        if self._granted is not None:
            self._owned, self._granted, self._kept = self._granted, None, None
            leads, protocol = self._leads, self._protocol or ""
            self._requests.actions.append(Assigned(self.generation_id, self.member_id, leads, protocol, self._owned))

    def _alive(self, now: Millis, *, rebalancing: bool = False) -> None:
        """A request was accepted: the coordinator counts the session from a moment after it was sent.

        A member that does not join a rebalance is removed at its end, whatever its session.
        """
        self._requests.failures = 0
        self._session_ends_at = self._lease_ends_at = self._requests.sent_at + self.settings.session_timeout_ms
        if rebalancing:
            removed_at = self._undisturbed_at + self.settings.rebalance_timeout_ms
            self._lease_ends_at = min(self._lease_ends_at, removed_at)
        else:
            self._undisturbed_at = self._requests.sent_at
        interval = self.settings.heartbeat_interval_ms
        held = now - self._requests.sent_at > interval // 2
        self._heartbeat_at = now if held else self._requests.sent_at + interval

    def _kept_until(self) -> Millis | None:
        """When an assignment kept over a rebalance is lost, unless a request reaches the coordinator first."""
        rejoins = self.phase in (Phase.JOINING, Phase.SYNCING) and not self._requests.awaits_answer
        return self._lease_ends_at if rejoins and self._owned is not None else None

    @property
    def _is_kept(self) -> bool:
        """True if the application keeps its assignment while the group rebalances."""
        return self._kept is not None or (self.settings.keeps and self._owned is not None)

    def _rebalance(self, now: Millis) -> None:
        if self._owned is None:
            return self._enter(Phase.JOINING, now)
        if self.phase is not Phase.LETTING_GO:
            self._enter(Phase.LETTING_GO, now)
            self._requests.actions.append(LetGo(self.generation_id, self._owned))
        return None

    def _lose(self, reason: str) -> None:
        lost = self._kept if self._owned is None else (self.generation_id, self._owned)
        self._owned = self._kept = None
        if lost is not None:
            self._requests.actions.append(Lost(*lost, reason))

    def _join_again(self, reason: str, now: Millis) -> None:
        had = self._owned is not None or self._kept is not None
        self._lease_ends_at = 0
        self._lose(reason)
        self._enter(Phase.OUTSIDE if had and not self.settings.rejoins else Phase.JOINING, now)

    def _end(self, error: int) -> None:
        self._lose("the membership is over")
        self._lease_ends_at = 0
        self.phase = Phase.ENDED
        self._requests.reset()
        self._heartbeat_at = self._session_ends_at = None
        self._requests.actions.append(Ended(error))

    # -- errors

    def _react(self, reaction: Reaction, error: int, now: Millis, chance: float) -> None:
        match reaction:
            case Reaction.RETRY:
                self._requests.retry_later(now, chance)
            case Reaction.REDISCOVER:
                self.failed(now, chance)
            case Reaction.REBALANCE:
                self._rebalance(now)
            case Reaction.REJOIN if self._is_kept and error == ErrorCode.REBALANCE_IN_PROGRESS:
                self._enter(Phase.JOINING, now)
            case Reaction.REJOIN:
                self._join_again(f"error {error}", now)
            case Reaction.FORGET:
                self.member_id = ""
                self._join_again(f"error {error}", now)
                self.generation_id = -1
            case Reaction.END:
                self._end(error)

    # -- requests

    def _ask(self, now: Millis) -> None:
        """Send the request of this phase, or look for the coordinator."""
        if self.phase in (Phase.OUTSIDE, Phase.ENDED) or not self._requests.ready():
            return
        timeout = self.settings.request_timeout_ms
        if self.phase is Phase.JOINING:
            timeout = max(timeout, self.settings.rebalance_timeout_ms + JOIN_MARGIN_MS)
        self._requests.send(self._request(), now, timeout)

    def _request(self) -> Any:
        settings = self.settings
        group_id, member_id, instance_id = settings.group_id, self.member_id, settings.instance_id
        match self.phase:
            case Phase.JOINING:
                offered = (JoinGroupRequestProtocol(name=p.name, metadata=p.metadata) for p in settings.protocols)
                return JoinGroupRequest(
                    group_id=group_id,
                    session_timeout_ms=settings.session_timeout_ms,
                    rebalance_timeout_ms=settings.rebalance_timeout_ms,
                    member_id=member_id,
                    group_instance_id=instance_id,
                    protocol_type=settings.protocol_type,
                    protocols=tuple(offered),
                    reason=self._reason or None,
                )
            case Phase.SYNCING:
                return SyncGroupRequest(
                    group_id=group_id,
                    generation_id=self.generation_id,
                    member_id=member_id,
                    group_instance_id=instance_id,
                    protocol_type=settings.protocol_type,
                    protocol_name=self._protocol,
                    assignments=self._assignments,
                )
            case Phase.LETTING_GO | Phase.ASSIGNING | Phase.STABLE:
                return HeartbeatRequest(
                    group_id=group_id,
                    generation_id=self.generation_id,
                    member_id=member_id,
                    group_instance_id=instance_id,
                )
            case Phase.LEAVING:
                only = MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=self._reason or None)
                return LeaveGroupRequest(group_id=group_id, member_id=member_id, members=(only,))
        raise AssertionError(self.phase)
