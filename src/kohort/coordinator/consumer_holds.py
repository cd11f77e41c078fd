"""Held heartbeats of consumer groups: an answer with nothing to say waits until it has something to say.

So a member learns the moment something changes for it, and not an interval later. The answer leaves when its member has
partitions to give up or to take, when another request arrives behind it, or when its time is up. That time is below the
heartbeat interval and a third of the session.

Between an answer and its next heartbeat a member is out of reach, so it shall come back soon, and is told a short
interval. A patient client waits for an answer much longer than that, so its heartbeats are held all the same. Others
time a heartbeat out after the interval that they were told, librdkafka for one: they are told the whole interval, and
a short one, with which they poll, only while they are busy: they sent another request behind a held heartbeat, as those
do that commit, and ended the hold. What that costs is bounded: the more busy members in the shard, the longer it is.

Never held: a first heartbeat, a leave, the heartbeat of a member that owes a revocation. Clients acknowledge with their
next heartbeat, and send none while one is in flight.
"""

from __future__ import annotations

from kohort.coordinator.classic_member import is_classic, must_rejoin, session_timeout_of
from kohort.coordinator.consumer_responses import heartbeat_answer, heartbeat_error
from kohort.coordinator.consumer_running import ASSIGN, HOLD, RunningConsumers
from kohort.coordinator.consumer_state import ConsumerGroup
from kohort.coordinator.events import GroupRequested, Millis, Reply, RequestId
from kohort.coordinator.reconciliation import MemberState, Reconciliation
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatResponse

WAITING_INTERVAL_MS = 250
"""What a member that waits for partitions is told to heartbeat at: a first heartbeat cannot be held until they come."""

SOON_MS = 250
BUSY_SHARE_MS = 20
"""Who shall come back soon is told to heartbeat at SOON_MS, and at so much for each busy member of the shard."""
BUSY_FOR_MS = 20_000
"""How long a member stays busy after what it sent last. Clients that commit by themselves do so every 5 s."""

PATIENT_CLIENTS = frozenset(("apache-kafka-java", "kgo"))
"""Software names of clients whose heartbeats time out late: after request.timeout.ms (30 s) and 10 s by default."""


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

    def heard(self, group: ConsumerGroup, member_id: str, event: GroupRequested) -> None:
        """A heartbeat came, of a member that is in the group."""
        if event.hold_ms > 0 and event.client.software_name in PATIENT_CLIENTS:
            self._patient.add((group.group_id, member_id))

    def time_for(self, group: ConsumerGroup, member_id: str, state: MemberState, allowed_ms: Millis) -> Millis:
        """How long the answer may be held; 0: not at all. A new epoch alone is no hurry: the member's commits are
        accepted with the old one, and after an answer it is out of reach for an interval."""
        settings = self._consumers.settings(group)
        if state.state is Reconciliation.UNREVOKED_PARTITIONS or not settings.heartbeat_hold_enable:
            return 0
        key = (group.group_id, member_id)
        told = settings.heartbeat_interval_ms if key in self._patient else self._told.get(key, 0)
        return min(allowed_ms, told - max(500, told // 10), settings.session_timeout_ms // 3)

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

    def hold(self, group: ConsumerGroup, member_id: str, request_id: RequestId, until: Millis) -> None:
        self.held[group.group_id, member_id] = request_id
        self._running.parked[request_id] = (group.group_id, member_id)
        self._running.deadlines.set((HOLD, group.group_id, member_id), until)

    def of(self, group: ConsumerGroup, member_id: str) -> RequestId | None:
        return self.held.get((group.group_id, member_id))

    def let_go(self, group: ConsumerGroup, member_id: str, now: Millis, *, tell: bool = False) -> None:
        """Answer the member's held heartbeat, if there is one, with what there is."""
        request_id = self.of(group, member_id)
        if request_id is None or not self._release(group.group_id, member_id, request_id):
            return
        if is_classic(group.members[member_id]):
            error = ErrorCode.REBALANCE_IN_PROGRESS if must_rejoin(group, member_id) else ErrorCode.NONE
            self._running.out.replies.append(Reply(request_id, HeartbeatResponse(error_code=error)))
        else:
            self.answer(request_id, group, member_id, group.state_of(member_id), now, tell=tell)

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
    ) -> None:
        """`tell`: also what the member may use; it knows already otherwise."""
        settings = self._consumers.settings(group)
        interval = settings.heartbeat_interval_ms
        key = (group.group_id, member_id)
        if state.state is Reconciliation.UNRELEASED_PARTITIONS or group.is_pending(member_id):
            interval = min(interval, WAITING_INTERVAL_MS)
        elif group.epoch > group.assignment_epoch:
            due = self._running.deadlines.get((ASSIGN, group.group_id, ""))
            interval = min(interval, max(WAITING_INTERVAL_MS, 0 if due is None else due - now))
        elif settings.heartbeat_hold_enable and self._shall_return(key, state, now, tell=tell):
            interval = min(interval, max(SOON_MS, BUSY_SHARE_MS * len(self._busy)))
        self._told[key] = interval
        answer = heartbeat_answer(member_id, state.member_epoch, interval, state.assigned if tell else None)
        self._running.out.replies.append(Reply(request_id, answer))

    def _release(self, group_id: str, member_id: str, request_id: RequestId) -> bool:
        """Whether somebody still waits for the answer."""
        del self.held[group_id, member_id]
        self._running.deadlines.clear((HOLD, group_id, member_id))
        return self._running.parked.pop(request_id, None) is not None

    def committed(self, group_id: str, member_id: str, now: Millis) -> None:
        """A member that is busy stays so."""
        if self._busy.pop((group_id, member_id), None) is not None:
            self._busy[group_id, member_id] = now

    def _shall_return(self, key: tuple[str, str], state: MemberState, now: Millis, *, tell: bool) -> bool:
        while self._busy and now - self._busy[oldest := next(iter(self._busy))] >= BUSY_FOR_MS:
            del self._busy[oldest]
        if state.state is Reconciliation.UNREVOKED_PARTITIONS:
            return False  # It acknowledges by itself, and cannot while another heartbeat is under way.
        if tell and not state.assigned and key in self._patient:
            self._busy[key] = now  # kgo asks for all each time while it has nothing; such heartbeats are not held.
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
            self._busy.pop((group_id, member_id), None)
            self._busy[group_id, member_id] = now
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
