"""Held heartbeats of consumer groups: an answer with nothing to say waits until it has something to say.

So a member learns the moment something changes for it, and not an interval later. The answer leaves when its member has
partitions to give up or to take, when another request arrives behind it, or when its time is up. That time is below the
heartbeat interval and a third of the session.

Between an answer and its next heartbeat a member is out of reach, so it shall come back soon, and is told a short
interval. A patient client waits for an answer much longer than that, so its heartbeats are held all the same. Others
are not held beyond the interval that they were told: librdkafka times a heartbeat out then, and the thread that sends
Java's does not sleep any more (before Kafka 4.4). They are told the whole interval, and a short one, most or half of
which is a hold, only while they are busy: they sent another request behind a held heartbeat, as those do that commit,
and ended the hold. What that costs is bounded: the more busy members in the shard, the longer it is.

A first heartbeat that gets nothing because others must give it up first is held too: until all is there, for a moment
longer than the first of it, half a second at most. A client has no interval yet that would bound the time, does not
acknowledge that it has nothing, and would have to poll. Only where the client made its member id: it could not say who
it is if it missed the answer otherwise.

Never held: a leave, the heartbeat of a member that owes a revocation, an acknowledgement that is older than what its
member was told last. Clients acknowledge with their next heartbeat, send none while one is in flight, and librdkafka
begins with what it was told last when the older acknowledgement is answered.
"""

from __future__ import annotations

from kohort.coordinator.consumer.classic_fields import is_classic, session_timeout_of
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation
from kohort.coordinator.consumer.responses import heartbeat_answer, heartbeat_error
from kohort.coordinator.consumer.soft_state import ASSIGN, HOLD, RunningConsumers
from kohort.coordinator.events import GroupRequested, Millis, Reply, RequestId
from kohort.coordinator.migration.classic_side import must_rejoin
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatResponse

WAITING_INTERVAL_MS = 250
"""What a member that has nothing and waits for partitions is told to heartbeat at."""
JOIN_HOLD_MS = 500
GATHER_MS = 50
"""For how long the first partitions of a member that joins wait for more."""

SOON_MS = 250
BUSY_MS = 500
BUSY_SHARE_MS = 20
"""Who shall come back soon is told to heartbeat at SOON_MS when it is held beyond that, at BUSY_MS when it is not, and
at so much for each busy member of the shard."""
ON_HOLD_MS = 1_000
"""What a member without partitions is told during a rollout hold, which may be released any moment; more in a large
group."""
BUSY_FOR_MS = 20_000
"""How long a member stays busy after what it sent last. Clients that commit by themselves do so every 5 s."""

PATIENT_CLIENTS = frozenset(("kgo",))
"""Software names of clients that wait for an answer longer than the told interval (10 s), and sleep meanwhile."""
CLOSE_CLIENTS = frozenset(("apache-kafka-java",))
"""Of clients whose heartbeats do not time out with the told interval, so that a hold may come close to it."""
MARGIN_MS, CLOSE_MARGIN_MS = 500, 100
"""What is left of the interval after a hold: a tenth, at least so much, but of a short interval half."""


