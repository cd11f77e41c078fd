"""Checks of consumer groups: the promises of answers, the removal of members, held heartbeats.

An answer must fit the durable state of the group before the turn, after it, or any state that the turn wrote in
between. The checks keep deadlines of their own: a session or a revocation may time out neither early nor late.

| answer | promise |
| --- | --- |
| heartbeat ok | its sender is durably a member, at this epoch, and has these partitions |
| heartbeat 110 | never to a well-behaved client, even if answers are lost and requests duplicated |
| heartbeat 25, 69, 82, 111, 81 | another member holds the place, or the journal has the reason of the removal |
| a frozen group | takes nothing from its members |
| a member that changes its subscription, or returns | raises the epoch, or has the target of its former id |
| a held heartbeat | is answered within its limit, and at once when another request follows |
| commit ok | its sender is a member, and has had the partition since the epoch of the request |
| commit refused | not to an owner |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohort.broker.broker import Broker
from kohort.config import Config
from kohort.coordinator.events import JournalEntry
from kohort.simulator.checks.beliefs import Beliefs
from kohort.simulator.checks.consumer_ledger import AWAY, MUST_GIVE_UP, Durable, Has, Partition, has_of
from kohort.simulator.checks.hold_checks import held_until, taken_from
from kohort.simulator.checks.ledger import Ledger
from kohort.simulator.checks.target_checks import check_targets
from kohort.simulator.plan import MIXED
from kohort.simulator.world.network import Asked, Link
from kohort.simulator.world.world import Millis, Violation, World
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeResponse
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.schemas.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    OffsetCommitKey,
)
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest

JOIN_HOLD_MS, MARGIN_MS = 500, 100
"""The longest hold of a first heartbeat; the least rest of the interval when a later one of a Java client, which all
members here say they are, is answered."""

OK = ErrorCode.NONE
ELSEWHERE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
ALIVE = (ConsumerGroupHeartbeatRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, OffsetCommitRequest)
"""Requests that may restart a session."""
NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(slots=True)
class ConsumerFacts:
    name: str
    before: Durable
    """The durable state before the turn."""
    seen_first: dict[str, Millis] = field(default_factory=dict)
    """By member, the earliest time at which its current session may have started."""
    seen_last: dict[str, Millis] = field(default_factory=dict)
    """By member, the latest such time."""
    told_to_give_up: dict[str, Millis] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Members removed in this turn, with the journal's reason."""
    states: dict[str, list[Has]] = field(default_factory=dict)
    """The assignments of each member in the course of this turn."""
    came: set[str] = field(default_factory=set)
    """Members with a record written in this turn."""
    went: set[str] = field(default_factory=set)
    """Members with a record deleted in this turn."""
    gone: set[str] = field(default_factory=set)
    """All former and current members."""
    ended: bool = False
    """The group was deleted or downgraded in this turn."""
    held_until: Millis = 0
    """When the turn began."""
    loading: bool = True
    """The shard was loaded in this turn: all deadlines started again."""

    def broken(self, check: str, text: str) -> Violation:
        return Violation.of(self.name, check, text)


