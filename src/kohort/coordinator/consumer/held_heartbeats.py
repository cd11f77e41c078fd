"""Held heartbeats of consumer groups: an answer without news is held until there is news.

So a member learns of a change at once, and not an interval later. The answer leaves when the member has partitions to
give up or to take, when another request arrives behind the heartbeat, or when the hold is over. A hold is shorter than
the heartbeat interval and than a third of the session.

Between an answer and the next heartbeat the coordinator cannot reach a member, so it asks for the next heartbeat
soon, by a short interval in the answer. A patient client waits for an answer much longer than that interval, so its
heartbeats are held all the same. The heartbeats of other clients are not held beyond the interval that they got,
because librdkafka's heartbeat times out then, and Java's heartbeat thread stops sleeping (before Kafka 4.4). These
clients get the whole interval. Only while they are busy they get a short interval, and half of it or more is a hold.
A client is busy when it sent another request behind a held heartbeat and so ended the hold, as clients that commit
do. The cost is bounded: the interval grows with the number of busy members in the shard.

A first heartbeat that gets no partition because others must revoke it first is held too: until all partitions are
there, for at most GATHER_MS after the first of them, and for half a second at most. The client has no interval yet that
would bound the hold, does not acknowledge an empty assignment, and would have to poll. This hold needs a member id that
the client made: a client that missed the answer could not name itself otherwise.

Never held: a leave, the heartbeat of a member that owes a revocation, and an acknowledgement of an assignment older
than the one in the last answer. Clients acknowledge with their next heartbeat, send none while one is in flight, and
librdkafka begins with the newer assignment when the older acknowledgement is answered.
"""

from __future__ import annotations

from kohort.coordinator.classic.responses import heartbeat_error
from kohort.coordinator.consumer.classic_fields import is_classic, session_timeout_of
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation
from kohort.coordinator.consumer.responses import heartbeat_answer
from kohort.coordinator.consumer.soft_state import ASSIGN, HOLD, RunningConsumers, RunningMember
from kohort.coordinator.events import GroupRequested, Millis, Reply, RequestId
from kohort.coordinator.migration.classic_side import must_rejoin
from kohort.wire.errors import ErrorCode
from kohort.wire.known_clients import CLOSE_CLIENTS, PATIENT_CLIENTS
from kohort.wire.schemas.heartbeat import HeartbeatResponse

WAITING_INTERVAL_MS = 250
"""The interval for a member that has no partitions and waits for some."""
JOIN_HOLD_MS = 500
GATHER_MS = 50
"""How long the first partitions of a joining member wait for more."""

SOON_MS = 250
BUSY_MS = 500
BUSY_SHARE_MS = 20
"""The interval for a member that is asked back soon: SOON_MS when its heartbeat is held beyond the interval, BUSY_MS
when it is not, and at least BUSY_SHARE_MS for each busy member of the shard."""
FROZEN_MS = 1_000
"""The interval for a member without partitions during a rollout freeze, which may be released any moment; longer in a
large group."""
BUSY_FOR_MS = 20_000
"""How long a member stays busy after its last request. Clients that commit by themselves do so every 5 s."""

SHORT_MS, CLOSE_MARGIN_MS = 1_500, 100
"""The rest of the interval after a hold is a third, because a loaded client takes long to read an answer; of an
interval below SHORT_MS it is half, and CLOSE_MARGIN_MS for CLOSE_CLIENTS."""


