"""Heartbeats that are answered without a turn or a handler, and repeated commits: the same answers as by the handlers.

Two brokers get the same random history. One gets bytes as the server hands them over, may answer at once, and repeats
commits. The other has no shortcuts: every request takes a turn and a handler. The bytes on each connection are the
same, and so is the state: records, deadlines, parked requests.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_groups import commit_request, join_request, stable
from wire_driver import START_MS, Wire, create_topic

from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.broker.shortcuts.commits import IN_VAIN
from kohort.broker.shortcuts.heartbeats import SHARING
from kohort.broker.turn import Arrived, Closed, ConnectionId, Disconnect, Frame, MoveGroup, Opened, Shutdown
from kohort.config import Config
from kohort.coordinator.classic.group import Group
from kohort.coordinator.events import RequestId
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import Append, Operation, Replace
from kohort.wire.batches import decode_records
from kohort.wire.codec import decode, encode_request
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.sync_group import SyncGroupRequest

CONFIG = Config(
    brokers=2,
    listeners="127.0.0.1:9092,127.0.0.1:9093",
    offsets_topic_num_partitions=3,
    group_initial_rebalance_delay_ms=500,
    group_max_size=3,
)
GROUPS = ("g", "h")
GROUP_RESOURCE = 32
MEMBERS = range(4)
SOFTWARE = ("", "kafka-python", "librdkafka", "")
"""The software name of each member's client; the heartbeats of one client may be held."""
CLIENT_IDS = ("one", None, "three", "four")
SHAPES: tuple[tuple[tuple[str, tuple[int, ...]], ...], ...] = (
    (("t", (0,)),),
    (("t", (1, 0)),),
    (("t", (0, 0)), ("u", (1,))),
    (("t", (0, 2)),),
    (("u", (0, 1)), ("t", (1,))),
)
"""The topics of commits, with two partitions each; a topic may be absent."""


class Teller:
    """One of the two brokers."""

    def __init__(self, config: Config, *, at_once: bool) -> None:
        self.is_swift = at_once
        self.storage = MemoryStorage()
        endpoints = [Endpoint("127.0.0.1", 9092 + index) for index in range(2)]
        chance = random.Random(1)
        self.broker = Broker(config, self.storage, now=START_MS, random=chance, endpoints=endpoints).load()
        self.answers: dict[int, bytes] = defaultdict(bytes)
        self.written: list[Operation] = []
        self.swift = 0
        if not at_once:
            repeats = self.broker.repeats
            for unable in (repeats.heartbeats, repeats.commits):
                unable.longest = 0
        self.step([], START_MS)

    def step(self, arrived: list[Arrived], now: int) -> None:
        while True:
            turn = self.broker.step(arrived, now)
            self.written.extend(turn.operations)
            if turn.operations:
                self.storage.commit(turn.operations, self.storage.acquire())
            for release in turn.releases:
                closed = isinstance(release, Disconnect)
                self.answers[release.connection] += b"<closed>" if closed else release.whole  # type: ignore[union-attr]
            if not self.broker.busy:
                return
            arrived = []

    def receive(self, connection: int, frames: list[bytes], now: int, *, alone: bool) -> list[Arrived]:
        """The part of arriving bytes that needs a turn; `alone`: no other request waits for a turn."""
        whole = b"".join(frames)
        size = 0
        if self.is_swift and alone:
            answers, size = self.broker.at_once(ConnectionId(connection), whole, now)
            self.answers[connection] += answers
            self.swift += size
        left: list[Arrived] = []
        for frame in frames:
            if size:
                size -= len(frame)
                assert size >= 0, "it took a part of a frame"
            else:
                left.append(Frame(ConnectionId(connection), frame[4:]))
        return left

    def left_behind(self) -> Any:
        state = self.broker.state
        return (
            [sorted(shard.running.deadlines.items()) for shard in state.shards],
            [list(shard.running.parked.values()) for shard in state.shards],
            [[running(group) for group in shard.running.groups.values()] for shard in state.shards],
            [shard.hard for shard in state.shards],
            contents(self.written),
        )


def contents(operations: list[Operation]) -> Any:
    """The written records, by log: a repeated commit has a batch of its own, so compaction meets other batches."""
    records = defaultdict(list)
    for operation in operations:
        if isinstance(operation, Append):
            records[operation.log] += [record for batch in operation.batches for record in decode_records(batch.data)]
        elif not isinstance(operation, Replace):
            records[operation.log].append(operation)
    return dict(records)