class Holds:
    def __init__(self, consumers: RunningConsumers) -> None:
        self._consumers = consumers
        self._running = consumers.running
        self.held: dict[tuple[str, str], RequestId] = {}
        """Held heartbeats: group and member."""
        self._told: dict[tuple[str, str], Millis] = {}
        """The interval that each member was told last."""
        self._busy: dict[tuple[str, str], Millis] = {}
        """Members that sent something behind a held heartbeat: when they did or committed last; the oldest first."""
        self._patient: set[tuple[str, str]] = set()
        """Members with a patient client."""
        self._heard: dict[tuple[str, str], Millis] = {}
        """When the last heartbeat of a member that speaks the classic protocol came."""
        self._joining: set[tuple[str, str]] = set()
        """Whose held heartbeat is the first."""

    def heard(self, group: ConsumerGroup, member_id: str, event: GroupRequested) -> None:
        """A heartbeat came, of a member that is in the group."""
        if event.hold_ms > 0 and event.client.software_name in PATIENT_CLIENTS:
            self._patient.add((group.group_id, member_id))

    def time_for_join(self, group: ConsumerGroup, state: MemberState, allowed_ms: Millis) -> Millis:
        """How long a first heartbeat may be held; 0: there is something to say, or nobody has to give anything up."""
        settings = self._consumers.settings(group)
        waits = state.state is Reconciliation.UNRELEASED_PARTITIONS and not state.assigned
        if not waits or not settings.heartbeat_hold_enable:
            return 0
        return min(allowed_ms, JOIN_HOLD_MS, settings.session_timeout_ms // 3)

    def time_for(self, group: ConsumerGroup, member_id: str, state: MemberState, event: GroupRequested) -> Millis:
        """How long the answer may be held; 0: not at all. A new epoch alone is no hurry: the member's commits are
        accepted with the old one, and after an answer it is out of reach for an interval."""
        settings = self._consumers.settings(group)
        if state.state is Reconciliation.UNREVOKED_PARTITIONS or not settings.heartbeat_hold_enable:
            return 0
        key = (group.group_id, member_id)
        told = settings.heartbeat_interval_ms if key in self._patient else self._told.get(key, 0)
        if told < BUSY_MS:
            return 0
        is_close = event.client.software_name in CLOSE_CLIENTS
        margin = CLOSE_MARGIN_MS if is_close else max(min(MARGIN_MS, told // 2), told // 10)
        return min(event.hold_ms, told - margin, settings.session_timeout_ms // 3)

    def time_for_classic(self, group: ConsumerGroup, member_id: str, now: Millis, allowed_ms: Millis) -> Millis:
        """The same for a member that speaks the classic protocol and did not need to hear anything: some clients count
        their interval from the answer on, so the hold and the interval that it has shown leave a third of its session
        (classic_group.py)."""
        session_ms = session_timeout_of(group.members[member_id])
        key = (group.group_id, member_id)
        interval_ms = now - self._heard.get(key, now)
        self._heard[key] = now
        if interval_ms == 0 or not self._consumers.settings(group).heartbeat_hold_enable:
            return 0
        return min(allowed_ms, session_ms // 3, session_ms * 2 // 3 - interval_ms)

    def hold(
        self, group: ConsumerGroup, member_id: str, request_id: RequestId, until: Millis, *, joins: bool = False
    ) -> None:
        key = (group.group_id, member_id)
        self.held[key] = request_id
        self._running.parked[request_id] = key
        self._running.deadlines.set((HOLD, *key), until)
        if joins:
            self._joining.add(key)

    def got(self, group: ConsumerGroup, member_id: str, state: MemberState, now: Millis) -> None:
        """The member whose heartbeat is held has partitions to give up or to take."""
        key = (group.group_id, member_id)
        until = self._running.deadlines.get((HOLD, *key))
        if key in self._joining and state.state is Reconciliation.UNRELEASED_PARTITIONS and until is not None:
            self._running.deadlines.set((HOLD, *key), min(until, now + GATHER_MS))
        else:
            self.let_go(group, member_id, now, tell=True)

    def of(self, group: ConsumerGroup, member_id: str) -> RequestId | None:
        return self.held.get((group.group_id, member_id))

    def let_go(self, group: ConsumerGroup, member_id: str, now: Millis, *, tell: bool = False) -> None:
        """Answer the member's held heartbeat, if there is one, with what there is."""
        request_id = self.of(group, member_id)
        tell |= (group.group_id, member_id) in self._joining
        if request_id is None or not self._release(group.group_id, member_id, request_id):
            return
        if is_classic(group.members[member_id]):
            error = ErrorCode.REBALANCE_IN_PROGRESS if must_rejoin(group, member_id) else ErrorCode.NONE
            self._running.out.replies.append(Reply(request_id, HeartbeatResponse(error_code=error)))
        else:
            self.answer(request_id, group, member_id, group.state_of(member_id), now, tell=tell, may_hold=True)

    def refuse(self, group_id: str, member_id: str, error: ErrorCode, message: str | None) -> None:
        request_id = self.held.get((group_id, member_id))
        if request_id is None or not self._release(group_id, member_id, request_id):
            return
        classic = is_classic(self._consumers.groups[group_id].members[member_id])
        body = HeartbeatResponse(error_code=error) if classic else heartbeat_error(error, message)
        self._running.out.replies.append(Reply(request_id, body))

    def answer(
        self,
        request_id: RequestId,
        group: ConsumerGroup,
        member_id: str,
        state: MemberState,
        now: Millis,
        *,
        tell: bool,
        may_hold: bool,
    ) -> None:
        """`tell`: also what the member may use; it knows already otherwise. `may_hold`: its next heartbeat."""
        interval = self.told_now(group, member_id, state, now, tell=tell, may_hold=may_hold)
        answer = heartbeat_answer(member_id, state.member_epoch, interval, state.assigned if tell else None)
        self._running.out.replies.append(Reply(request_id, answer))

    def told_now(
        self, group: ConsumerGroup, member_id: str, state: MemberState, now: Millis, *, tell: bool, may_hold: bool
    ) -> Millis:
        """The interval that a member is told with the answer that it gets now."""
        settings = self._consumers.settings(group)
        interval = settings.heartbeat_interval_ms
        key = (group.group_id, member_id)
        if state.state is Reconciliation.UNRELEASED_PARTITIONS or group.is_pending(member_id):
            # Who was given partitions acknowledges at once, and that heartbeat can be held.
            acknowledges = bool(state.assigned) and may_hold and settings.heartbeat_hold_enable
            interval = min(interval, BUSY_MS if acknowledges else WAITING_INTERVAL_MS)
        elif group.epoch > group.assignment_epoch:
            due = self._running.deadlines.get((ASSIGN, group.group_id, ""))
            wait = max(WAITING_INTERVAL_MS, 0 if due is None else due - now)
            if wait > interval and not state.assigned:
                wait = max(ON_HOLD_MS, BUSY_SHARE_MS * len(group.members))
            interval = min(interval, wait)
        elif settings.heartbeat_hold_enable and self._shall_return(key, state, now, tell=tell):
            soon = SOON_MS if key in self._patient else BUSY_MS
            interval = min(interval, max(soon, BUSY_SHARE_MS * len(self._busy)))
        self._told[key] = interval
        return interval

    def _release(self, group_id: str, member_id: str, request_id: RequestId) -> bool:
        """Whether somebody still waits for the answer."""
        del self.held[group_id, member_id]
        self._joining.discard((group_id, member_id))
        self._running.deadlines.clear((HOLD, group_id, member_id))
        return self._running.parked.pop(request_id, None) is not None

    def committed(self, group_id: str, member_id: str, now: Millis) -> None:
        """A member that is busy stays so."""
        if (group_id, member_id) in self._busy:
            self._keeps_busy((group_id, member_id), now)

    def _keeps_busy(self, key: tuple[str, str], now: Millis) -> None:
        self._busy.pop(key, None)  # the order is that of the times
        self._busy[key] = now

    def _shall_return(self, key: tuple[str, str], state: MemberState, now: Millis, *, tell: bool) -> bool:
        while self._busy and now - self._busy[oldest := next(iter(self._busy))] >= BUSY_FOR_MS:
            del self._busy[oldest]
        if state.state is Reconciliation.UNREVOKED_PARTITIONS:
            return False  # It acknowledges by itself, and cannot while another heartbeat is under way.
        if tell and not state.assigned and key in self._patient:
            self._keeps_busy(key, now)  # kgo asks for all each time while it has nothing; such heartbeats are not held.
        return key in self._busy or key in self._patient

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        self._busy.pop((group.group_id, member_id), None)
        self._patient.discard((group.group_id, member_id))
        self._told.pop((group.group_id, member_id), None)
        self._heard.pop((group.group_id, member_id), None)

    # -- by the request

    def holds(self, request_id: RequestId) -> bool:
        found = self._running.parked.get(request_id)
        return found is not None and self.held.get(found) == request_id

    def answer_held(self, request_id: RequestId, now: Millis) -> None:
        """Something else came behind the heartbeat."""
        group_id, member_id = self._running.parked[request_id]
        group = self._consumers.groups[group_id]
        if not is_classic(group.members[member_id]):
            self._keeps_busy((group_id, member_id), now)
        self.let_go(group, member_id, now)

    def abandon(self, request_id: RequestId) -> None:
        """Nobody waits for the held answer any more."""
        self._release(*self._running.parked[request_id], request_id)

    def unload(self) -> None:
        for group_id, member_id in list(self.held):
            self.refuse(group_id, member_id, ErrorCode.NOT_COORDINATOR, None)
        self._told.clear()
        self._busy.clear()
        self._patient.clear()
        self._heard.clear()
