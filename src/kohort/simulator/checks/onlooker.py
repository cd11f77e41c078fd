"""The onlooker sees the server's input, commits and output, and raises Violation when a promise is broken.

After every turn: the shards' own invariants hold; their hard state equals the fold of the durable records; every answer
keeps its promise (promises.py); the journal has a true reason for every removal; every parked request has an owner.
At every crash, and regularly: a replay of the disk, of all records or of the newest of each key, gives the same state.

Like invariants.py, it reads the running groups of a shard only for phases and parked requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.broker.turn import Arrived, Closed, ConnectionId, Frame, MoveGroup, Release, Send, Turn
from kohort.config import Config
from kohort.coordinator.events import JournalEntry, ServerPaused
from kohort.simulator.checks.beliefs import BelievingConsumer
from kohort.simulator.checks.classic_checks import ClassicChecks
from kohort.simulator.checks.consumer_checks import ConsumerChecks
from kohort.simulator.checks.ledger import Ledger
from kohort.simulator.checks.reader_checks import promised_by_fetch
from kohort.simulator.checks.share_checks import ShareChecks
from kohort.simulator.checks.transaction_checks import TransactionChecks
from kohort.simulator.checks.transaction_ledger import replayed
from kohort.simulator.plan import CONSUMER_GROUPS, MIXED
from kohort.simulator.world.network import Answer, Asked, Link
from kohort.simulator.world.world import Millis, Violation, World
from kohort.storage.protocol import LogKey, Storage
from kohort.wire.codec import decode
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import read_response_header
from kohort.wire.schema import NO_UUID, schema_of
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.fetch import FetchingMember, FetchRequest
from kohort.wire.schemas.group_records import OffsetCommitKey
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest
from kohort.wire.schemas.share_fetch import ShareFetchRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest

DELETING = {20, 42, 47}
"""APIs that delete offsets: DeleteTopics, DeleteGroups, OffsetDelete."""
REPLAY_EVERY_MS = 10_000
LONGEST_PAUSE_MS = 15_000
"""Of the server, with a margin."""


@cache
def response_of(request: type) -> type:
    kind: type = getattr(import_module(request.__module__), request.__name__.removesuffix("Request") + "Response")
    return kind


def decoded(asked: Asked, frame: bytes) -> Any:
    """The response. Raises ProtocolError, and Violation if it answers another request."""
    kind = response_of(asked.request.__class__)
    schema = schema_of(kind)
    assert schema.api_key is not None
    found, start = read_response_header(frame, flexible=asked.version in schema.flexible, api_key=schema.api_key)
    if found != asked.correlation_id:
        text = f"{found}, expected {asked.correlation_id} ({asked.request})"
        raise Violation("answers in the order of the requests", text)
    return decode(kind, asked.version, frame, start)


VALIDATED = 4
"""Of the turns that write nothing, every fourth ends with a look at the broker's invariants, which takes a fifth of a
run's time if every turn does."""


