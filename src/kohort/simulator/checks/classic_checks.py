"""Classic groups: the journal, the answers and the durable records must agree.

A group's facts (facts.py) follow the journal and the answers. A check that needs the running group itself reads only
its phase, its members and the ids that the coordinator has given out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from kohort.broker.broker import Broker
from kohort.config import Config
from kohort.coordinator.classic.group import Group
from kohort.coordinator.events import JournalEntry
from kohort.coordinator.shard import Shard
from kohort.simulator.checks import promises
from kohort.simulator.checks.facts import GroupFacts
from kohort.simulator.checks.ledger import Ledger
from kohort.simulator.plan import GROUPS
from kohort.simulator.world.network import Answer, Asked
from kohort.simulator.world.world import Millis, Violation, World
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import OffsetCommitKey
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest


class ClassicChecks:
    def __init__(self, world: World, config: Config, ledger: Ledger, is_other: Callable[[str], bool]) -> None:
        """`is_other`: whether a name is that of a consumer group or a mixed group."""
        self.groups: dict[str, GroupFacts] = {name: GroupFacts(name) for name in GROUPS}
        self.subscribed: frozenset[str] = frozenset()
        """Topics to which every member of the run subscribes."""
        self._world = world
        self._config = config
        self._ledger = ledger
        self._is_other = is_other
        self._told: list[JournalEntry] = []
        """The journal's entries of this turn about classic groups."""
        self._answers: Sequence[Answer] = ()
        self._least_rebalance_ms: dict[str, Millis] = {}
        """By group: the shortest rebalance timeout of the requests that have arrived."""

    def facts(self, name: str) -> GroupFacts:
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = GroupFacts(name)
            found.least_rebalance_ms = self._least_rebalance_ms.get(name, found.least_rebalance_ms)
        return found

    def reload(self, broker: Broker, facts: GroupFacts) -> None:
        """The group's shard loads its log: only the members of the last synced generation remain."""
        facts.unsettled = True
        facts.nonempty_at = -(1 << 60)
        if broker.state.shards:
            stored = self._ledger.folds[broker.state.shard_of(facts.name)].groups.get(facts.name)
            facts.reload([] if stored is None else [member.member_id for member in stored.members])

    # -- a turn

    def turn_begins(self, broker: Broker, *, loading: bool, moved: Container[int]) -> None:
        for facts in self.groups.values():
            facts.generations = {facts.current}
            facts.unsettled = loading
            if moved and broker.state.shard_of(facts.name) in moved:
                self.reload(broker, facts)

    def give_time(self, lost_ms: Millis) -> None:
        """The server was paused: the members get this time, and no more."""
        for facts in self.groups.values():
            facts.rebalance_started += lost_ms
            facts.generation_began += lost_ms
            facts.pending = {member_id: until + lost_ms for member_id, until in facts.pending.items()}
            for member in facts.members.values():
                member.last_seen += lost_ms

    def decided(self, told: Sequence[JournalEntry], answers: Sequence[Answer], now: Millis) -> None:
        """The turn's journal entries and answers; the checks of single answers follow."""
        self._told = [entry for entry in told if not self._is_other(entry.group)]
        self._answers = answers
        for entry in self._told:
            if entry.what in ("generation began", "group is empty"):
                self._generation(entry, now)
            elif entry.what == "member joined":
                self.facts(entry.group).joining.add(entry.member_id)
        for facts in self.groups.values():
            facts.quiet = not facts.unsettled and all(entry.group != facts.name for entry in self._told)

    def asked(self, asked: Asked) -> None:
        """A request arrived. Its client may be gone before the answer."""
        if isinstance(request := asked.request, JoinGroupRequest):
            name, asked_ms = request.group_id, request.rebalance_timeout_ms
            if asked.version < 1:
                asked_ms = request.session_timeout_ms
            least = self._least_rebalance_ms[name] = min(self._least_rebalance_ms.get(name, asked_ms), asked_ms)
            if (facts := self.groups.get(name)) is not None:
                facts.least_rebalance_ms = least

    def promised(self, broker: Broker, asked: Asked, response: Any, now: Millis) -> None:
        """Check the answer to a request of a classic group against what it promises."""
        request = asked.request
        facts = self.facts(request.group_id)
        fold = self._ledger.folds[broker.state.shard_of(request.group_id)]
        match request:
            case JoinGroupRequest():
                promises.promised_by_join(facts, self._ledger, fold, request, response, now)
            case SyncGroupRequest():
                promises.promised_by_sync(facts, self._ledger, fold, request, response, now)
            case HeartbeatRequest():
                # The answer may have been held: the session counts from the arrival of the request.
                came = now - (self._world.now - asked.asked_at)
                promises.promised_by_heartbeat(facts, request, response.error_code, came)
            case LeaveGroupRequest():
                promises.promised_by_leave(facts, request, response)
            case OffsetCommitRequest():
                names = {topic.topic_id: topic.name for topic in broker.state.catalog.topics.values()}
                promises.promised_by_commit(facts, self._ledger, request, response, names, now)

    def deleted(self, response: Any) -> None:
        """Check an answer of DeleteGroups."""
        for result in response.results:
            if result.error_code or self._is_other(result.group_id):
                continue
            facts = self.facts(result.group_id)
            if facts.phase not in ("Dead", "Empty") and len(facts.generations) == 1 and not facts.unsettled:
                raise Violation("a live group is not deleted", result.group_id, result.group_id)

    def journal(self, broker: Broker, now: Millis, *, deleting: bool) -> None:
        """Check that every entry has a true reason. `deleting`: a request of this turn deletes groups or offsets."""
        for entry in self._told:
            self._heard(entry, now)
        self._check_awaited(broker, now, deleting=deleting)

    def refused(self, asked: Asked, response: Any) -> None:
        """Check that an error has a reason."""
        request = asked.request
        if self._is_other(getattr(request, "group_id", "")):
            return
        match request:
            case JoinGroupRequest() | SyncGroupRequest() | HeartbeatRequest():
                promises.check_refusal(self.facts(request.group_id), request, response.error_code)
            case OffsetCommitRequest():
                for error in {p.error_code for t in response.topics for p in t.partitions}:
                    promises.check_refusal(self.facts(request.group_id), request, error)

    def turn_ends(self, broker: Broker) -> None:
        """Bring the facts in line with the running groups."""
        state = broker.state
        for name, facts in self.groups.items():
            shard = state.shards[state.shard_of(name)]
            taken = self._ledger.folds[shard.index].generations.get(name, 0)
            self._settle(facts, running(shard).get(name), taken, state.now)

    # -- the journal

    def _generation(self, entry: JournalEntry, now: Millis) -> None:
        facts = self.facts(entry.group)
        facts.generations.add(entry.generation_id)
        facts.current = entry.generation_id
        facts.generation_began = now
        facts.joined |= facts.joining
        facts.joining.clear()

    def _heard(self, entry: JournalEntry, now: Millis) -> None:
        facts = self.facts(entry.group)
        member_id = entry.member_id
        match entry.what:
            case "rebalance started":
                facts.rebalance_started = now
            case "session expired":
                self._check_expired(facts, member_id, now)
                facts.remove(member_id, "its session expired")
            case "member removed":
                if entry.waited_ms >= 0:  # removed for being late, not by an operator
                    self._check_static_stays(facts, entry, now)
                    self._check_late(facts, member_id, now)
                facts.remove(member_id, "it was removed")
            case "member left":
                facts.remove(member_id, "it left")
            case "static member returned":
                self._returned(facts, entry)
            case "group deleted":
                generations = (fold.generations.get(facts.name, 0) for fold in self._ledger.folds.values())
                facts.current = max(generations, default=0)
                for gone in list(facts.members):
                    facts.remove(gone, "the group was deleted")

    def _check_expired(self, facts: GroupFacts, member_id: str, now: Millis) -> None:
        member = facts.members.get(member_id)
        if member is None or facts.unsettled:
            return
        if member.last_seen + member.session_ms > now:
            raise facts.broken(
                "a session ends after its timeout",
                f"{member_id} was seen {now - member.last_seen} ms ago, of {member.session_ms}",
            )
        heads: dict[int, Answer] = {}
        for answer in self._answers:
            heads.setdefault(answer[0].id, answer)  # later requests of the connection waited and were not parked
        for _, asked, response in heads.values():
            request = asked.request
            if (
                isinstance(request, JoinGroupRequest | SyncGroupRequest)
                and (request.member_id, request.group_instance_id) == (member_id, member.instance_id)
                and request.group_id == facts.name
                and response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            ):
                raise facts.broken("a parked member does not expire", f"{member_id}")

    def _returned(self, facts: GroupFacts, entry: JournalEntry) -> None:
        """Of several members that took over an instance in one turn, the last one holds it."""
        same = [
            told.member_id
            for told in self._told
            if told.group == entry.group and told.instance_id == entry.instance_id and told.what == entry.what
        ]
        if entry.instance_id is None or same[-1] != entry.member_id:
            facts.remove(entry.member_id, "fenced")
        else:
            facts.hold_instance(entry.instance_id, entry.member_id)

    def _check_static_stays(self, facts: GroupFacts, entry: JournalEntry, now: Millis) -> None:
        joining = facts.phase == "PreparingRebalance" and facts.rebalance_started < now and not facts.unsettled
        if entry.instance_id is not None and joining:
            raise facts.broken("static members that are late stay", f"{entry.member_id} is removed")

    def _check_awaited(self, broker: Broker, now: Millis, *, deleting: bool) -> None:
        """A rebalance waits for members whose ids the coordinator has given out, and the ids keep their group."""
        for entry in self._told:
            facts = self.facts(entry.group)
            if facts.unsettled or not facts.pending:
                continue
            used = {told.member_id for told in self._told if told.what == "member joined"}
            awaited = [m for m, until in facts.pending.items() if now < until and m not in used]
            if entry.what == "group deleted" and awaited and not deleting:
                raise facts.broken("a group with pending members stays", f"{awaited}")
            if entry.what != "generation began" or facts.initial or facts.phase != "PreparingRebalance":
                continue
            group = running(broker.state.shards[broker.state.shard_of(facts.name)]).get(facts.name)
            still = [member_id for member_id in awaited if group is not None and member_id in group.pending]
            if still and 0 <= entry.waited_ms < facts.least_rebalance_ms:
                raise facts.broken("a rebalance waits for those it gave ids to", f"{still}")

    def _check_late(self, facts: GroupFacts, member_id: str, now: Millis) -> None:
        """The coordinator removes a late member only after the rebalance timeout."""
        if member_id not in facts.members or facts.unsettled or self._config.group_max_size < 1_000:
            return
        since = facts.rebalance_started
        if facts.phase in ("CompletingRebalance", "Stable") and facts.generation_began < now:
            since = max(since, facts.generation_began) if facts.rebalance_started < now else facts.generation_began
        if now - since < facts.least_rebalance_ms:
            raise facts.broken(
                "a late member has had the rebalance timeout",
                f"{member_id} is removed after {now - since} ms of {facts.least_rebalance_ms}",
            )

    # -- after the turn

    def _settle(self, facts: GroupFacts, group: Group | None, taken: int, now: Millis) -> None:
        if facts.unsettled:
            facts.current = taken if group is None else group.generation_id
            for member_id in list(facts.members):
                if group is None or member_id not in group.members:
                    facts.remove(member_id, "it was lost with the server")
            facts.reload([] if group is None else group.members)
            for member in [] if group is None else group.members.values():
                if member.join is None:
                    facts.admit(member.member_id, member.instance_id, member.session_timeout_ms, now)
            facts.rebalance_started = facts.generation_began = now
        elif group is None:
            facts.current = taken
        elif group.generation_id != facts.current and group.members:
            raise facts.broken(
                "a generation begins when a join completes",
                f"{group.generation_id} is in force, {facts.current} began last",
            )
        facts.phase = "Dead" if group is None else group.phase.value
        facts.initial = group is not None and group.initial
        given = {} if group is None else group.pending
        facts.pending = {name: facts.pending.get(name, now + session_ms) for name, session_ms in given.items()}
        if group is not None and group.members:
            facts.nonempty_at = now
            full = facts.phase in ("CompletingRebalance", "Stable") and not facts.unsettled
            if full and len(group.members) > self._config.group_max_size:
                raise Violation("limits hold", f"{facts.name} has {len(group.members)} members", facts.name)
        facts.unsettled = False

    def tombstone(self, broker: Broker, key: OffsetCommitKey) -> None:
        """Check that an offset which no request deleted has expired."""
        state = broker.state
        facts = self.facts(key.group)
        group = running(state.shards[state.shard_of(key.group)]).get(key.group)
        phase = "Dead" if group is None else group.phase.value
        rebalancing = ("PreparingRebalance", "CompletingRebalance")
        if phase in rebalancing and facts.phase in rebalancing:
            raise Violation("nothing expires during a rebalance", f"{key}", key.group)
        if phase == facts.phase == "Stable" and key.topic in self.subscribed:
            raise Violation("subscribed topics do not expire", f"{key}", key.group)
        if phase in ("Empty", "Dead") and state.now - facts.nonempty_at < self._config.offsets_retention_ms:
            raise Violation("offsets stay for the retention after their group", f"{key}", key.group)


def running(shard: Shard) -> dict[str, Group]:
    """The running groups of a shard, for reading."""
    return shard.running.groups
