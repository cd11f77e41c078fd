"""Heartbeats that are answered without a turn or a handler, and repeated commits: the same answers as by the handlers.

Two brokers get the same random history. One gets bytes as the server hands them over, may answer at once, and repeats
commits. The other has no shortcuts: every request takes a turn and a handler. The bytes on each connection are the
same, and so is the state: records, deadlines, parked requests.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from group_driver import (
    commit_request,
    consumer_beat,
    consumer_join,
    heartbeat_request,
    join_request,
    stable,
    sync_request,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_driver import GROUP, Connection, Wire, with_topic

from kohort.broker.messages import changed
from kohort.broker.shortcuts.commits import IN_VAIN
from kohort.broker.shortcuts.heartbeats import SHARING
from kohort.broker.turn import (
    Arrived,
    Closed,
    ConnectionId,
    Disconnect,
    Frame,
    MoveGroup,
    Opened,
    Release,
    Shutdown,
    Turn,
)
from kohort.coordinator.classic.group import Group
from kohort.coordinator.events import RequestId
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
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic

GROUPS = ("g", "h")
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


class Teller(Wire):
    """One of the two brokers."""

    def __init__(self, *, at_once: bool, holds: bool) -> None:
        self.is_swift = at_once
        self.answers: dict[int, bytes] = defaultdict(bytes)
        self.written: list[Operation] = []
        self.swift = 0
        super().__init__(
            brokers=2,
            offsets_topic_num_partitions=3,
            group_initial_rebalance_delay_ms=500,
            group_max_size=3,
            group_consumer_heartbeat_hold_enable=holds,
        )
        if not at_once:
            repeats = self.broker.repeats
            for unable in (repeats.heartbeats, repeats.commits):
                unable.longest = 0

    def end(self, turn: Turn) -> None:
        self.written.extend(turn.operations)
        super().end(turn)

    def release(self, release: Release) -> None:
        self.answers[release.connection] += b"<closed>" if isinstance(release, Disconnect) else release.whole

    def receive(self, connection: int, frames: list[bytes], *, alone: bool) -> list[Arrived]:
        """The part of arriving bytes that needs a turn; `alone`: no other request waits for a turn."""
        whole = b"".join(frames)
        size = 0
        if self.is_swift and alone:
            answers, size = self.broker.at_once(ConnectionId(connection), whole, self.now)
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
            {api: count.handled for api, count in state.requests.items() if count.handled},
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


class History:
    def __init__(self, *, holds: bool = False) -> None:
        self.tellers = [Teller(at_once=at_once, holds=holds) for at_once in (True, False)]
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
            teller.step(*arrived)

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
                left.extend(teller.receive(member, frames, alone=alone and not left))
            if left or not alone:
                teller.step(*left)
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
        known, _ = self.member(member, group)
        # If two sessions end in the same millisecond, their order is undefined. So these sessions never end together.
        joins = join_request(group, known, session_timeout_ms=10_000 + 7 * member)
        self.send(member, [(joins, 3)], waits)

    def sync(self, member: int, group: str, waits: bool) -> None:
        self.send(member, [(sync_request(*self.member(member, group), group=group), 3)], waits)

    def member(self, member: int, group: str) -> tuple[str, int]:
        """The member id and the generation that this connection knows."""
        return self.known.get((member, group), ("", -1))

    def heartbeat(self, member: int, group: str, other: str, version: int, count: int, waits: bool) -> None:
        """`other`: the request among them that is not the same."""
        known, generation = self.member(member, group)
        theirs, at = self.member((member + 1) % 4, group)
        beat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=known)
        others = {
            "generation": (changed(beat, generation_id=generation + 1), version),
            "commit": (commit_request(7, group), 7),
            "instance": (changed(beat, group_instance_id="i"), 4),
            "somebody": (changed(beat, generation_id=at, member_id=theirs), version),
        }
        requests: list[tuple[Any, int]] = [(beat, version)] * count
        if other:
            requests.insert(count // 2, others[other])
        self.send(member, requests, waits)

    def commit(
        self, member: int, group: str, version: int, shape: int, other: str, count: int, together: bool, waits: bool
    ) -> None:
        """`shape`: the partitions, some of topics that may be absent; `other`: the field with a wrong value."""
        known, generation = self.member(member, group)
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
            fields = {
                "generation_id_or_member_epoch": generation + (other == "generation" and n == count - 1),
                "member_id": known,
                "retention_time_ms": 60_000 if other == "retention" and version < 5 else -1,
                "topics": topics,
            }
            requests.append((commit_request(0, group, **fields), version))
        for part in [requests] if together else [[one] for one in requests]:
            self.send(member, part, waits)

    def topic_id(self, name: str) -> bytes:
        topic = self.tellers[0].broker.state.topic(name)
        return bytes(16) if topic is None else topic.topic_id

    def delete(self, member: int, name: str) -> None:
        self.send(member, [(DeleteTopicsRequest(topic_names=(name,), timeout_ms=1000), 4)], False)

    def fence(self, member: int, enable: bool) -> None:
        """Commits to the consumer group are fenced by ownership, or no longer."""
        self.alter(member, "consumer.ownership.fencing.enable", str(enable).lower())

    def alter(self, member: int, name: str, value: str, *behind: tuple[Any, int]) -> None:
        entries = (AlterableConfig(name=name, value=value),)
        resource = AlterConfigsResource(resource_type=GROUP, resource_name="h", configs=entries)
        self.send(member, [(AlterConfigsRequest(resources=(resource,)), 2), *behind], False)

    def leave(self, member: int, group: str, waits: bool) -> None:
        identity = MemberIdentity(member_id=self.member(member, group)[0])
        self.send(member, [(LeaveGroupRequest(group_id=group, members=(identity,)), 4)], waits)

    def consumer(self, member: int, other: str, count: int, waits: bool) -> None:
        """A member of the other protocol joins, or heartbeats: the group becomes a consumer or a mixed group."""
        beat = self.bare(member)
        joins = consumer_join(beat.member_id, group="h", rebalance_timeout_ms=5000)
        others: dict[str, dict[str, Any]] = {
            "epoch": {"member_epoch": beat.member_epoch + 1},
            "owns": {"topic_partitions": ()},
            "subscribes": {"subscribed_topic_names": ("t", "u")},
            "leaves": {"member_epoch": -1},
        }
        requests = [(beat if beat.member_epoch else joins, 1)] * count
        if other:
            requests.insert(count if other == "leaves" else count // 2, (changed(beat, **others[other]), 1))
        self.beating.update((member, self.correlation + 1 + n) for n in range(len(requests)))
        self.send(member, requests, waits)

    def bare(self, member: int) -> ConsumerGroupHeartbeatRequest:
        return consumer_beat(f"member-{member}", self.epochs.get(member, 0), group="h")

    def topic(self, member: int, name: str) -> None:
        creates = CreateTopicsRequest(topics=(CreatableTopic(name=name, num_partitions=2, replication_factor=1),))
        self.send(member, [(creates, 7), *[(self.bare(member), 1)] * 2], False)

    def configure(self, member: int, interval_ms: int) -> None:
        """The next answer to members of the consumer group."""
        self.alter(member, "consumer.heartbeat.interval.ms", str(interval_ms), *[(self.bare(member), 1)] * 2)

    def turn(self) -> None:
        """The turn under way is over."""
        waiting, self.waiting = self.waiting, []
        self.arrive(waiting, alone=False)

    def advance(self, by: int) -> None:
        """Time passes; a deadline may be served too early, and never late."""
        self.turn()
        end = self.tellers[0].now + by
        while due := [at for teller in self.tellers if (at := teller.broker.next_deadline()) is not None and at <= end]:
            self.clock(min(due))
            self.arrive([], alone=False)
        self.clock(end)

    def clock(self, now: int) -> None:
        for teller in self.tellers:
            teller.now = max(teller.now, now)

    def move(self, group: str, broker_id: int) -> None:
        self.turn()
        self.both([MoveGroup(group, broker_id)])

    def again(self, member: int) -> None:
        self.turn()
        self.both([Closed(ConnectionId(member))])
        self.both([Opened(ConnectionId(member), 1, "127.0.0.1")])

    def do(self, *actions: tuple[Any, ...]) -> None:
        for name, *arguments in actions:
            getattr(self, name)(*arguments)
            self.compare_answers()

    def compare_answers(self) -> None:
        swift, plain = self.tellers
        for member in MEMBERS:
            assert swift.answers[member] == plain.answers[member], f"connection {member}"
        swift.broker.validate()

    def compare(self) -> None:
        self.turn()
        self.compare_answers()
        swift, plain = self.tellers
        assert swift.left_behind() == plain.left_behind()


WHO, WHERE, TOPICS, RARELY = (0, 0, 1, 1, 2, 3), "gggh", "tu", (False, False, False, True)
SOMETIMES_WRONG = (*[""] * 22, "metadata", "generation", "nobody", "retention")
USUAL_VERSION, USUAL_SHAPE = (*[8] * 18, 2, 4, 7, 8, 9, 10), (*[0] * 15, 1, 2, 3, 4)
AMONG = ("", "", "", "", "generation", "commit", "instance", "somebody")
ACTIONS: dict[str, tuple[int, tuple[Sequence[Any], ...]]] = {
    "commit": (45, (WHO, WHERE, USUAL_VERSION, USUAL_SHAPE, SOMETIMES_WRONG, range(1, 7), RARELY, RARELY)),
    "heartbeat": (16, (WHO, WHERE, AMONG, (4, 4, *range(5)), range(1, 6), RARELY)),
    "consumer": (8, (WHO, ("", "", "", "epoch", "owns", "subscribes", "leaves"), range(1, 5), RARELY)),
    "advance": (8, ((1, 500, 3000, 9999, 10_000, 31_000),)),
    "join": (5, (WHO, WHERE, RARELY)),
    "sync": (5, (WHO, WHERE, RARELY)),
    "leave": (3, (WHO, WHERE, RARELY)),
    "turn": (3, ()),
    "again": (2, (WHO,)),
    "topic": (2, (WHO, TOPICS)),
    "delete": (2, (WHO, TOPICS)),
    "move": (2, (WHERE, (1, 2))),
    "fence": (1, (WHO, (True, True, False))),
    "configure": (1, (WHO, (5000, 6000))),
}
"""Each action's weight, and the values of its arguments."""
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
def test_histories_of_seeds(seed: int) -> None:
    """Most commits of the usual form are repeated, so that some are answered from the cache."""
    chance = random.Random(seed)
    history = History(holds=chance.random() < 0.5)
    history.do(("topic", 0, "t"), ("topic", 0, "u"), *WORKS)
    for name in chance.choices(list(ACTIONS), [weight for weight, _ in ACTIONS.values()], k=60):
        history.do((name, *map(chance.choice, ACTIONS[name][1])))
    history.compare()
    kept = history.tellers[0].broker.repeats.commits
    assert all(kept.in_vain(ConnectionId(member)) <= IN_VAIN for member in MEMBERS)


