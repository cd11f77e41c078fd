"""The onlooker: sees what arrives, what is committed and what leaves, and raises Violation when a promise is broken.

After every turn: the shards' own invariants hold; their hard state equals the fold of what is durable; every answer
keeps its promise (promises.py); the journal gives a true reason for every removal; whoever is parked will be answered.
At every crash, and now and then: a replay of the disk, of all records or of the newest of each key, gives the same
state again.

It reads the running groups of a shard where only they can tell (phases, parked requests), as invariants.py does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.broker.turn import Arrived, ConnectionId, Frame, MoveGroup, Release, Send, Turn
from kohort.config import Config
from kohort.coordinator.classic.group import Group
from kohort.coordinator.events import JournalEntry
from kohort.coordinator.shard import Shard
from kohort.simulator.checks import promises
from kohort.simulator.checks.beliefs import BelievingConsumer
from kohort.simulator.checks.consumer_checks import ConsumerChecks
from kohort.simulator.checks.facts import GroupFacts
from kohort.simulator.checks.ledger import Ledger, replayed
from kohort.simulator.checks.reader_checks import promised_by_fetch
from kohort.simulator.plan import CONSUMER_GROUPS, GROUPS, MIXED
from kohort.simulator.world.network import Answer, Asked, Link
from kohort.simulator.world.world import Millis, Violation, World
from kohort.storage.protocol import LogKey, Storage
from kohort.wire.codec import decode
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.framing import read_response_header
from kohort.wire.schema import NO_UUID, schema_of
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.group_records import OffsetCommitKey
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest

DELETING = {20, 42, 47}
"""APIs that delete offsets: DeleteTopics, DeleteGroups, OffsetDelete."""
REPLAY_EVERY_MS = 10_000

_responses: dict[type, type] = {}


def response_of(request: type) -> type:
    found = _responses.get(request)
    if found is None:
        name = request.__name__.removesuffix("Request") + "Response"
        found = _responses[request] = getattr(import_module(request.__module__), name)
    return found


class Onlooker:
    def __init__(self, world: World, config: Config, storage: Storage) -> None:
        self.world = world
        self.config = config
        self.ledger = Ledger()
        self.consumers = ConsumerChecks(world, config, self.ledger, (*CONSUMER_GROUPS, MIXED))
        self.groups: dict[str, GroupFacts] = {name: GroupFacts(name) for name in GROUPS}
        self.subscribed: frozenset[str] = frozenset()
        """Topics that every member of the run subscribes to."""
        self._storage = storage
        self._offsets_topic = b""
        self._broker: Broker
        self._links: Mapping[ConnectionId, Link] = {}
        self._asked: list[Asked] = []
        """Requests that arrived for the next turn."""
        self._deleting = False
        self._loading = True
        """The server has just started: all shards are loaded in this turn."""
        self._moved: list[int] = []
        """Shards that are loaded anew in this turn."""
        self._answers: list[Answer] = []
        """Of this turn."""
        self._told: list[JournalEntry] = []
        """What the shards told the journal in this turn."""
        self._turn_began: Millis = 0
        self._replayed_at: Millis = 0

    def facts(self, name: str) -> GroupFacts:
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = GroupFacts(name)
        return found

    # -- the server's life

    def started(self, broker: Broker, links: Mapping[ConnectionId, Link]) -> None:
        """The replay is over."""
        self._broker = broker
        self._links = links
        self._listen(broker)
        self._loading = True
        topic = broker.state.catalog.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            self._offsets_topic = topic.topic_id
            self._compare(broker)
        for facts in self.groups.values():
            self._reload(broker, facts)

    def _listen(self, broker: Broker) -> None:
        """The journal folds what it is told; here every entry is wanted."""
        journal = broker.state.journal
        tell = journal.tell

        def overhear(entries: Iterable[JournalEntry], now: Millis) -> None:
            entries = list(entries)
            self._told.extend(entries)
            tell(entries, now)

        self._told.clear()
        setattr(journal, "tell", overhear)  # noqa: B010

    def _reload(self, broker: Broker, facts: GroupFacts) -> None:
        facts.unsettled = True
        facts.nonempty_at = -(1 << 60)  # A rebalance that was never synced is forgotten, and its members with it.
        if broker.state.shards:
            stored = self.ledger.fold(broker.state.shard_of(facts.name)).groups.get(facts.name)
            facts.reload([] if stored is None else [member.member_id for member in stored.members])

    def died(self) -> None:
        self._asked.clear()
        self.consumers.died()
        self._forget_turn()
        self.check_replay()

    def _forget_turn(self) -> None:
        self._told.clear()
        self.ledger.written.clear()
        self.ledger.before.clear()
        self.ledger.groups_before.clear()

    def check_replay(self) -> None:
        """What the disk holds, replayed, is what is durable."""
        self._replayed_at = self.world.now
        for shard, fold in self.ledger.folds.items():
            for newest_only in (False, True):
                hard = replayed(self._storage, LogKey(self._offsets_topic, shard), newest_only=newest_only)
                if not fold.equals(hard):
                    what = "the newest records" if newest_only else "the log"
                    raise Violation(f"a replay of {what} gives the same state", fold.difference(hard))

    def took(self, consumer: BelievingConsumer) -> None:
        self.consumers.beliefs.check(consumer)

    # -- a turn

    def asked(self, asked: Asked) -> None:
        self._asked.append(asked)

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        broker = self._broker
        asked, self._asked = self._asked, []
        self._turn_began = self.world.now
        self._deleting = False
        self._moved.clear()
        for event in arrived:
            if isinstance(event, Frame):
                if int.from_bytes(event.data[:2], "big") in DELETING:
                    self._deleting = True
            elif isinstance(event, MoveGroup) and broker.state.shards:
                shard = broker.state.shard_of(event.group)
                if broker.state.coordinator_of(shard) != event.to_broker:
                    self._moved.append(shard)
        self.consumers.turn_begins(broker, asked, self._loading)
        for name in self.consumers.facts:
            if self._moved and broker.state.shard_of(name) in self._moved:
                self.consumers.load(name)
        for facts in self.groups.values():
            facts.generations = {facts.current}
            facts.unsettled = self._loading
            if self._moved and broker.state.shard_of(facts.name) in self._moved:
                self._reload(broker, facts)

    def decided(self, turn: Turn) -> None:
        """The turn is decided and applied, and not yet durable."""
        try:
            self._broker.validate()
        except Exception as error:
            raise Violation("the broker's invariants", f"{type(error).__name__}: {error}") from error

    def committed(self, turn: Turn) -> None:
        """The turn is durable."""
        broker = self._broker
        self._offsets_topic = broker.state.catalog.topics[OFFSETS_TOPIC].topic_id
        self.ledger.commit(turn.operations, self._offsets_topic)
        self._compare(broker)
        if self.ledger.before:
            self._check_tombstones(broker)

    def _compare(self, broker: Broker) -> None:
        for shard in broker.state.shards:
            fold = self.ledger.fold(shard.index)
            if not fold.equals(shard.hard):
                raise Violation("live state is the fold of the log", fold.difference(shard.hard))

    def answers(self, releases: Iterable[Release]) -> list[Answer]:
        """Which client gets which answer. Checks all answers."""
        broker = self._broker
        now = broker.state.now
        answers = [answer for release in releases if isinstance(release, Send) for answer in self._paired(release)]
        self.consumers.decided(broker, self._told)
        told = [entry for entry in self._told if not self.consumers.of(entry.group)]
        for entry in told:
            if entry.what in ("generation began", "group is empty"):
                self._generation(entry, now)
            elif entry.what == "member joined":
                self.facts(entry.group).joining.add(entry.member_id)
        for facts in self.groups.values():
            facts.quiet = not facts.unsettled and all(entry.group != facts.name for entry in told)
        self._answers = answers
        for link, asked, response in answers:
            self._check_promise(broker, link, asked, response, now)
        for entry in self._told:
            self._tell(entry)
        for entry in told:
            self._journal(entry, now)
        self._check_awaited(broker, now)
        for _, asked, response in answers:
            self._check_refusal(asked, response)
        if self.world.telling:
            for link, asked, response in answers:
                self.world.tell("server", f"to {link.owner.name}: {brief(asked.request)} -> {brief(response)}")
        return answers

    def turn_ends(self, turn: Turn) -> None:
        broker, links = self._broker, self._links
        state = broker.state
        if broker.next_deadline() is None:
            self._told.clear()
            return  # It stops.
        for name, facts in self.groups.items():
            shard = state.shards[state.shard_of(name)]
            taken = self.ledger.fold(shard.index).generations.get(name, 0)
            self._settle(facts, running(shard).get(name), taken, state.now)
        self._loading = False
        self.consumers.turn_ends(broker, links.values(), self._turn_began)
        for request_id, parked in broker._parked.items():
            if parked.shard is not None and request_id not in state.shards[parked.shard].running.parked:
                raise Violation("whoever is parked will be answered", f"request {request_id} is forgotten")
        if self.world.now - self._replayed_at > REPLAY_EVERY_MS:
            self.check_replay()
            self._check_unanswered(broker, links)
        self._forget_turn()

    # -- answers

    def _paired(self, release: Send) -> list[Answer]:
        link = self._links.get(release.connection)
        if link is None or link.raw:
            return []
        if not link.outstanding:
            raise Violation("one answer a request", f"{link.owner.name} gets an answer to nothing")
        asked = link.outstanding.popleft()
        data = release.whole
        frame = data[4:]
        if int.from_bytes(data[:4], "big") != len(frame):
            raise Violation("answers are whole frames", f"{len(frame)} bytes")
        cls = response_of(type(asked.request))
        schema = schema_of(cls)
        assert schema.api_key is not None
        try:
            found, start = read_response_header(
                frame, flexible=asked.version in schema.flexible, api_key=schema.api_key
            )
            if found != asked.correlation_id:
                raise Violation(
                    "answers in the order of the requests",
                    f"{found}, expected {asked.correlation_id} ({asked.request})",
                )
            return [(link, asked, decode(cls, asked.version, frame, start))]
        except ProtocolError as error:
            raise Violation("answers can be read", f"{asked.request}: {error}") from error

    def _check_promise(self, broker: Broker, link: Link, asked: Asked, response: Any, now: Millis) -> None:
        request = asked.request
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            self.consumers.heartbeat(link, asked, response, broker)
            return
        if isinstance(request, ConsumerGroupDescribeRequest):
            self.consumers.described(response)
            return
        if isinstance(request, FetchRequest):
            reads = request.as_member.group_id
            if self.consumers.of(reads):
                promised_by_fetch(self.consumers.facts[reads], self.consumers.durable(reads), request, response)
            return
        if isinstance(request, OffsetFetchRequest):
            self._check_fetched(broker, request, response)
            return
        if isinstance(request, DeleteGroupsRequest):
            self._check_deleted(broker, response)
            return
        name = getattr(request, "group_id", None)
        if name is None:
            return
        if self.consumers.of(name):
            if isinstance(request, OffsetCommitRequest):
                topics = {topic.name: topic.topic_id for topic in broker.state.catalog.topics.values()}
                self.consumers.commit(link, request, response, topics)
            elif isinstance(request, JoinGroupRequest | SyncGroupRequest | HeartbeatRequest):
                self.consumers.classic(asked, response, broker)
            return
        facts = self.facts(name)
        fold = self.ledger.fold(broker.state.shard_of(name))
        match request:
            case JoinGroupRequest():
                asked_ms = request.rebalance_timeout_ms if asked.version >= 1 else request.session_timeout_ms
                facts.least_rebalance_ms = min(facts.least_rebalance_ms, asked_ms)
                promises.promised_by_join(facts, self.ledger, fold, request, response, now)
            case SyncGroupRequest():
                promises.promised_by_sync(facts, self.ledger, fold, request, response, now)
            case HeartbeatRequest():
                # It may have been held: its session counts from when it came.
                came = now - (self.world.now - asked.asked_at)
                promises.promised_by_heartbeat(facts, request, response.error_code, came)
            case LeaveGroupRequest():
                promises.promised_by_leave(facts, request, response)
            case OffsetCommitRequest():
                names = {topic.topic_id: topic.name for topic in broker.state.catalog.topics.values()}
                promises.promised_by_commit(facts, self.ledger, request, response, names, now)

    def _check_fetched(self, broker: Broker, request: OffsetFetchRequest, response: Any) -> None:
        groups = [(g.group_id, g) for g in response.groups] or [(request.group_id, response)]
        names = {topic.topic_id: topic.name for topic in broker.state.catalog.topics.values()}
        for name, found in groups:
            if found.error_code:
                continue
            durable = self.ledger.fold(broker.state.shard_of(name)).offsets.get(name, {})
            for topic in found.topics:
                topic_id = getattr(topic, "topic_id", NO_UUID)
                topic_name = topic.name or names.get(topic_id, "")
                for partition in topic.partitions:
                    place = (topic_name, partition.partition_index)
                    if partition.error_code or not topic_name:
                        continue
                    value = durable.get(place)
                    known = {-1 if value is None else value.offset}
                    ids = (NO_UUID, topic_id) if value is None else (topic_id, value.topic_id)
                    if NO_UUID not in ids and topic_id != ids[1]:
                        known = {-1}  # of a former topic of this name
                    if (name, place) in self.ledger.before:
                        before = self.ledger.before[name, place]
                        known.add(-1 if before is None else before)
                        known.update(
                            v.offset
                            for k, v in self.ledger.written
                            if isinstance(k, OffsetCommitKey) and k.group == name and v is not None
                        )
                    if partition.committed_offset not in known:
                        raise Violation(
                            "no reply before durability",
                            f"{name} {place}: {partition.committed_offset} is told, {sorted(known)} is durable",
                            name,
                        )

    def _check_deleted(self, broker: Broker, response: Any) -> None:
        for result in response.results:
            if result.error_code or self.consumers.of(result.group_id):
                continue
            facts = self.facts(result.group_id)
            if facts.phase not in ("Dead", "Empty") and len(facts.generations) == 1 and not facts.unsettled:
                raise Violation("a live group is not deleted", result.group_id, result.group_id)

    def _check_refusal(self, asked: Asked, response: Any) -> None:
        request = asked.request
        if self.consumers.of(getattr(request, "group_id", "")):
            return
        match request:
            case JoinGroupRequest() | SyncGroupRequest() | HeartbeatRequest():
                promises.check_refusal(self.facts(request.group_id), request, response.error_code)
            case OffsetCommitRequest():
                for error in {p.error_code for t in response.topics for p in t.partitions}:
                    promises.check_refusal(self.facts(request.group_id), request, error)

    # -- the journal

    def _tell(self, entry: JournalEntry) -> None:
        self.world.tell("journal", f"{entry.group}({entry.generation_id}) {entry.what} {entry.member_id} {entry.cause}")

    def _generation(self, entry: JournalEntry, now: Millis) -> None:
        facts = self.facts(entry.group)
        facts.generations.add(entry.generation_id)
        facts.current = entry.generation_id
        facts.generation_began = now
        facts.joined |= facts.joining
        facts.joining.clear()

    def _journal(self, entry: JournalEntry, now: Millis) -> None:
        facts = self.facts(entry.group)
        member_id = entry.member_id
        match entry.what:
            case "rebalance started":
                facts.rebalance_started = now
            case "session expired":
                self._check_expired(facts, member_id, now)
                facts.remove(member_id, "its session expired")
            case "member removed":
                if entry.waited_ms >= 0:  # for being late; an operator may remove whom he likes
                    self._check_static_stays(facts, entry, now)
                    self._check_late(facts, member_id, now)
                facts.remove(member_id, "it was removed")
            case "member left":
                facts.remove(member_id, "it left")
            case "static member returned":
                self._returned(facts, entry)
            case "group deleted":
                facts.current = max(
                    (fold.generations.get(facts.name, 0) for fold in self.ledger.folds.values()), default=0
                )
                for gone in list(facts.members):
                    facts.remove(gone, "the group was deleted")

    def _check_expired(self, facts: GroupFacts, member_id: str, now: Millis) -> None:
        member = facts.members.get(member_id)
        if member is None or facts.unsettled:
            return
        if member.last_seen + member.session_ms > now:
            raise Violation(
                "a session ends after its timeout",
                f"{facts.name}: {member_id} was seen {now - member.last_seen} ms ago, of {member.session_ms}",
                facts.name,
            )
        heads: dict[int, Answer] = {}
        for answer in self._answers:
            heads.setdefault(answer[0].id, answer)  # What came behind it waited in the connection, and was not parked.
        for _, asked, response in heads.values():
            request = asked.request
            if (
                isinstance(request, JoinGroupRequest | SyncGroupRequest)
                and (request.member_id, request.group_instance_id) == (member_id, member.instance_id)
                and request.group_id == facts.name
                and response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            ):
                raise Violation("who is parked does not expire", f"{facts.name}: {member_id}", facts.name)

    def _returned(self, facts: GroupFacts, entry: JournalEntry) -> None:
        """Of several that took over in one turn, the last one holds the instance."""
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
            raise Violation(
                "static members that are late stay", f"{facts.name}: {entry.member_id} is removed", facts.name
            )

    def _check_awaited(self, broker: Broker, now: Millis) -> None:
        """Ids that were given out are waited for, and keep their group."""
        for entry in self._told:
            if self.consumers.of(entry.group):
                continue
            facts = self.facts(entry.group)
            if facts.unsettled or not facts.pending:
                continue
            used = {told.member_id for told in self._told if told.what == "member joined"}
            awaited = [m for m, until in facts.pending.items() if now < until and m not in used]
            if entry.what == "group deleted" and awaited and not self._deleting:
                raise Violation("a group with pending members stays", f"{facts.name}: {awaited}", facts.name)
            if entry.what != "generation began" or facts.initial or facts.phase != "PreparingRebalance":
                continue
            group = running(broker.state.shards[broker.state.shard_of(facts.name)]).get(facts.name)
            still = [member_id for member_id in awaited if group is not None and member_id in group.pending]
            if still and 0 <= entry.waited_ms < facts.least_rebalance_ms:
                raise Violation("a rebalance waits for those it gave ids to", f"{facts.name}: {still}", facts.name)

    def _check_late(self, facts: GroupFacts, member_id: str, now: Millis) -> None:
        """Removed by the coordinator: the others waited for it, for as long as they may."""
        if member_id not in facts.members or facts.unsettled or self.config.group_max_size < 1_000:
            return
        since = facts.rebalance_started
        if facts.phase in ("CompletingRebalance", "Stable") and facts.generation_began < now:
            since = max(since, facts.generation_began) if facts.rebalance_started < now else facts.generation_began
        if now - since < facts.least_rebalance_ms:
            raise Violation(
                "who is late has had the rebalance timeout",
                f"{facts.name}: {member_id} is removed after {now - since} ms of {facts.least_rebalance_ms}",
                facts.name,
            )

    # -- what is known after the turn

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
            raise Violation(
                "a generation begins when a join completes",
                f"{facts.name}: {group.generation_id} is in force, {facts.current} began last",
                facts.name,
            )
        facts.phase = "Dead" if group is None else group.phase.value
        facts.initial = group is not None and group.initial
        given = {} if group is None else group.pending
        facts.pending = {name: facts.pending.get(name, now + session_ms) for name, session_ms in given.items()}
        if group is not None and group.members:
            facts.nonempty_at = now
            full = facts.phase in ("CompletingRebalance", "Stable") and not facts.unsettled
            if full and len(group.members) > self.config.group_max_size:
                raise Violation("limits hold", f"{facts.name} has {len(group.members)} members", facts.name)
        facts.unsettled = False

    def _check_tombstones(self, broker: Broker) -> None:
        """No offset goes without a reason: it was deleted on request, or its time was over."""
        if self._deleting or self._loading or self._moved:
            return
        state = broker.state
        retention = self.config.offsets_retention_ms
        for key, value in self.ledger.written:
            if value is not None or not isinstance(key, OffsetCommitKey):
                continue
            if self.consumers.of(key.group):
                self.consumers.check_tombstone(key, state.now)
                continue
            facts = self.facts(key.group)
            group = running(state.shards[state.shard_of(key.group)]).get(key.group)
            phase = "Dead" if group is None else group.phase.value
            rebalancing = ("PreparingRebalance", "CompletingRebalance")
            if phase in rebalancing and facts.phase in rebalancing:
                raise Violation("nothing expires during a rebalance", f"{key}", key.group)
            if phase == facts.phase == "Stable" and key.topic in self.subscribed:
                raise Violation("subscribed topics do not expire", f"{key}", key.group)
            if phase in ("Empty", "Dead") and state.now - facts.nonempty_at < retention:
                raise Violation("offsets outlive their group for the retention", f"{key}", key.group)

    # -- whoever waits

    def _check_unanswered(self, broker: Broker, links: Mapping[ConnectionId, Link]) -> None:
        if broker.next_deadline() is None:
            return  # It stops: parked requests were answered, what came after them is not.
        for link in links.values():
            if link.raw or not link.outstanding:
                continue
            head = link.outstanding[0]
            if head.asked_at >= self._turn_began or isinstance(head.request, JoinGroupRequest | SyncGroupRequest):
                continue
            if not isinstance(head.request, FetchRequest | HeartbeatRequest | ConsumerGroupHeartbeatRequest):
                raise Violation("every request is answered", f"{link.owner.name}: {brief(head.request)}")


def running(shard: Shard) -> dict[str, Group]:
    """The running groups of a shard, for reading."""
    return shard.running.groups


def brief(message: Any) -> str:
    """A message for the story: its fields that say something."""
    parts = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if value not in (None, "", 0, -1, (), b"") and name not in ("throttle_time_ms", "protocols", "protocol_type"):
            parts.append(f"{name}={value!r}" if len(repr(value)) < 120 else f"{name}=…")
    return f"{type(message).__name__.removesuffix('Request').removesuffix('Response')}({' '.join(parts)})"