def running(group: Group) -> list[Any]:
    """A group, but for the numbers of the requests that are parked in it."""
    members = [
        replace(m, join=m.join and RequestId(1), sync=m.sync and RequestId(1), heartbeat=m.heartbeat and RequestId(1))
        for m in group.members.values()
    ]
    return [replace(group, members={}), members]


def replace_fields(request: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(request, **fields)


class History:
    def __init__(self, *, holds: bool = False) -> None:
        self.now = START_MS
        config = replace(CONFIG, group_consumer_heartbeat_hold_enable=holds)
        self.tellers = [Teller(config, at_once=True), Teller(config, at_once=False)]
        self.correlation = 0
        self.offset = 0
        self.waiting: list[tuple[int, list[bytes]]] = []
        """Requests that arrived while a turn is under way or due."""
        self.known: dict[tuple[int, str], tuple[str, int]] = {}
        """The member id and generation of each member, by connection and group."""
        self.joining: dict[tuple[int, int], str] = {}
        """The group of each JoinGroup, by connection and correlation id."""
        self.epochs: dict[int, int] = {}
        """The state of each member of the consumer group."""
        self.beating: set[tuple[int, int]] = set()
        """Its heartbeats, by connection and correlation id."""
        for member in MEMBERS:
            broker_id = 1 + (member == 3)
            self.both([Opened(ConnectionId(member), broker_id, "127.0.0.1")])
            if SOFTWARE[member]:
                asked = ApiVersionsRequest(client_software_name=SOFTWARE[member], client_software_version="1")
                self.send(member, [(asked, 3)], False)

    def both(self, arrived: list[Arrived]) -> None:
        for teller in self.tellers:
            teller.step(arrived, self.now)

    def send(self, member: int, requests: list[tuple[Any, int]], waits: bool) -> None:
        frames = []
        for request, version in requests:
            self.correlation += 1
            frames.append(encode_request(request, version, self.correlation, CLIENT_IDS[member]))
        if waits or self.waiting:
            self.waiting.append((member, frames))
            return
        self.arrive([(member, frames)], alone=True)

    def arrive(self, chunks: list[tuple[int, list[bytes]]], *, alone: bool) -> None:
        for teller in self.tellers:
            before = {member: len(teller.answers[member]) for member in MEMBERS}
            left: list[Arrived] = []
            for member, frames in chunks:
                left.extend(teller.receive(member, frames, self.now, alone=alone and not left))
            if left or not alone:
                teller.step(left, self.now)
            self.learn(teller, before)

    def learn(self, teller: Teller, before: dict[int, int]) -> None:
        for member, seen in before.items():
            data = teller.answers[member][seen:]
            while len(data) >= 8 and not data.startswith(b"<closed>"):
                size = int.from_bytes(data[:4], "big")
                frame, data = data[4 : 4 + size], data[4 + size :]
                asked = member, int.from_bytes(frame[:4], "big")
                group = self.joining.get(asked)
                if asked in self.beating:
                    told = decode(ConsumerGroupHeartbeatResponse, 1, frame, 5)
                    self.epochs[member] = told.member_epoch if not told.error_code else 0
                if group is not None:
                    joined = decode(JoinGroupResponse, 3, frame, 4)
                    self.known[member, group] = (joined.member_id, joined.generation_id)

    # -- what may happen

    def join(self, member: int, group: str, waits: bool) -> None:
        self.joining[member, self.correlation + 1] = group
        known, _ = self.known.get((member, group), ("", -1))
        # If two sessions end in the same millisecond, their order is undefined. So these sessions never end together.
        joins = join_request(group, known, session_timeout_ms=10_000 + 7 * member)
        self.send(member, [(joins, 3)], waits)

    def sync(self, member: int, group: str, waits: bool) -> None:
        known, generation = self.known.get((member, group), ("", -1))
        self.send(member, [(SyncGroupRequest(group_id=group, generation_id=generation, member_id=known), 3)], waits)

    def heartbeat(self, member: int, group: str, other: str, version: int, count: int, waits: bool) -> None:
        """`other`: a wrong generation, an instance id, an OffsetCommit among them, another client's heartbeat."""
        known, generation = self.known.get((member, group), ("", -1))
        beat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=known)
        requests: list[tuple[Any, int]] = [(beat, version)] * count
        wrong = HeartbeatRequest(group_id=group, generation_id=generation + 1, member_id=known)
        if other == "generation":
            requests.insert(count // 2, (wrong, version))
        elif other == "commit":
            requests.insert(count // 2, (commit_request(7, group), 7))
        elif other == "instance":
            named = HeartbeatRequest(group_id=group, generation_id=generation, member_id=known, group_instance_id="i")
            requests.insert(count // 2, (named, 4))
        elif other == "somebody":
            theirs, at = self.known.get(((member + 1) % 4, group), ("", -1))
            of_theirs = HeartbeatRequest(group_id=group, generation_id=at, member_id=theirs)
            requests.insert(count // 2, (of_theirs, version))
        self.send(member, requests, waits)

    def commit(
        self, member: int, group: str, version: int, shape: int, other: str, count: int, together: bool, waits: bool
    ) -> None:
        """`shape`: the partitions, some of topics that may be absent; `other`: the field with a wrong value."""
        known, generation = self.known.get((member, group), ("", -1))
        if group == "h" and member in self.epochs:
            known, generation = f"member-{member}", self.epochs[member]
        if other == "nobody":
            known, generation = "", -1
        requests = []
        for n in range(count):
            self.offset += 1
            metadata = f"note {n}" if other == "metadata" and n % 2 else "note"
            topics = tuple(
                OffsetCommitRequestTopic(
                    name=name,
                    topic_id=self.topic_id(name),
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=self.offset + index, committed_metadata=metadata
                        )
                        for index in indexes
                    ),
                )
                for name, indexes in SHAPES[shape]
            )
            request = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=generation + (other == "generation" and n == count - 1),
                member_id=known,
                retention_time_ms=60_000 if other == "retention" and version < 5 else -1,
                topics=topics,
            )
            requests.append((request, version))
        for part in [requests] if together else [[one] for one in requests]:
            self.send(member, part, waits)

    def topic_id(self, name: str) -> bytes:
        topic = self.tellers[0].broker.state.topic(name)
        return bytes(16) if topic is None else topic.topic_id

    def delete(self, member: int, name: str) -> None:
        self.send(member, [(DeleteTopicsRequest(topic_names=(name,), timeout_ms=1000), 4)], False)

    def fence(self, member: int, enable: bool) -> None:
        """Commits to the consumer group are fenced by ownership, or no longer."""
        text = str(enable).lower()
        entry = AlterableConfig(name="consumer.ownership.fencing.enable", value=text)
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="h", configs=(entry,))
        self.send(member, [(AlterConfigsRequest(resources=(resource,)), 2)], False)

    def leave(self, member: int, group: str, waits: bool) -> None:
        identity = MemberIdentity(member_id=self.known.get((member, group), ("", -1))[0])
        self.send(member, [(LeaveGroupRequest(group_id=group, members=(identity,)), 4)], waits)

    def consumer(self, member: int, other: str, count: int, waits: bool) -> None:
        """A member of the other protocol joins, or heartbeats: the group becomes a consumer or a mixed group."""
        epoch = self.epochs.get(member, 0)
        beat = ConsumerGroupHeartbeatRequest(group_id="h", member_id=f"member-{member}", member_epoch=epoch)
        joins = replace_fields(beat, rebalance_timeout_ms=5000, subscribed_topic_names=("t",), topic_partitions=())
        requests: list[tuple[Any, int]] = [(beat if epoch else joins, 1)] * count
        if other == "epoch":
            requests.insert(count // 2, (replace_fields(beat, member_epoch=epoch + 1), 1))
        elif other == "owns":
            requests.insert(count // 2, (replace_fields(beat, topic_partitions=()), 1))
        elif other == "subscribes":
            requests.insert(count // 2, (replace_fields(beat, subscribed_topic_names=("t", "u")), 1))
        elif other == "leaves":
            requests.append((replace_fields(beat, member_epoch=-1), 1))
        self.beating.update((member, self.correlation + 1 + n) for n in range(len(requests)))
        self.send(member, requests, waits)

    def topic(self, member: int, name: str) -> None:
        creates = CreateTopicsRequest(topics=(CreatableTopic(name=name, num_partitions=2, replication_factor=1),))
        self.send(member, [(creates, 7), *[(self.bare(member), 1)] * 2], False)

    def bare(self, member: int) -> ConsumerGroupHeartbeatRequest:
        epoch = self.epochs.get(member, 0)
        return ConsumerGroupHeartbeatRequest(group_id="h", member_id=f"member-{member}", member_epoch=epoch)

    def configure(self, member: int, interval_ms: int) -> None:
        """The next answer to members of the consumer group."""
        entry = AlterableConfig(name="consumer.heartbeat.interval.ms", value=str(interval_ms))
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="h", configs=(entry,))
        self.send(member, [(AlterConfigsRequest(resources=(resource,)), 2), *[(self.bare(member), 1)] * 2], False)

    def turn(self) -> None:
        """The turn under way is over."""
        waiting, self.waiting = self.waiting, []
        self.arrive(waiting, alone=False)

    def advance(self, by: int) -> None:
        """Time passes; a deadline may be served too early, and never late."""
        self.turn()
        end = self.now + by
        while True:
            due = [at for teller in self.tellers if (at := teller.broker.next_deadline()) is not None and at <= end]
            if not due:
                break
            self.now = max(self.now, min(due))
            self.arrive([], alone=False)
        self.now = end

    def move(self, group: str, broker_id: int) -> None:
        self.turn()
        self.both([MoveGroup(group, broker_id)])

    def again(self, member: int) -> None:
        self.turn()
        self.both([Closed(ConnectionId(member))])
        self.both([Opened(ConnectionId(member), 1, "127.0.0.1")])

    def compare_answers(self) -> None:
        swift, plain = self.tellers
        for member in MEMBERS:
            assert swift.answers[member] == plain.answers[member], f"connection {member}"
        swift.broker.validate()

    def compare(self) -> None:
        self.compare_answers()
        swift, plain = self.tellers
        assert swift.left_behind() == plain.left_behind()


member, group, waits = st.sampled_from(MEMBERS), st.sampled_from(GROUPS), st.booleans()
heartbeat = st.tuples(
    st.just("heartbeat"),
    member,
    group,
    st.sampled_from(("", "", "", "generation", "commit", "instance", "somebody")),
    st.integers(0, 4),
    st.integers(1, 5),
    st.sampled_from((False, False, True)),
)
consumer = st.tuples(
    st.just("consumer"),
    member,
    st.sampled_from(("", "", "", "epoch", "owns", "subscribes", "leaves")),
    st.integers(1, 4),
    st.sampled_from((False, False, True)),
)
advance = st.tuples(st.just("advance"), st.sampled_from((1, 500, 3000, 9999, 10_000, 31_000)))
action = st.one_of(
    st.tuples(st.just("join"), member, group, waits),
    st.tuples(st.just("sync"), member, group, waits),
    heartbeat,
    heartbeat,
    heartbeat,
    advance,
    advance,
    st.tuples(st.just("leave"), member, group, waits),
    st.tuples(st.just("turn")),
    st.tuples(st.just("again"), member),
    st.one_of(
        consumer,
        consumer,
        st.tuples(st.just("topic"), member, st.sampled_from(("t", "u"))),
        st.tuples(st.just("configure"), member, st.sampled_from((5000, 6000))),
        st.tuples(st.just("move"), group, st.sampled_from((1, 2))),
    ),
)
WORKS = (
    ("move", "g", 1),
    ("move", "h", 1),
    ("join", 0, "g", False),
    ("join", 1, "g", False),
    ("advance", 3000),
    ("sync", 1, "g", False),
    ("sync", 0, "g", False),
)
"""Two members of a group, so that most histories have heartbeats that are answered at once."""


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_of_commits(seed: int) -> None:
    """Of a walk, since most of what Hypothesis draws is no commit that is taken."""
    chance = random.Random(seed)
    actions = [some_action(chance) for _ in range(60)]
    swift = play([("topic", 0, "t"), ("topic", 0, "u"), *WORKS, *actions], chance.random() < 0.5)
    assert all(swift.broker.repeats.commits.in_vain(ConnectionId(member)) <= IN_VAIN for member in MEMBERS)


def some_action(chance: random.Random) -> tuple[Any, ...]:
    who, group, waits = chance.choice((0, 0, 1, 1, 2, 3)), chance.choice("gggh"), chance.random() < 0.25
    usual = chance.random() < 0.6
    version, shape = (8, 0) if usual else (chance.choice((2, 4, 7, 8, 9, 10)), chance.randrange(len(SHAPES)))
    wrong = chance.choice(("metadata", "generation", "nobody", "retention")) if chance.random() < 0.15 else ""
    topic = chance.choice("tu")
    weights: dict[tuple[Any, ...], float] = {
        ("commit", who, group, version, shape, wrong, chance.randint(1, 6), chance.random() < 0.3, waits): 45,
        ("heartbeat", who, group, chance.choice(("", "", "commit", "somebody")), 4, chance.randint(1, 4), waits): 13,
        ("consumer", who, chance.choice(("", "", "epoch", "owns", "subscribes", "leaves")), 2, waits): 8,
        ("advance", chance.choice((1, 500, 3000, 9999, 10_000, 31_000))): 8,
        ("join", who, group, waits): 5,
        ("sync", who, group, waits): 5,
        ("leave", who, group, waits): 3,
        ("turn",): 3,
        ("again", who): 2,
        ("topic", who, topic): 2,
        ("delete", who, topic): 2,
        ("fence", who, usual): 1,
        ("configure", who, chance.choice((5000, 6000))): 1,
        ("move", group, chance.choice((1, 2))): 2,
    }
    [action] = chance.choices(list(weights), list(weights.values()))
    return action


@settings(max_examples=150, deadline=None)
@given(st.lists(action, max_size=40), st.booleans())
def test_random_histories(actions: list[Any], holds: bool) -> None:
    play([*WORKS, *actions], holds)


def play(actions: list[Any], holds: bool) -> Teller:
    history = History(holds=holds)
    for name, *arguments in actions:
        getattr(history, name)(*arguments)
        history.compare_answers()
    history.turn()
    history.compare()
    return history.tellers[0]


def test_heartbeats_are_answered_at_once() -> None:
    history = History()
    for name, *arguments in WORKS:
        getattr(history, name)(*arguments)
    history.heartbeat(1, "g", "", 4, 5, False)
    swift = history.tellers[0]
    assert swift.swift > 5 * 40
    before = swift.swift
    history.heartbeat(1, "g", "commit", 4, 4, False)
    history.compare()
    assert 0 < swift.swift - before < 5 * 40, "what is behind a commit waits for its turn"


def test_a_heartbeat_learns_that_another_session_has_ended() -> None:
    """Nothing arrives in between, and what came of the last heartbeat counts no more."""
    history = History()
    for name, *arguments in WORKS:
        getattr(history, name)(*arguments)
    for _ in range(6):
        history.heartbeat(1, "g", "", 4, 2, False)
        history.compare_answers()
        history.advance(6_000)
    history.compare()
    last = history.tellers[0].answers[1][-16:]
    assert int.from_bytes(last[-3:-1], "big") == ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_of_consumers_are_answered_at_once() -> None:
    history = History()
    history.move("h", 1)
    history.topic(0, "t")
    history.consumer(0, "", 1, False)
    history.advance(3000)
    for _ in range(3):
        history.consumer(0, "", 1, False)
        history.advance(500)
    swift = history.tellers[0]
    before = swift.swift
    history.consumer(0, "", 3, False)
    history.compare()
    assert swift.swift - before > 3 * 40
    before = swift.swift
    history.consumer(0, "owns", 2, False)
    history.compare()
    assert 0 < swift.swift - before < 2 * 60, "what tells more takes its turn, and what is behind it"


def beating(**config: Any) -> tuple[Wire, Any, bytes]:
    wire = Wire(**config)
    connection = wire.connect()
    create_topic(connection, "t", 3)
    joined = stable(connection)
    beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    return wire, connection, encode_request(beat, 4, 77, "client")


def test_the_shard_is_asked_again_only_after_its_version_has_changed() -> None:
    wire, connection, frame = beating(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0)
    beat = None

    def looks_again() -> bool:
        """The result of a heartbeat is kept until the next comparison."""
        nonlocal beat
        wire.now += 1_000
        former = beat.steady if beat is not None else None
        answers, size = wire.broker.at_once(connection.id, frame * 3, wire.now)
        assert (size, len(answers)) == (3 * len(frame), 48)
        wire.broker.validate()
        [beat] = wire.broker.repeats.heartbeats.kept(connection.id).values()
        assert beat.steady is not None
        return beat.steady is not former

    assert looks_again()
    assert not looks_again()
    connection.ask(commit_request(7, "g"), 7)
    assert not looks_again(), "a commit only makes a session longer"
    connection.ask(join_request("another", ""), 3)
    assert looks_again()
    assert not looks_again()
    wire.advance(60_000)
    assert wire.broker.at_once(connection.id, frame, wire.now) == (b"", 0), "the session is over"


def test_members_that_share_a_connection() -> None:
    """Each heartbeat is read once, however they take turns; and only so many are kept."""
    wire = Wire(group_initial_rebalance_delay_ms=0)
    connection = wire.connect()
    create_topic(connection, "t", 3)
    frames = []
    for index in range(SHARING + 10):
        joined = connection.ask(join_request(f"g{index}"), 3)
        beat = HeartbeatRequest(group_id=f"g{index}", generation_id=joined.generation_id, member_id=joined.member_id)
        frames.append(encode_request(beat, 4, index, "client"))
    some = frames[:16]
    whole = b"".join(some)
    for _ in range(2):
        answers, size = wire.broker.at_once(connection.id, whole, wire.now)
        assert (size, len(answers)) == (len(whole), 16 * len(some))
        assert [int.from_bytes(answers[at + 4 : at + 8], "big") for at in range(0, len(answers), 16)] == list(range(16))
    kept = wire.broker.repeats.heartbeats.kept
    beats = kept(connection.id)
    wire.broker.at_once(connection.id, whole, wire.now)
    assert kept(connection.id) == beats, "nothing is read again"
    chance = random.Random(3)
    for _ in range(50):
        order = chance.choices(range(len(some)), k=5)
        answers, _ = wire.broker.at_once(connection.id, b"".join(some[index] for index in order), wire.now)
        assert [int.from_bytes(answers[at + 4 : at + 8], "big") for at in range(0, len(answers), 16)] == order
        wire.broker.validate()
    assert kept(connection.id) == beats
    answers, size = wire.broker.at_once(connection.id, b"".join(frames), wire.now)
    assert len(answers) == 16 * len(frames)
    assert wire.broker.repeats.heartbeats.sharing == len(kept(connection.id)) <= SHARING


def test_the_number_of_kept_heartbeats_on_shared_connections_is_limited() -> None:
    wire = Wire(group_initial_rebalance_delay_ms=0)
    heartbeats = wire.broker.repeats.heartbeats
    heartbeats.most_sharing = 5
    first, second = wire.connect(), wire.connect()
    create_topic(second, "t", 1)
    frames = []
    for index in range(4):
        joined = first.ask(join_request(f"g{index}"), 3)
        beat = HeartbeatRequest(group_id=f"g{index}", generation_id=joined.generation_id, member_id=joined.member_id)
        frames.append(encode_request(beat, 4, index, "client"))
    for connection in (first, second, first, second):
        answers, _ = wire.broker.at_once(connection.id, b"".join(frames), wire.now)
        assert len(answers) == 16 * len(frames)
        assert 2 <= heartbeats.sharing <= 6
    for connection in (first, second):
        wire.step(Closed(connection.id))
    assert heartbeats.sharing == 0


def test_only_whole_frames_are_taken() -> None:
    wire, connection, frame = beating()
    for end in range(len(frame)):
        assert wire.broker.at_once(connection.id, frame[:end], wire.now) == (b"", 0)
        answers, size = wire.broker.at_once(connection.id, frame + frame[:end], wire.now)
        assert (len(answers), size) == (16, len(frame))
    assert wire.broker.at_once(connection.id, b"", wire.now) == (b"", 0)


@pytest.mark.parametrize("config", [{"socket_request_max_bytes": 60}, {"group_request_max_bytes": 60}])
def test_limits_hold(config: dict[str, int]) -> None:
    wire, connection, frame = beating()
    assert wire.broker.at_once(connection.id, frame, wire.now)[1]
    limited = Broker(
        Config(**config, listeners="127.0.0.1:9092"),
        MemoryStorage(),
        now=wire.now,
        random=random.Random(1),
        endpoints=[Endpoint("127.0.0.1", 9092)],
    ).load()
    limited.step([Opened(ConnectionId(1), 1, "127.0.0.1")], wire.now)
    assert limited.at_once(ConnectionId(1), frame, wire.now) == (b"", 0)


def test_nothing_is_taken_from_a_stranger_or_at_the_end() -> None:
    wire, connection, frame = beating()
    assert wire.broker.at_once(ConnectionId(99), frame, wire.now) == (b"", 0)
    wire.step(Shutdown())
    assert wire.broker.at_once(connection.id, frame, wire.now) == (b"", 0)