DRAWN = [
    st.tuples(st.just(name), *map(st.sampled_from, values))
    for name, (weight, values) in ACTIONS.items()
    for _ in range(1 + weight // 8)
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(DRAWN), max_size=40), st.booleans())
def test_random_histories(actions: list[tuple[Any, ...]], holds: bool) -> None:
    history = History(holds=holds)
    history.do(*WORKS, *actions)
    history.compare()


def test_heartbeats_are_answered_at_once() -> None:
    history = History()
    history.do(*WORKS, ("heartbeat", 1, "g", "", 4, 5, False))
    swift = history.tellers[0]
    assert swift.swift > 5 * 40
    before = swift.swift
    history.heartbeat(1, "g", "commit", 4, 4, False)
    history.compare()
    assert 0 < swift.swift - before < 5 * 40, "what is behind a commit waits for its turn"


def test_a_heartbeat_learns_that_another_session_has_ended() -> None:
    """No other request arrives in between, and the cached answer to the last heartbeat is no longer valid."""
    history = History()
    history.do(*WORKS, *[("heartbeat", 1, "g", "", 4, 2, False), ("advance", 6_000)] * 6)
    history.compare()
    last = history.tellers[0].answers[1][-16:]
    assert int.from_bytes(last[-3:-1], "big") == ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_of_consumers_are_answered_at_once() -> None:
    history = History()
    beat = ("consumer", 0, "", 1, False)
    history.do(("move", "h", 1), ("topic", 0, "t"), beat, ("advance", 3000), *[beat, ("advance", 500)] * 3)
    swift = history.tellers[0]
    before = swift.swift
    history.consumer(0, "", 3, False)
    history.compare()
    assert swift.swift - before > 3 * 40
    before = swift.swift
    history.consumer(0, "owns", 2, False)
    history.compare()
    assert 0 < swift.swift - before < 2 * 60, "what tells more takes its turn, and what is behind it"


