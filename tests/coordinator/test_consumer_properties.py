"""Random histories of consumer groups: lost and doubled heartbeats, members and coordinators that crash, topics that
come, grow and go.

Clients behave like real ones: they begin with epoch 0 and no partitions, use their assigned partitions until they
have given them up, report their partitions once after each change, and report everything again after a lost answer.
What must hold:

- between two steps, what the shard promises (invariants.py), among it one owner a partition;
- a client uses nothing that the group has not assigned to it, or waits for it to give up;
- a client that does all this is never fenced with 110, however many answers it misses;
- live state is the replay of the log, and of what compaction leaves of it; a group's epoch never goes back;
- once the faults end, all members have their target in bounded time, every partition of their topics exactly once.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from consumer_world import TopicNames, partitions_of
from history_world import CLIENTS, GROUPS, HistoryWorld, histories, play
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.config import Config
from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.consumer.assignment_records import by_topic
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.heartbeat import Heartbeats
from kohort.coordinator.consumer.responses import state_name
from kohort.coordinator.events import (
    AssignmentMade,
    Client,
    Effects,
    GroupConfigsChanged,
    GroupRequested,
    PatternsAsked,
    Record,
    RequestAbandoned,
    RequestId,
    Task,
    TopicsChanged,
    TopicsDeleted,
)
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.patterns.regex import search
from kohort.coordinator.topics import Topics
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

SESSION_MS = 6000
CONFIG = Config(
    group_consumer_max_size=4,
    group_consumer_session_timeout_ms=SESSION_MS,
    group_consumer_heartbeat_interval_ms=2000,
    group_consumer_assignment_interval_ms=1000,
    group_max_former_groups=0,
    offsets_retention_minutes=1,
)
SUBSCRIPTIONS = ((("t",), ""), (("t", "u"), ""), (("u",), ""), ((), ""), ((), "[tu]"), ((), "t.?"), (("u",), "[^u]"))
"""Names of topics, and a regular expression."""


class Consumer:
    """A client process of a group, and what it knows."""

    def __init__(self, group: str, name: str) -> None:
        self.group = group
        self.name = name
        self.instance = name if name in "st" else None
        self.lives = 0
        self.topics, self.pattern = SUBSCRIPTIONS[0]
        self.start()

    def start(self) -> None:
        """A new process, under a new id; nothing of the last one is known."""
        self.lives += 1
        self.member_id = f"{self.name}{self.lives}"
        self.begin_again()

    def begin_again(self) -> None:
        self.epoch = 0
        self.uses: frozenset[Any] = frozenset()
        self.assigned: frozenset[Any] = frozenset()
        self.says_all = True
        self.says_owned = True
        self.asked: RequestId | None = None
        """The request whose answer it awaits."""

    def work(self) -> None:
        """Give up what is to be given up, take what is new, and say so with the next heartbeat."""
        if self.uses != self.assigned:
            self.uses = self.assigned
            self.says_owned = True

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        # The coordinator would believe a client that reports its partitions before it has taken its last assignment.
        says_all = self.epoch == 0 or (self.says_all and self.uses == self.assigned)
        owned = None
        if says_all or (self.says_owned and self.uses == self.assigned):
            owned = tuple(HeartbeatTopicPartitions(topic_id=t, partitions=p) for t, p in by_topic(self.uses))
        self.says_all = self.says_all and not says_all
        self.says_owned = self.says_owned and owned is None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=(4000, 10_000)[len(self.topics) % 2] if says_all else -1,
            subscribed_topic_names=self.topics if says_all else None,
            subscribed_topic_regex=self.pattern if says_all else None,
            topic_partitions=owned,
        )

    def wants(self, topic: str) -> bool:
        return topic in self.topics or re.fullmatch(self.pattern, topic) is not None

    def misses_answer(self) -> None:
        self.asked = None
        self.says_all = True

    def learn(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self.asked = None
        if answer.error_code:
            assert answer.error_code != ErrorCode.FENCED_MEMBER_EPOCH, answer.error_message
            self.says_all = True
            if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                self.begin_again()
            return
        assert answer.member_epoch >= self.epoch, "a member's epoch goes back"
        assert answer.member_epoch > 0, "a member is told no epoch"
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = partitions_of(answer.assignment.topic_partitions)
            self.says_owned = True


class World(HistoryWorld):
    config = CONFIG

    def __init__(self) -> None:
        self.names = TopicNames()
        self.counts = {"t": 3}
        self.catalog: Topics = self.names.put(self.counts)
        self.clients = {(group, name): Consumer(group, name) for group in GROUPS for name in CLIENTS}
        self.running: set[tuple[str, str]] = set()
        """Clients that have heartbeated and not died."""
        self.open: dict[RequestId, Consumer | None] = {}
        """Requests that wait for a reply, with the waiting client; None if no client waits any more."""
        self.tasks: list[Task] = []
        self.effects: list[Effects] = []
        """Of every step."""
        self.overrides: dict[str, dict[str, str]] = {}
        self.epochs = dict.fromkeys(GROUPS, 0)
        super().__init__()

    def _load(self) -> None:
        self.tasks.clear()
        self.step(TopicsChanged(self.catalog))
        for group_id, overrides in self.overrides.items():
            self.step(GroupConfigsChanged(group_id, overrides))
        super()._load()

    # -- steps and turns

    def after_step(self, effects: Effects) -> None:
        self.effects.append(effects)
        self.tasks.extend(effects.tasks)
        self.check_uses()

    def check_uses(self) -> None:
        """A client owns the partitions that it uses, as long as it is a member. So no two clients use the same
        partition."""
        for place in self.running:
            client = self.clients[place]
            group = self.shard.consumers.groups.get(client.group)
            if group is not None and client.member_id in group.members and client.epoch > 0:
                state = group.state_of(client.member_id)
                lost = client.uses - state.assigned.keys() - state.revoking.keys()
                assert not lost, f"{client.member_id} uses {lost}, which the group took from it"

    def end_turn(self) -> None:
        self.log.extend(Record(record.key, record.value) for record in self.turn_records)
        self.turn_records.clear()
        replies, self.turn_replies = self.turn_replies, []
        for reply in replies:
            client = self.open.pop(reply.request_id)  # KeyError: answered twice, or never asked
            if client is not None and client.asked == reply.request_id:
                client.learn(reply.body)
        assert set(self.shard.running.parked) <= set(self.open)
        for group_id, group in self.shard.consumers.groups.items():
            assert group.epoch >= self.epochs[group_id], "a group's epoch goes back"
            self.epochs[group_id] = group.epoch
        self.check_log()
        self.check_uses()

    def check_log(self) -> None:
        compacted = {record.key: record for record in self.log}
        last = {record.key: place for place, record in enumerate(self.log)}
        in_order = sorted(compacted.values(), key=lambda record: last[record.key])
        for records in (self.log, in_order, [record for record in in_order if record.value is not None]):
            replayed = HardState()
            for record in records:
                replayed.apply(record)
            assert replayed == self.shard.hard

    # -- what may happen

    def ask(self, client: Consumer | None, body: Any, version: int = 1, hold_ms: int = 0) -> RequestId:
        self.last_request += 1
        request_id = RequestId(self.last_request)
        self.open[request_id] = client
        if client is not None:
            client.asked = request_id
        self.step(GroupRequested(request_id, version, Client("c", "/10.0.0.1"), body, str(self.last_request), hold_ms))
        return request_id

    def beat(self, group: str, name: str, hold_ms: int, fate: str) -> None:
        """fate: the answer is lost, the request arrives twice (its second answer counts), or it does not arrive."""
        client = self.clients[group, name]
        self.running.add((group, name))
        if client.asked is not None:
            client.misses_answer()
        request = client.heartbeat()
        if fate != "no request":
            self.ask(client, request, 1, hold_ms)
        if fate == "twice":
            self.ask(client, request, 1, hold_ms)
        if fate in ("no answer", "no request"):
            client.misses_answer()

    def work(self, group: str, name: str) -> None:
        self.clients[group, name].work()
        self.check_uses()

    def subscribe(self, group: str, name: str, topics: int) -> None:
        client = self.clients[group, name]
        client.topics, client.pattern = SUBSCRIPTIONS[topics]
        client.says_all = True

    def die(self, group: str, name: str) -> None:
        """And start again, at some time; a static member under the name of its instance."""
        self.running.discard((group, name))
        self.clients[group, name].start()

    def leave(self, group: str, name: str, epoch: int) -> None:
        """The client leaves by its own decision and ignores the answer. -2 is for static members."""
        client = self.clients[group, name]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=client.member_id, member_epoch=epoch, instance_id=client.instance
        )
        self.running.discard((group, name))
        self.ask(None, request)
        if self.lives_on(name):
            client.begin_again()
        else:
            client.start()

    def lives_on(self, name: str) -> bool:
        """True if the process subscribes again under its old id. Some do."""
        return name in "as"

    def former(self, group: str, name: str, epoch: int) -> None:
        """A heartbeat of a client's former life comes late."""
        client = self.clients[group, name]
        if client.lives > 1:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=f"{name}{client.lives - 1}",
                member_epoch=max(self.epochs[group] - epoch, 1),
                instance_id=client.instance,
                topic_partitions=(),
            )
            self.ask(None, request)

    def make(self, fails: bool) -> None:
        """The oldest target that was asked for is made; or the topics that match are found."""
        if self.tasks:
            task = self.tasks.pop(0)
            if isinstance(task, PatternsAsked):
                self.step(search(task))
            else:
                result = "no luck" if fails else assigned(BUILT_IN[task.assignor], task.spec)
                self.step(AssignmentMade(task.group_id, task.epoch, task.assignor, result))

    def configure(self, group: str, name: str, value: int | str) -> None:
        overrides = self.overrides.setdefault(group, {})
        overrides[name] = str(self.now + value if isinstance(value, int) and "timestamp" in name else value)
        self.step(GroupConfigsChanged(group, overrides))

    def vanish(self, choice: int) -> None:
        """A connection with a held heartbeat closes."""
        parked = sorted(self.shard.running.parked)
        if parked:
            request_id = parked[choice % len(parked)]
            client = self.open.pop(request_id)
            if client is not None and client.asked == request_id:
                client.misses_answer()
            self.step(RequestAbandoned(request_id))

    def commit_of(self, client: Any) -> OffsetCommitRequest | None:
        places = [
            OffsetCommitRequestTopic(
                name=self.names.printed[topic_id].rstrip("'"),
                topic_id=topic_id,
                partitions=(OffsetCommitRequestPartition(partition_index=index, committed_offset=self.last_request),),
            )
            for topic_id, index in sorted(client.uses)
        ]
        if client.epoch <= 0:
            return None
        return OffsetCommitRequest(
            group_id=client.group,
            generation_id_or_member_epoch=client.epoch,
            member_id=client.member_id,
            group_instance_id=client.instance,
            topics=tuple(places),
        )

    def commit(self, group: str, name: str) -> None:
        client = self.clients[group, name]
        request = self.commit_of(client)
        if request is None:
            return
        is_member = client.member_id in getattr(self.shard.consumers.groups.get(group), "members", ())
        request_id = self.ask(None, request, 9)
        reply = next(reply for reply in self.turn_replies if reply.request_id == request_id)
        if is_member and (group, name) in self.running:
            assert isinstance(reply.body, OffsetCommitResponse)
            errors = {p.error_code for topic in reply.body.topics for p in topic.partitions}
            assert errors <= {0}, f"a member may not commit what it uses: {errors}"
            fence = self.shard.fetch_fence(group, client.member_id, client.epoch)
            assert not any(map(fence, client.uses)), "a member may not fetch what it uses"

    def topic(self, name: str, partitions: int) -> None:
        """Created or grown, and deleted with 0 partitions."""
        if partitions == 0:
            if self.counts.pop(name, None):
                self.step(TopicsDeleted((name,)))
        else:
            self.counts[name] = max(partitions, self.counts.get(name, 0))
        self.catalog = self.names.put(self.counts)
        self.step(TopicsChanged(self.catalog))

    def delete(self, group: str) -> None:
        self.ask(None, DeleteGroupsRequest(groups_names=(group,)), 2)

    def classic_join(self, group: str) -> None:
        """A client of the classic protocol, which stays for a session if it may."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0"),),
        )
        self.ask(None, request, 3)

    def crash(self) -> None:
        self.turn_records.clear()
        self.turn_replies.clear()
        for client in self.open.values():
            if client is not None and client.asked in self.open:
                client.misses_answer()
        self.open.clear()
        self.shard = self._started()

    def cooperate(self, group: str, names: tuple[str, ...], seconds: int) -> None:
        """Clients that do what they should, twice a second each."""
        for second in range(2 * seconds):
            for name in names:
                client = self.clients[group, name]
                client.work()
                if client.asked is None:
                    self.beat(group, name, second % 3 * 900, "")
                    self.commit(group, name)
                self.end_turn()
            self.advance(500)
            self.make(False)
            self.end_turn()


group = st.sampled_from(GROUPS[:1] * 3 + GROUPS[1:])
name = st.sampled_from(CLIENTS)
static = st.sampled_from(("s", "t"))
topic = st.sampled_from(("t", "u"))
fate = st.sampled_from(("", "", "", "no answer", "no answer", "twice", "no request"))
hold = st.sampled_from((0, 0, 1000, 10_000))
beat = st.tuples(st.just("beat"), group, name, hold, fate)
work = st.tuples(st.just("work"), group, name)
end_turn = st.tuples(st.just("end_turn"))
cooperate = st.tuples(
    st.just("cooperate"), group, st.lists(name, min_size=1, max_size=4, unique=True).map(tuple), st.integers(1, 5)
)
action = st.one_of(
    beat,
    beat,
    beat,
    beat,
    beat,
    work,
    work,
    work,
    cooperate,
    cooperate,
    cooperate,
    st.tuples(st.just("subscribe"), group, name, st.integers(0, len(SUBSCRIPTIONS) - 1)),
    st.tuples(st.just("die"), group, name),
    st.tuples(st.just("leave"), group, name, st.just(-1)),
    st.tuples(st.just("leave"), group, static, st.just(-2)),
    st.tuples(st.just("former"), group, name, st.integers(0, 3)),
    st.tuples(st.just("answer_held"), st.integers(0, 3)),
    st.tuples(st.just("vanish"), st.integers(0, 3)),
    st.tuples(st.just("commit"), group, name),
    st.tuples(st.just("topic"), topic, st.sampled_from((0, 1, 2, 4, 5))),
    st.tuples(st.just("make"), st.booleans()),
    st.tuples(st.just("configure"), group, st.just("consumer.assignor"), st.sampled_from(("lag", "range", ""))),
    st.tuples(st.just("configure"), group, st.just("consumer.handover.max.partitions"), st.sampled_from((0, 1, 2))),
    st.tuples(st.just("configure"), group, st.just("consumer.initial.rebalance.delay.ms"), st.sampled_from((0, 3000))),
    st.tuples(st.just("configure"), group, st.just("consumer.hold.until.timestamp.ms"), st.sampled_from((0, 8000))),
    st.tuples(st.just("configure"), group, st.just("consumer.hold.until.members"), st.sampled_from((0, 3))),
    st.tuples(st.just("configure"), group, st.just("consumer.hold.dead.members"), st.sampled_from(("true", "false"))),
    st.tuples(
        st.just("configure"), group, st.just("consumer.ownership.fencing.enable"), st.sampled_from(("true", "false"))
    ),
    st.tuples(st.just("delete"), group),
    st.tuples(st.just("classic_join"), group),
    st.tuples(st.just("advance"), st.sampled_from((0, 500, 1000, 3000, 7000))),
    st.tuples(st.just("late"), st.sampled_from((1000, 6000, 30_000))),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("move")),
    st.tuples(st.just("crash")),
    end_turn,
    end_turn,
    end_turn,
)


@histories(300)
@given(st.lists(action, min_size=5, max_size=50))
def test_histories(actions: list[tuple[Any, ...]]) -> None:
    world = World()
    play(world, actions)
    world.end_turn()
    # No client sends any more: held heartbeats are answered, and every member's session ends.
    world.advance(400_000)
    world.end_turn()
    assert not world.open, "requests without a reply"
    assert not any(group.members for group in world.shard.consumers.groups.values())
    world.sweep()
    world.sweep()
    world.end_turn()
    assert not world.shard.consumers.groups
    assert world.shard.next_deadline() is None


@histories(200)
@given(st.lists(action, max_size=30), st.lists(name, min_size=1, max_size=4, unique=True).map(tuple))
def test_a_group_of_well_behaved_members_becomes_stable(actions: list[tuple[Any, ...]], names: tuple[str, ...]) -> None:
    """Whatever came before: once only these ask, and nothing fails any more, each comes to its part in bounded time."""
    world = World()
    play(world, actions)
    world.end_turn()
    for member in world.clients.values():
        if member.name not in names or member.group != "g":
            world.running.discard((member.group, member.name))
    world.cooperate("g", names, 30)
    group = world.shard.consumers.groups["g"]
    members = [world.clients["g", name] for name in names]
    assert state_name(group) == "Stable"
    assert sorted(group.members) == sorted(member.member_id for member in members)
    used = [partition for member in members for partition in member.uses]
    assert len(used) == len(set(used))
    assert set(used) == {
        (spec.topic_id, index)
        for spec in world.catalog.by_name.values()
        if any(member.wants(spec.name) for member in members)
        for index in range(spec.partitions)
    }
    assert all(member.uses == group.state_of(member.member_id).assigned.keys() for member in members)


@pytest.mark.pure
def test_a_heartbeat_that_changes_nothing_has_the_effects_of_any_other() -> None:
    """It takes a shorter way through the coordinator. Without this shortcut every effect is the same."""
    short_ways = 0
    is_short = Heartbeats._changes_nothing

    def counted(groups: Heartbeats, group: ConsumerGroup, event: GroupRequested) -> bool:
        nonlocal short_ways
        found = is_short(groups, group, event)
        short_ways += found
        return found

    def effects_of(actions: list[tuple[Any, ...]], way: Any) -> list[Effects]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Heartbeats, "_changes_nothing", way)
            world = World()
            play(world, actions)
            return world.effects

    @settings(derandomize=True, database=None, deadline=None, max_examples=100)
    @given(st.lists(action, min_size=20, max_size=60))
    def check(actions: list[tuple[Any, ...]]) -> None:
        assert effects_of(actions, counted) == effects_of(actions, lambda groups, group, event: False)

    check()
    assert short_ways > 200