class Onlooker:
    def __init__(self, world: World, config: Config, storage: Storage) -> None:
        self.world = world
        self.config = config
        self.ledger = Ledger()
        self.consumers = ConsumerChecks(world, config, self.ledger, (*CONSUMER_GROUPS, MIXED))
        self.transactions = TransactionChecks(self.ledger)
        self.shares = ShareChecks(config)
        self.classic = ClassicChecks(world, config, self.ledger, self.consumers.of)
        self._storage = storage
        self._offsets_topic = b""
        self._broker: Broker
        self._turns = 0
        self._links: Mapping[ConnectionId, Link] = {}
        self._asked: list[Asked] = []
        """Requests that arrived for the next turn."""
        self._taken: list[Asked] = []
        """Requests of this turn, and of earlier ones that may have left them to it."""
        self._deleting = False
        self._loading = True
        """The server has just started: this turn loads all shards."""
        self._moved: list[int] = []
        """Shards that this turn loads again."""
        self._told: list[JournalEntry] = []
        """The shards' journal entries of this turn."""
        self._turn_began: Millis = 0
        self._replayed_at: Millis = 0

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
        for facts in self.classic.groups.values():
            self.classic.reload(broker, facts)

    def _listen(self, broker: Broker) -> None:
        """Record every journal entry, since the journal itself keeps only stories."""
        journal = broker.state.journal
        tell = journal.tell

        def overhear(entries: Iterable[JournalEntry], now: Millis) -> None:
            entries = list(entries)
            self._told.extend(entries)
            tell(entries, now)

        self._told.clear()
        setattr(journal, "tell", overhear)  # noqa: B010

    def died(self) -> None:
        self._asked.clear()
        self.consumers.died()
        self.shares.died()
        self._forget_turn()
        self.check_replay()

    def _forget_turn(self) -> None:
        self._told.clear()
        self.ledger.written.clear()
        self.ledger.before.clear()
        self.ledger.groups_before.clear()

    def check_replay(self) -> None:
        """A replay of the disk gives the durable state."""
        self._replayed_at = self.world.now
        self.shares.check_replay(self._storage)
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
        self.classic.asked(asked)
        self.shares.asked(asked)

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        broker = self._broker
        self._turn_began = self.world.now
        if not broker.is_behind:
            self._taken.clear()
            self._deleting = False
        self._taken += self._asked
        self._asked.clear()
        self._moved.clear()
        for event in arrived:
            if isinstance(event, Frame):
                if int.from_bytes(event.data[:2], "big") in DELETING:
                    self._deleting = True
            elif isinstance(event, MoveGroup) and broker.state.shards:
                shard = broker.state.shard_of(event.group)
                if broker.state.coordinator_of(shard) != event.to_broker:
                    self._moved.append(shard)
            elif isinstance(event, Closed):
                self.shares.closed(event.connection)
            elif isinstance(event, ServerPaused):
                self.classic.give_time(event.lost_ms)
                self.consumers.give_time(event.lost_ms)
        self.consumers.turn_begins(broker, self._taken, self._loading)
        for name in self.consumers.facts:
            if self._moved and broker.state.shard_of(name) in self._moved:
                self.consumers.load(name)
        self.classic.turn_begins(broker, loading=self._loading, moved=self._moved)

    def decided(self, turn: Turn) -> None:
        """The turn is decided and applied, but not yet durable."""
        self._turns += 1
        if not turn.operations and self._turns % VALIDATED:
            return
        try:
            self._broker.validate()
        except Exception as error:
            raise Violation("the broker's invariants", f"{type(error).__name__}: {error}") from error

    def committed(self, turn: Turn) -> None:
        """The turn is durable."""
        broker = self._broker
        self._offsets_topic = broker.state.catalog.topics[OFFSETS_TOPIC].topic_id
        self.ledger.commit(turn.operations, self._offsets_topic, self.world.now)
        self._compare(broker)
        self.transactions.committed(broker, turn.operations, self.world.now)
        self.shares.committed(broker, turn.operations, self.world.now)
        if self.ledger.before:
            self._check_tombstones(broker)

    def _compare(self, broker: Broker) -> None:
        for shard in broker.state.shards:
            fold = self.ledger.folds[shard.index]
            if not fold.equals(shard.hard):
                raise Violation("live state is the fold of the log", fold.difference(shard.hard))

    def answers(self, releases: Iterable[Release]) -> list[Answer]:
        """Match answers to clients and requests, and check all answers."""
        broker = self._broker
        now = broker.state.now
        releases = list(releases)
        for release in releases:
            if not isinstance(release, Send):
                self.shares.closed(release.connection)
        answers = [answer for release in releases if isinstance(release, Send) for answer in self._paired(release)]
        self.consumers.decided(broker, self._told)
        self.classic.decided(self._told, answers, now)
        for link, asked, response in answers:
            self._check_promise(broker, link, asked, response, now)
        for told in self._told:
            self.world.tell("journal", f"{told.group}({told.generation_id}) {told.what} {told.member_id} {told.cause}")
        self.classic.journal(broker, now, deleting=self._deleting)
        for _, asked, response in answers:
            self.classic.refused(asked, response)
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
        self.classic.turn_ends(broker)
        self._loading = False
        self.consumers.turn_ends(broker, links.values(), self._turn_began)
        for request_id, parked in broker._parked.items():
            if parked.shard is not None and request_id not in state.shards[parked.shard].running.parked:
                raise Violation("every parked request is answered", f"request {request_id} is forgotten")
        if self.world.now - self._replayed_at > REPLAY_EVERY_MS and not broker.is_behind:
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
        try:
            response = decoded(asked, frame)
        except ProtocolError as error:
            raise Violation("answers can be read", f"{asked.request}: {error}") from error
        if throttle_ms := getattr(response, "throttle_time_ms", 0):
            link.muted_until = self.world.now + throttle_ms
        return [(link, asked, response)]

    def _check_promise(self, broker: Broker, link: Link, asked: Asked, response: Any, now: Millis) -> None:
        self.transactions.answered(asked, response)
        self.shares.answered(link, asked, response, self._turn_began)
        match request := asked.request:
            case ConsumerGroupHeartbeatRequest():
                self.consumers.heartbeat(link, asked, response, broker)
            case ConsumerGroupDescribeRequest():
                self.consumers.described(response)
            case FetchRequest(as_member=FetchingMember(group_id=reads)):
                if self.consumers.of(reads):
                    promised_by_fetch(self.consumers.facts[reads], self.consumers.durable(reads), request, response)
            case OffsetFetchRequest():
                self._check_fetched(broker, asked, response)
            case DeleteGroupsRequest():
                self.classic.deleted(response)
            case OffsetCommitRequest(group_id=name) if self.consumers.of(name):
                topics = {topic.name: topic.topic_id for topic in broker.state.catalog.topics.values()}
                self.consumers.commit(link, request, response, topics)
            case JoinGroupRequest() | SyncGroupRequest() | HeartbeatRequest() if self.consumers.of(request.group_id):
                self.consumers.classic(asked, response, broker)
            case _:
                group = getattr(request, "group_id", None)
                if group is not None and not self.consumers.of(group):
                    self.classic.promised(broker, asked, response, now)

    def _check_fetched(self, broker: Broker, asked: Asked, response: Any) -> None:
        """An answer that takes several turns may hold what was durable in any of them."""
        request = asked.request
        groups = [(g.group_id, g) for g in response.groups] or [(request.group_id, response)]
        names = {topic.topic_id: topic.name for topic in broker.state.catalog.topics.values()}
        for name, found in groups:
            if found.error_code:
                continue
            durable = self.ledger.folds[broker.state.shard_of(name)].offsets.get(name, {})
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
                    known.update(self.ledger.since(name, place, asked.asked_at))
                    if (name, place) in self.ledger.before:
                        known.update(
                            v.offset
                            for k, v in self.ledger.written
                            if isinstance(k, OffsetCommitKey) and k.group == name and v is not None
                        )
                    if partition.committed_offset not in known:
                        text = f"{place}: {partition.committed_offset} is answered, {sorted(known)} is durable"
                        raise Violation.of(name, "no reply before durability", text)

    def _check_tombstones(self, broker: Broker) -> None:
        """No offset disappears without a reason: a request deleted it, or it expired."""
        if self._deleting or self._loading or self._moved:
            return
        for key, value in self.ledger.written:
            if value is not None or not isinstance(key, OffsetCommitKey):
                continue
            if self.consumers.of(key.group):
                self.consumers.check_tombstone(key, broker.state.now)
            else:
                self.classic.tombstone(broker, key)

    # -- whoever waits

    def _check_unanswered(self, broker: Broker, links: Mapping[ConnectionId, Link]) -> None:
        if broker.next_deadline() is None:
            return  # It stops: parked requests were answered; later ones are not.
        for connection_id, link in links.items():
            if link.raw or not link.outstanding or link.muted_until >= self.world.now:
                continue
            head = link.outstanding[0]
            work = broker._connections[connection_id].work if connection_id in broker._connections else None
            if work is not None and work.waits and broker.state.reads.is_asked(work.context.request_id):
                continue
            if head.asked_at >= self._turn_began or isinstance(head.request, JoinGroupRequest | SyncGroupRequest):
                continue
            if isinstance(head.request, ShareFetchRequest):
                if self.world.now <= head.asked_at + head.request.max_wait_ms + LONGEST_PAUSE_MS:
                    continue
                raise Violation("a fetch has a deadline", f"{link.owner.name}: {brief(head.request)}")
            if not isinstance(head.request, FetchRequest | HeartbeatRequest | ConsumerGroupHeartbeatRequest):
                raise Violation("every request is answered", f"{link.owner.name}: {brief(head.request)}")


def brief(message: Any) -> str:
    """A message for the story: its fields other than defaults."""
    parts = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if value not in (None, "", 0, -1, (), b"") and name not in ("throttle_time_ms", "protocols", "protocol_type"):
            parts.append(f"{name}={value!r}" if len(repr(value)) < 120 else f"{name}=…")
    return f"{type(message).__name__.removesuffix('Request').removesuffix('Response')}({' '.join(parts)})"