def beating(**config: Any) -> tuple[Wire, Connection, bytes]:
    """A member of a stable group, and the frame of its heartbeat."""
    connection = with_topic(3, **config)
    return connection.wire, connection, encode_request(heartbeat_request(stable(connection)), 4, 77, "client")


def sharing(connection: Connection, count: int) -> list[bytes]:
    """The heartbeats of members of several groups, which share a connection."""
    names = [f"g{index}" for index in range(count)]
    beats = [heartbeat_request(connection.ask(join_request(name), 3), name) for name in names]
    return [encode_request(beat, 4, index, "client") for index, beat in enumerate(beats)]


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
    connection = with_topic(3, group_initial_rebalance_delay_ms=0)
    wire = connection.wire
    frames = sharing(connection, SHARING + 10)
    kept = wire.broker.repeats.heartbeats.kept

    def answered(order: list[int]) -> None:
        whole = b"".join(frames[index] for index in order)
        answers, size = wire.broker.at_once(connection.id, whole, wire.now)
        assert size == len(whole)
        assert [int.from_bytes(answers[at + 4 : at + 8], "big") for at in range(0, len(answers), 16)] == order
        wire.broker.validate()

    answered(list(range(16)))
    answered(list(range(16)))
    beats = kept(connection.id)
    chance = random.Random(3)
    for _ in range(50):
        answered(chance.choices(range(16), k=5))
    assert kept(connection.id) == beats, "nothing is read again"
    answers, _ = wire.broker.at_once(connection.id, b"".join(frames), wire.now)
    assert len(answers) == 16 * len(frames)
    assert wire.broker.repeats.heartbeats.sharing == len(kept(connection.id)) <= SHARING