class Holds:
    def __init__(self, consumers: RunningConsumers) -> None:
        self._consumers = consumers
        self._running = consumers.running
        self.count = 0
        """Held heartbeats in the shard."""

    # -- how long

    def notice_client(self, member: RunningMember, event: GroupRequested) -> None:
        if event.hold_ms > 0 and event.client.software_name in PATIENT_CLIENTS:
            member.is_patient = True

    def time_for_join(self, group: ConsumerGroup, state: MemberState, allowed_ms: Millis) -> Millis:
        """How long a first heartbeat may be held; 0 if the member gets partitions or waits for no other member."""
        settings = self._consumers.settings(group)
        waits = state.state is Reconciliation.UNRELEASED_PARTITIONS and not state.assigned
        if not waits or not settings.heartbeat_hold_enable:
            return 0
        return min(allowed_ms, JOIN_HOLD_MS, settings.session_timeout_ms // 3)

    def time_for(
        self, group: ConsumerGroup, member: RunningMember, state: MemberState, event: GroupRequested
    ) -> Millis:
        """How long the answer may be held; 0: not at all. A new epoch alone does not end a hold: the member's commits
        are accepted with the old one, and after an answer the member is out of reach for an interval."""
        settings = self._consumers.settings(group)
        if state.state is Reconciliation.UNREVOKED_PARTITIONS or not settings.heartbeat_hold_enable:
            return 0
        told = settings.heartbeat_interval_ms if member.is_patient else member.interval_ms
        if told < BUSY_MS:
            return 0
        is_close = event.client.software_name in CLOSE_CLIENTS
        margin = CLOSE_MARGIN_MS if is_close else told // (3 if told >= SHORT_MS else 2)
        return min(event.hold_ms, told - margin, settings.session_timeout_ms // 3)

    def time_for_classic(self, group: ConsumerGroup, member: RunningMember, now: Millis, allowed_ms: Millis) -> Millis:
        """The same for a heartbeat of the classic protocol that is answered with no error. Some clients count their
        interval from the answer on, so the hold and the observed interval together leave a third of the session
        (classic/requests.py)."""
        session_ms = session_timeout_of(group.members[member.member_id])
        interval_ms = 0 if member.heartbeat_ms is None else now - member.heartbeat_ms
        member.heartbeat_ms = now
        if interval_ms == 0 or not self._consumers.settings(group).heartbeat_hold_enable:
            return 0
        return min(allowed_ms, session_ms // 3, session_ms * 2 // 3 - interval_ms)

    # -- hold and release

    def hold(
        self, group: ConsumerGroup, member: RunningMember, request_id: RequestId, until: Millis, *, joins: bool = False
    ) -> None:
        key = (group.group_id, member.member_id)
        member.held = request_id
        member.holds_join = joins
        self.count += 1
        self._running.parked[request_id] = key
        self._running.deadlines.set((HOLD, *key), until)

    def partitions_changed(self, group: ConsumerGroup, member: RunningMember, state: MemberState, now: Millis) -> None:
        """Answer the held heartbeat of a member that has partitions to give up or to take. A join waits for more."""
        key = (HOLD, group.group_id, member.member_id)
        until = self._running.deadlines.get(key)
        if member.holds_join and state.state is Reconciliation.UNRELEASED_PARTITIONS and until is not None:
            self._running.deadlines.set(key, min(until, now + GATHER_MS))
        else:
            self.release(group, member, now, tell=True)

    def release(self, group: ConsumerGroup, member: RunningMember, now: Millis, *, tell: bool = False) -> None:
        """Answer the member's held heartbeat, if there is one. `tell`: with the assignment."""
        request_id = member.held
        if request_id is None:
            return
        tell |= member.holds_join
        if not self._end(group.group_id, member, request_id):
            return
        member_id = member.member_id
        if is_classic(group.members[member_id]):
            error = ErrorCode.REBALANCE_IN_PROGRESS if must_rejoin(group, member_id) else ErrorCode.NONE
            self._running.out.replies.append(Reply(request_id, HeartbeatResponse(error_code=error)))
        else:
            self.answer(request_id, group, member, group.state_of(member_id), now, tell=tell, may_hold=True)

    def refuse(self, group_id: str, member_id: str, error: ErrorCode, message: str | None) -> None:
        """Answer the member's held heartbeat, if there is one, with an error."""
        member = self._consumers.find_member(group_id, member_id)
        if member is None or member.held is None:
            return
        request_id = member.held
        if self._end(group_id, member, request_id):
            classic = is_classic(self._consumers.groups[group_id].members[member_id])
            body = HeartbeatResponse(error_code=error) if classic else heartbeat_error(error, message)
            self._running.out.replies.append(Reply(request_id, body))

    def _end(self, group_id: str, member: RunningMember, request_id: RequestId) -> bool:
        """Returns whether the request is still to be answered."""
        member.held = None
        member.holds_join = False
        self.count -= 1
        self._running.deadlines.clear((HOLD, group_id, member.member_id))
        return self._running.parked.pop(request_id, None) is not None

    # -- answers

    def answer(
        self,
        request_id: RequestId,
        group: ConsumerGroup,
        member: RunningMember,
        state: MemberState,
        now: Millis,
        *,
        tell: bool,
        may_hold: bool,
    ) -> None:
        """`tell`: with the assignment; otherwise the member knows it. `may_hold`: the next heartbeat may be held."""
        interval = self.next_interval(group, member, state, now, tell=tell, may_hold=may_hold)
        answer = heartbeat_answer(member.member_id, state.member_epoch, interval, state.assigned if tell else None)
        self._running.out.replies.append(Reply(request_id, answer))

    def next_interval(
        self,
        group: ConsumerGroup,
        member: RunningMember,
        state: MemberState,
        now: Millis,
        *,
        tell: bool,
        may_hold: bool,
    ) -> Millis:
        """The heartbeat interval for the answer that the member gets now."""
        settings = self._consumers.settings(group)
        interval = settings.heartbeat_interval_ms
        if not self._running.deviations.soon_again:
            member.interval_ms = interval
            return interval
        if state.state is Reconciliation.UNRELEASED_PARTITIONS or group.is_pending(member.member_id):
            # A member that was given partitions acknowledges at once, and that heartbeat can be held.
            acknowledges = bool(state.assigned) and may_hold and settings.heartbeat_hold_enable
            interval = min(interval, BUSY_MS if acknowledges else WAITING_INTERVAL_MS)
        elif group.epoch > group.assignment_epoch:
            due = self._running.deadlines.get((ASSIGN, group.group_id, ""))
            wait = max(WAITING_INTERVAL_MS, 0 if due is None else due - now)
            if wait > interval and not state.assigned:
                wait = max(FROZEN_MS, BUSY_SHARE_MS * len(group.members))
            interval = min(interval, wait)
        elif settings.heartbeat_hold_enable and self._is_asked_back_soon(member, state, now, tell=tell):
            soon = SOON_MS if member.is_patient else BUSY_MS
            interval = min(interval, max(soon, BUSY_SHARE_MS * len(self._consumers.busy)))
        member.interval_ms = interval
        return interval

    def _is_asked_back_soon(self, member: RunningMember, state: MemberState, now: Millis, *, tell: bool) -> bool:
        busy = self._consumers.busy
        while busy and now - busy[oldest := next(iter(busy))] >= BUSY_FOR_MS:
            del busy[oldest]
        if state.state is Reconciliation.UNREVOKED_PARTITIONS:
            return False  # The member acknowledges by itself, and cannot while another heartbeat is under way.
        if tell and not state.assigned and member.is_patient:
            self._stays_busy(member, now)  # kgo sends full heartbeats while it has no partitions; these are not held.
        return member in busy or member.is_patient

    # -- busy members

    def committed(self, group_id: str, member_id: str, now: Millis) -> None:
        """A busy member that commits stays busy."""
        if self._consumers.busy:
            member = self._consumers.find_member(group_id, member_id)
            if member is not None and member in self._consumers.busy:
                self._stays_busy(member, now)

    def _stays_busy(self, member: RunningMember, now: Millis) -> None:
        self._consumers.busy.pop(member, None)  # the order is that of the times
        self._consumers.busy[member] = now

    # -- by the request

    def holds(self, request_id: RequestId) -> bool:
        return self._holder(request_id) is not None

    def _holder(self, request_id: RequestId) -> RunningMember | None:
        group_id, member_id = self._running.parked.get(request_id, ("", ""))
        member = self._consumers.find_member(group_id, member_id)
        return member if member is not None and member.held == request_id else None

    def request_behind(self, request_id: RequestId, now: Millis) -> None:
        """Another request arrived behind this held heartbeat: answer it, and count its member as busy."""
        group_id, member_id = self._running.parked[request_id]
        group = self._consumers.groups[group_id]
        member = self._consumers.of(group).member(member_id)
        if not is_classic(group.members[member_id]):
            self._stays_busy(member, now)
        self.release(group, member, now)

    def abandon(self, request_id: RequestId) -> None:
        """The connection of this held heartbeat is gone."""
        group_id, _ = self._running.parked[request_id]
        member = self._holder(request_id)
        assert member is not None
        self._end(group_id, member, request_id)

    def unload(self) -> None:
        for request_id, (group_id, member_id) in list(self._running.parked.items()):
            if self.holds(request_id):
                self.refuse(group_id, member_id, ErrorCode.NOT_COORDINATOR, None)