class ConsumerChecks:
    def __init__(self, world: World, config: Config, ledger: Ledger, names: Sequence[str]) -> None:
        self.world = world
        self.config = config
        self.ledger = ledger
        self.facts = {name: ConsumerFacts(name, Durable(name)) for name in names}
        self.beliefs = Beliefs(world, self.durable)
        self._asked: list[Any] = []
        """Requests that this turn may handle."""
        self._held: dict[int, tuple[Asked, Millis]] = {}
        """By connection: a held heartbeat, and the server's time at which it arrived."""
        self._broker: Broker | None = None

    def of(self, name: str) -> bool:
        return name in self.facts

    def durable(self, name: str) -> Durable:
        """The group's durable state, or that of an absent group."""
        if self._broker is None or not self._broker.state.shards:
            return Durable(name)
        return self.ledger.folds[self._broker.state.shard_of(name)].consumers.get(name) or Durable(name)

    # -- the server's life

    def load(self, name: str) -> None:
        """Its shard is loaded in this turn."""
        self.facts[name].loading = True

    def died(self) -> None:
        self._held.clear()

    # -- a turn

    def turn_begins(self, broker: Broker, asked: Sequence[Asked], loading: bool) -> None:
        self._broker = broker
        self._asked = [a.request for a in asked if isinstance(a.request, ALIVE)]
        for facts in self.facts.values():
            facts.before = self.durable(facts.name).copy() if broker.state.shards else Durable(facts.name)
            facts.held_until = held_until(broker, facts.name)
            facts.reasons.clear()
            facts.came.clear()
            facts.went.clear()
            facts.ended = False
            facts.states = {member_id: [has] for member_id, has in facts.before.has.items()}
            if loading:
                self.load(facts.name)

    def decided(self, broker: Broker, told: Iterable[JournalEntry]) -> None:
        """The turn is durable; the checks of its answers follow."""
        for request in self._asked:
            if request.group_id in self.facts:
                self.facts[request.group_id].seen_last[request.member_id] = broker.state.now
        for key, value in self.ledger.written:
            name = getattr(key, "group_id", "")
            facts = self.facts.get(name)
            if facts is None:
                continue
            if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey) and value is not None:
                facts.states.setdefault(key.member_id, []).append(has_of(value))
                self._told_to_give_up(facts, key.member_id, broker.state.now)
            elif isinstance(key, ConsumerGroupMemberMetadataKey):
                (facts.went if value is None else facts.came).add(key.member_id)
                if value is None:
                    facts.gone.add(key.member_id)
                else:
                    facts.gone.discard(key.member_id)
            elif isinstance(key, ConsumerGroupMetadataKey) and value is None:
                facts.ended = True
        for entry in told:
            facts = self.facts.get(entry.group)
            if facts is not None:
                self._journal(facts, entry, broker.state.now)
        for facts in self.facts.values():
            for member_id in sorted(facts.went):
                if member_id not in facts.reasons and not facts.ended:
                    raise facts.broken("no member is removed without a reason", f"{member_id} is gone")

    def _told_to_give_up(self, facts: ConsumerFacts, member_id: str, now: Millis) -> None:
        states = facts.states[member_id]
        has = states[-1]
        former = states[-2] if len(states) > 1 else None
        if has.state != MUST_GIVE_UP:
            facts.told_to_give_up.pop(member_id, None)
        elif former is None or former.state != MUST_GIVE_UP or former.revoking.keys() != has.revoking.keys():
            facts.told_to_give_up[member_id] = now

    def turn_ends(self, broker: Broker, links: Iterable[Link], turn_began: Millis) -> None:
        now = broker.state.now
        if not broker.is_behind:
            self._check_held(links, turn_began, now)
        for facts in self.facts.values():
            group = self.durable(facts.name)
            if facts.loading:
                facts.seen_first = dict.fromkeys(group.members, now)
                facts.seen_last = dict.fromkeys(group.members, now)
                facts.told_to_give_up = {m: now for m, has in group.has.items() if has.state == MUST_GIVE_UP}
                facts.loading = False
            for times in (facts.seen_first, facts.seen_last, facts.told_to_give_up):
                for member_id in [m for m in times if m not in group.members]:
                    del times[member_id]
            self._check_late(facts, group, now, is_behind=broker.is_behind)
            if not facts.ended:
                check_targets(facts.before, group, facts.came, facts.reasons)
            holds = now < facts.held_until == held_until(broker, facts.name)
            if holds and (taken := taken_from(broker, facts.before, group)):
                raise facts.broken("a freeze takes nothing from present members", taken)
        self.beliefs.turn_ends(broker)

    # -- times

    def _journal(self, facts: ConsumerFacts, entry: JournalEntry, now: Millis) -> None:
        member_id = entry.member_id
        if entry.what in ("session expired", "member removed", "member left"):
            facts.reasons[member_id] = entry.what
        elif entry.what == "static member returned":
            for former in facts.went:
                facts.reasons.setdefault(former, entry.what)
        member = facts.before.members.get(member_id)
        if facts.loading or member is None:
            return  # of a classic group, it may be
        session_ms = self._session_of(member)
        if entry.what == "session expired":
            silent = now - facts.seen_first.get(member_id, now - session_ms)
            if silent < session_ms:
                raise facts.broken("a session ends after its timeout", f"{member_id} was seen {silent} ms ago")
        elif entry.what == "member removed" and entry.waited_ms >= 0 and not is_classic(member):
            since = facts.told_to_give_up.get(member_id)
            if since is None or now - since < member.rebalance_timeout_ms:
                raise facts.broken(
                    "a late member has had the rebalance timeout", f"{member_id} was told at {since}, it is {now}"
                )

    def give_time(self, lost_ms: Millis) -> None:
        """The server was paused: the members get this time, and no more."""
        for facts in self.facts.values():
            for times in (facts.seen_first, facts.seen_last, facts.told_to_give_up):
                for member_id in times:
                    times[member_id] += lost_ms

    def _session_of(self, member: ConsumerGroupMemberMetadataValue) -> Millis:
        metadata = member.classic_member_metadata
        return metadata.session_timeout_ms if metadata is not None and is_classic(member) else self.session_ms

    @property
    def session_ms(self) -> Millis:
        return self.config.group_consumer_session_timeout_ms

    def _check_late(self, facts: ConsumerFacts, group: Durable, now: Millis, *, is_behind: bool) -> None:
        for member_id, member in group.members.items():
            seen = facts.seen_last.setdefault(member_id, now)
            facts.seen_first.setdefault(member_id, now)
            if is_behind:
                continue  # deadlines wait
            if now > seen + self._session_of(member):
                raise facts.broken("a silent member expires", f"{member_id} was seen {now - seen} ms ago")
            since = facts.told_to_give_up.get(member_id)
            if since is not None and now > since + member.rebalance_timeout_ms and not is_classic(member):
                raise facts.broken(
                    "a member that revokes too late is removed", f"{member_id} was told {now - since} ms ago"
                )

    def _seen(self, facts: ConsumerFacts, member_id: str, at: Millis) -> None:
        facts.seen_first[member_id] = max(facts.seen_first.get(member_id, at), at)

    # -- held heartbeats

    def _check_held(self, links: Iterable[Link], turn_began: Millis, now: Millis) -> None:
        before, self._held = self._held, {}
        for link in links:
            head = link.outstanding[0] if link.outstanding and not link.raw else None
            if head is None or head.asked_at >= turn_began:
                continue  # it arrived during the turn, or the order is unknown
            if link.muted_until >= self.world.now:
                continue  # it waits because of a quota
            if not isinstance(head.request, ConsumerGroupHeartbeatRequest) or head.request.group_id not in self.facts:
                continue
            known = before.get(link.id)
            self._held[link.id] = known if known is not None and known[0] is head else (head, now)
            self._check_held_head(link, self._held[link.id][1], turn_began, now)

    def _check_held_head(self, link: Link, since: Millis, turn_began: Millis, now: Millis) -> None:
        asked = link.outstanding[0]
        request = asked.request
        facts = self.facts[request.group_id]
        self._seen(facts, request.member_id, now - (self.world.now - asked.asked_at))
        if request.member_epoch < 0:
            raise facts.broken("the heartbeat of a leaving member is not held", f"{request.member_id}")
        if now - since > self._hold_limit_ms(joins=request.member_epoch == 0):
            raise facts.broken(
                "a held heartbeat is answered in time", f"{request.member_id} since {since}, it is {now}"
            )
        if len(link.outstanding) > 1 and link.outstanding[1].asked_at < turn_began:
            raise facts.broken("nothing waits behind a held heartbeat", f"{link.owner.name}")
        has = self.durable(request.group_id).has.get(request.member_id)
        if has is not None and has.state == MUST_GIVE_UP:
            raise facts.broken("the heartbeat of a revoking member is not held", f"{request.member_id} has {has}")

    def _hold_limit_ms(self, *, joins: bool) -> Millis:
        config = self.config
        longest = JOIN_HOLD_MS if joins else config.group_consumer_heartbeat_interval_ms - MARGIN_MS
        return min(config.group_consumer_heartbeat_hold_max_ms, longest, self.session_ms // 3)

    # -- answers

    def heartbeat(self, link: Link, asked: Asked, response: ConsumerGroupHeartbeatResponse, broker: Broker) -> None:
        request: ConsumerGroupHeartbeatRequest = asked.request
        facts = self.facts.get(request.group_id)
        if facts is None or response.error_code in ELSEWHERE:
            return
        honest = link.owner.kind == "consumer"
        if response.error_code:
            self._refused(facts, request, response, honest)
            return
        member_id = response.member_id or ""
        if request.member_epoch < 0:
            if response.member_epoch != request.member_epoch:
                raise facts.broken(
                    "a leave is answered with the request's epoch", f"{member_id}: {response.member_epoch}"
                )
            if request.member_epoch == AWAY and not any(h.epoch == AWAY for h in facts.states.get(member_id, [])):
                raise facts.broken("a static member's place is kept", f"{member_id} is away, {facts.states}")
            return
        self._check_told(facts, request, response)
        self._seen(facts, member_id, broker.state.now - (self.world.now - asked.asked_at))

    def _check_told(
        self, facts: ConsumerFacts, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        member_id = response.member_id or ""
        if member_id not in facts.before.members and member_id not in facts.came:
            promise = "a removed member never succeeds" if member_id in facts.gone else "no reply before durability"
            raise facts.broken(promise, f"a heartbeat of {member_id} is answered, which is no member")
        if response.member_epoch < request.member_epoch or response.member_epoch == 0:
            raise facts.broken(
                "a member's epoch only rises", f"{member_id}: {request.member_epoch}, {response.member_epoch}"
            )
        limit = self.config.group_consumer_heartbeat_interval_ms
        if not 0 < response.heartbeat_interval_ms <= limit:
            raise facts.broken("the interval is that of the settings", f"{response.heartbeat_interval_ms}, {limit}")
        states = [has for has in facts.states.get(member_id, []) if has.epoch == response.member_epoch]
        if response.assignment is not None:
            told = {(t.topic_id, index) for t in response.assignment.topic_partitions for index in t.partitions}
            states = [has for has in states if has.assigned.keys() == told]
        if not states:
            raise facts.broken(
                "no reply before durability",
                f"{member_id} is told epoch {response.member_epoch} and {response.assignment}, "
                f"durable is {facts.states.get(member_id)}",
            )

    def _refused(
        self,
        facts: ConsumerFacts,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
        honest: bool,
    ) -> None:
        error, member_id, instance = ErrorCode(response.error_code), request.member_id, request.instance_id
        group = self.durable(facts.name)
        said = f"{member_id} at {request.member_epoch} is answered {error.name}: {response.error_message}"
        if honest and error not in EXPECTED:
            raise facts.broken("a client that behaves is understood", said)
        stays = member_id in facts.before.members and member_id in group.members and member_id not in facts.went
        if stays and instance is not None and facts.before.members[member_id].instance_id != instance:
            return
        match error:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.GROUP_ID_NOT_FOUND | ErrorCode.FENCED_INSTANCE_ID if stays:
                raise facts.broken("no member is removed without a reason", said)
            case ErrorCode.UNRELEASED_INSTANCE_ID if instance is not None:
                holders = {facts.before.holder(instance), group.holder(instance)} - {None, member_id}
                if not holders and not any(m for m in facts.came if m != member_id):
                    raise facts.broken("an unused instance id is free", said)
            case ErrorCode.GROUP_MAX_SIZE_REACHED if facts.name != MIXED:
                most = len({*facts.before.members, *group.members, *facts.came})  # some join and leave within the turn
                if most < self.config.group_consumer_max_size:
                    raise facts.broken("a member that fits is admitted", said)

    def classic(self, asked: Asked, response: Any, broker: Broker) -> None:
        """An answer to a member of the classic protocol."""
        facts = self.facts[asked.request.group_id]
        if response.error_code in (OK, ErrorCode.REBALANCE_IN_PROGRESS):
            came = broker.state.now - (self.world.now - asked.asked_at)
            self._seen(facts, getattr(response, "member_id", asked.request.member_id), came)

    # -- commits

    def commit(
        self, link: Link, request: OffsetCommitRequest, response: OffsetCommitResponse, topics: dict[str, bytes]
    ) -> None:
        """`topics`: the ids of the existing topics."""
        facts = self.facts[request.group_id]
        member_id, epoch = request.member_id, request.generation_id_or_member_epoch
        group = self.durable(facts.name)
        if facts.name == MIXED and (not facts.before.members or not group.members or facts.ended):
            return  # a classic group in the course of the turn
        is_member = member_id in facts.before.members or member_id in facts.came
        stays = member_id in facts.before.members and member_id in group.members and member_id not in facts.went
        for topic in response.topics:
            topic_id = topics.get(topic.name, NO_UUID) if topic.topic_id == NO_UUID else topic.topic_id
            for result in topic.partitions:
                place = (topic_id, result.partition_index)
                text = f"{member_id} at {epoch}, {topic.name}-{result.partition_index}: {result.error_code}"
                owns = [self._may_commit(has, place, epoch) for has in facts.states.get(member_id, [])]
                if result.error_code == OK and epoch >= 0 and not is_member:
                    raise facts.broken("only members commit", text)
                if result.error_code == OK and epoch >= 0 and topic_id != NO_UUID and not any(owns):
                    raise facts.broken("old epochs are refused", f"{text}; it has {facts.states.get(member_id)}")
                if result.error_code == OK and epoch < 0 and facts.before.members and group.members:
                    raise facts.broken("only members commit", text)
                if result.error_code in (OK, *NO_TOPIC, *ELSEWHERE) or link.owner.kind != "consumer":
                    continue
                has_it = [place in has.all and has.all[place] <= epoch for has in facts.states.get(member_id, [])]
                if stays and has_it and all(has_it) and all(owns):
                    raise facts.broken("owners commit", f"{text}; it has {facts.states.get(member_id)}")
        names = {topic_id: name for name, topic_id in topics.items()}
        if lost := self.ledger.lost(request, response, names):
            raise facts.broken("no reply before durability", lost)

    def _may_commit(self, has: Has, place: Partition, epoch: int) -> bool:
        """KIP-1251: at its current epoch a member may commit for any partition; at an older epoch, for the partitions
        that it has owned since then. With fencing, the second rule holds for both."""
        if epoch == has.epoch and not self.config.group_consumer_ownership_fencing_enable:
            return True
        return epoch <= has.epoch and has.all.get(place, epoch + 1) <= epoch

    def check_tombstone(self, key: OffsetCommitKey, now: Millis) -> None:
        """An offset was deleted without a request (X2)."""
        facts = self.facts[key.group]
        if key.topic in facts.before.topics & self.durable(key.group).topics:
            raise facts.broken("subscribed topics do not expire", f"{key}")
        committed = self.ledger.deleted[key.group, (key.topic, key.partition)]
        if now - committed < self.config.offsets_retention_ms:
            raise facts.broken("offsets stay for the retention after their commit", f"{key}")

    # -- descriptions

    def described(self, response: ConsumerGroupDescribeResponse) -> None:
        for described in response.groups:
            facts = self.facts.get(described.group_id)
            if facts is None or described.error_code:
                continue
            group = self.durable(facts.name)
            epochs = range(facts.before.epoch, group.epoch + 1) if facts.before.epoch <= group.epoch else [group.epoch]
            if described.group_epoch not in epochs and not facts.ended:
                raise facts.broken("no reply before durability", f"epoch {described.group_epoch}, not {epochs}")
            owners: dict[Partition, str] = {}
            for member in described.members:
                for topic in member.assignment.topic_partitions:
                    for index in topic.partitions:
                        other = owners.setdefault((topic.topic_id, index), member.member_id)
                        if other != member.member_id:
                            raise facts.broken("one owner a partition", f"described: {other}, {member.member_id}")


EXPECTED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
"""Errors that a well-behaved client may get; 110 is not among them."""


def is_classic(member: ConsumerGroupMemberMetadataValue) -> bool:
    return member.classic_member_metadata is not None and bool(member.classic_member_metadata.supported_protocols)