def test_the_number_of_kept_heartbeats_on_shared_connections_is_limited() -> None:
    wire = Wire(group_initial_rebalance_delay_ms=0)
    heartbeats = wire.broker.repeats.heartbeats
    heartbeats.most_sharing = 5
    first, second = wire.connect(), wire.connect()
    second.create_topic("t", 1)
    frames = sharing(first, 4)
    for connection in (first, second, first, second):
        answers, _ = wire.broker.at_once(connection.id, b"".join(frames), wire.now)
        assert len(answers) == 16 * len(frames)
        assert 2 <= heartbeats.sharing <= 6
    for connection in (first, second):
        wire.step(Closed(connection.id))
    assert heartbeats.sharing == 0


@pytest.mark.parametrize("config", [{"socket_request_max_bytes": 60}, {"group_request_max_bytes": 60}])
def test_limits_hold(config: dict[str, int]) -> None:
    wire, connection, frame = beating()
    assert wire.broker.at_once(connection.id, frame, wire.now)[1]
    limited = Wire(**config).connect()
    assert limited.wire.broker.at_once(limited.id, frame, wire.now) == (b"", 0)


def test_only_whole_frames_of_known_connections_are_taken_and_none_at_the_end() -> None:
    wire, connection, frame = beating()
    for end in range(len(frame)):
        assert wire.broker.at_once(connection.id, frame[:end], wire.now) == (b"", 0)
        answers, size = wire.broker.at_once(connection.id, frame + frame[:end], wire.now)
        assert (len(answers), size) == (16, len(frame))
    assert wire.broker.at_once(ConnectionId(99), frame, wire.now) == (b"", 0)
    wire.step(Shutdown())
    assert wire.broker.at_once(connection.id, frame, wire.now) == (b"", 0)
