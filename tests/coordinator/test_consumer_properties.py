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
from classic_client import ClassicClient
from consumer_world import catalog_of
from history_world import CLIENTS, GROUPS, PRODUCERS, HistoryWorld, act, histories, play, some
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.config import Config
from kohort.conformance.play.consumer_client import TopicNames, partitions_of
from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.consumer.assignment_records import by_topic
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.heartbeat import Heartbeats
from kohort.coordinator.consumer.responses import state_name
from kohort.coordinator.events import (
    AssignmentMade,
    Effects,
    GroupConfigsChanged,
    GroupRequested,
    PatternsAsked,
    Reply,
    RequestId,
    Task,
    TopicsChanged,
    TopicsDeleted,
)
from kohort.coordinator.patterns.regex import search
from kohort.coordinator.topics import Topics
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.wire.schemas.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic

SESSION_MS = 6000
STEP_SECONDS = 5
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

    commit_version = 9

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

    def subscribe(self, topics: tuple[str, ...], pattern: str) -> None:
        self.topics, self.pattern = topics, pattern
        self.says_all = True

    def request(self) -> tuple[ConsumerGroupHeartbeatRequest, int]:
        """The next heartbeat and its version."""
        # The coordinator would accept a report of partitions from before the client took its last assignment.
        says_all = self.epoch == 0 or (self.says_all and self.uses == self.assigned)
        owned = None
        if says_all or (self.says_owned and self.uses == self.assigned):
            owned = tuple(HeartbeatTopicPartitions(topic_id=t, partitions=p) for t, p in by_topic(self.uses))
        self.says_all = self.says_all and not says_all
        self.says_owned = self.says_owned and owned is None
        return self._heartbeat(
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=(4000, 10_000)[len(self.topics) % 2] if says_all else -1,
            subscribed_topic_names=self.topics if says_all else None,
            subscribed_topic_regex=self.pattern if says_all else None,
            topic_partitions=owned,
        )

    def _heartbeat(self, member_id: str, epoch: int, **fields: Any) -> tuple[ConsumerGroupHeartbeatRequest, int]:
        known = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch, "instance_id": self.instance}
        return ConsumerGroupHeartbeatRequest(**known, **fields), 1

    def leave(self, epoch: int) -> tuple[ConsumerGroupHeartbeatRequest, int]:
        """The request of a client that leaves by its own decision. Some subscribe again under their old id."""
        request = self._heartbeat(self.member_id, epoch)
        if self.name in "as":
            self.begin_again()
        else:
            self.start()
        return request

    def former_request(self, epoch: int) -> tuple[ConsumerGroupHeartbeatRequest, int] | None:
        """A heartbeat of the client's former life."""
        former_id = f"{self.name}{self.lives - 1}"
        return self._heartbeat(former_id, max(epoch, 1), topic_partitions=()) if self.lives > 1 else None

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
    sweeps = 2
    share_seconds = 30
    is_patient = False
    """Whether clients that share run to the end of that time, and not only until each has its part."""

    def __init__(self) -> None:
        self.names = TopicNames()
        self.counts = {"t": 3}
        self.catalog: Topics = catalog_of(self.names, self.counts)
        self.clients: dict[tuple[str, str], Any] = {
            (group, name): Consumer(group, name) for group in GROUPS for name in CLIENTS
        }
        self.running: set[tuple[str, str]] = set()
        """Clients that have heartbeated and not died."""
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
        super().end_turn()
        for group_id, group in self.shard.consumers.groups.items():
            assert group.epoch >= self.epochs[group_id], "a group's epoch goes back"
            self.epochs[group_id] = group.epoch
        self.check_uses()

    def learn(self, client: Any, reply: Reply) -> None:
        if client is not None and client.asked == reply.request_id:
            client.learn(reply.body)

    def misses(self, client: Any, request_id: RequestId) -> None:
        if client is not None and client.asked == request_id:
            client.misses_answer()

    # -- what may happen

    def ask(self, client: Any, body: Any, version: int, hold_ms: int = 0) -> RequestId:
        request_id = super().ask(client, body, version, hold_ms)
        if client is not None:
            client.asked = request_id
        return request_id

    def beat(self, group: str, name: str, hold_ms: int, fate: str) -> None:
        """fate: the answer is lost, the request arrives twice (its second answer counts), or it does not arrive."""
        client = self.clients[group, name]
        self.running.add((group, name))
        if client.asked is not None:
            client.misses_answer()
        body, version = client.request()
        if not isinstance(body, ConsumerGroupHeartbeatRequest | HeartbeatRequest):
            hold_ms = 0
        for _ in range({"no request": 0, "twice": 2}.get(fate, 1)):
            self.ask(client, body, version, hold_ms)
        if fate in ("no answer", "no request"):
            client.misses_answer()

    def work(self, group: str, name: str) -> None:
        self.clients[group, name].work()
        self.check_uses()

    def subscribe(self, group: str, name: str, topics: int) -> None:
        self.clients[group, name].subscribe(*SUBSCRIPTIONS[topics])

    def die(self, group: str, name: str) -> None:
        """And start again, at some time; a static member under the name of its instance."""
        self.running.discard((group, name))
        self.clients[group, name].start()

    def leave(self, group: str, name: str, epoch: int) -> None:
        """The client ignores the answer. -2 is for static members."""
        self.running.discard((group, name))
        if (request := self.clients[group, name].leave(epoch)) is not None:
            self.ask(None, *request)

    def former(self, group: str, name: str, epoch: int) -> None:
        """A heartbeat of a client's former life comes late."""
        if (request := self.clients[group, name].former_request(self.epochs[group] - epoch)) is not None:
            self.ask(None, *request)

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

    def commit(self, group: str, name: str) -> None:
        """Of all that the client uses."""
        client = self.clients[group, name]
        if client.epoch <= 0:
            return
        topics = [
            OffsetCommitRequestTopic(
                name=self.names.printed[topic_id].rstrip("'"),
                topic_id=topic_id,
                partitions=(OffsetCommitRequestPartition(partition_index=index, committed_offset=self.last_request),),
            )
            for topic_id, index in sorted(client.uses)
        ]
        request = OffsetCommitRequest(
            group_id=client.group,
            generation_id_or_member_epoch=client.epoch,
            member_id=client.member_id,
            group_instance_id=client.instance,
            topics=tuple(topics),
        )
        members = getattr(self.shard.consumers.groups.get(group), "members", ())
        is_member = client.member_id in members and (group, name) in self.running
        request_id = self.ask(None, request, client.commit_version)
        reply = next(reply for reply in self.turn_replies if reply.request_id == request_id)
        if is_member:
            assert isinstance(reply.body, OffsetCommitResponse)
            self.check_commit(client, {p.error_code for topic in reply.body.topics for p in topic.partitions})

    def commit_as(self, group: str, name: str, producer_id: int) -> None:
        """The same in a producer's transaction."""
        client = self.clients[group, name]
        if client.epoch <= 0 or not client.uses:
            return
        topics = [
            TxnOffsetCommitRequestTopic(
                name=self.names.printed[topic_id].rstrip("'"),
                partitions=(
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=self.last_request),
                ),
            )
            for topic_id, index in sorted(client.uses)
            if topic_id in self.catalog.by_id
        ]
        members = getattr(self.shard.consumers.groups.get(group), "members", ())
        is_member = client.member_id in members and (group, name) in self.running
        fields = {"generation_id": client.epoch, "member_id": client.member_id, "group_instance_id": client.instance}
        request_id = self.commit_pending(group, topics, producer_id, **fields)
        reply = next(reply for reply in self.turn_replies if reply.request_id == request_id)
        errors = {p.error_code for topic in reply.body.topics for p in topic.partitions}
        assert len(errors) <= 1, f"a transaction cannot be half right: {errors}"
        assert errors <= {0, 22, 25, 82}, errors
        if is_member:
            self.check_commit(client, errors)

    def check_commit(self, client: Any, errors: set[int]) -> None:
        """Of a member."""
        assert errors <= {0}, f"a member may not commit what it uses: {errors}"
        fence = self.shard.fetch_fence(client.group, client.member_id, client.epoch)
        assert not any(map(fence, client.uses)), "a member may not fetch what it uses"

    def topic(self, name: str, partitions: int) -> None:
        """Created or grown, and deleted with 0 partitions."""
        if partitions == 0:
            if self.counts.pop(name, None):
                self.step(TopicsDeleted((name,)))
        else:
            self.counts[name] = max(partitions, self.counts.get(name, 0))
        self.catalog = catalog_of(self.names, self.counts)
        self.step(TopicsChanged(self.catalog))

    def classic_join(self, group: str) -> None:
        """A client of the classic protocol joins, and then sends nothing more."""
        self.ask(None, ClassicClient(group, "z", self.names, cooperative=False).request()[0], 3)

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

    def share(self, names: tuple[str, ...]) -> None:
        """From now on only these clients send requests and nothing fails: each gets its part in bounded time, and some
        seconds later has it still."""
        self.end_turn()
        for member in self.clients.values():
            if member.name not in names or member.group != "g":
                self.running.discard((member.group, member.name))
        members = [self.clients["g", name] for name in names]
        before = shared = False
        for _ in range(0, self.share_seconds, STEP_SECONDS):
            self.cooperate("g", names, STEP_SECONDS)
            before, shared = shared, self.is_shared(members)
            if before and shared and not self.is_patient:
                break
        self.check_parts(members)

    def is_shared(self, members: list[Any]) -> bool:
        try:
            self.check_parts(members)
        except AssertionError:
            return False
        return True

    def check_parts(self, members: list[Any]) -> None:
        self.check_shared(members)
        used = [partition for member in members for partition in member.uses if partition[0] in self.catalog.by_id]
        assert len(used) == len(set(used))
        assert set(used) == {
            (spec.topic_id, index)
            for spec in self.catalog.by_name.values()
            if any(member.wants(spec.name) for member in members)
            for index in range(spec.partitions)
        }

    def check_shared(self, members: list[Any]) -> None:
        group = self.shard.consumers.groups["g"]
        assert state_name(group) == "Stable"
        assert sorted(group.members) == sorted(member.member_id for member in members)
        for member in members:
            assert member.uses == group.state_of(member.member_id).assigned.keys()
            assert all(topic_id in self.catalog.by_id for topic_id, _ in member.uses)


group = ("g", "g", "g", "h")
hold = (0, 0, 1000, 10_000)
cooperate = act("cooperate", group, some(4), range(1, 6))
action = st.one_of(
    *[act("beat", group, CLIENTS, hold, ("", "", "", "no answer", "no answer", "twice", "no request"))] * 5,
    *[act("work", group, CLIENTS)] * 3,
    *[cooperate] * 3,
    act("subscribe", group, CLIENTS, range(len(SUBSCRIPTIONS))),
    act("die", group, CLIENTS),
    act("leave", group, CLIENTS, (-1,)),
    act("leave", group, "st", (-2,)),
    act("former", group, CLIENTS, range(4)),
    act("answer_held", range(4)),
    act("vanish", range(4)),
    act("commit", group, CLIENTS),
    act("commit_as", group, CLIENTS, PRODUCERS),
    act("commit_pending_offset", group, "tu", PRODUCERS),
    act("marker", PRODUCERS, (False, True)),
    act("topic", "tu", (0, 1, 2, 4, 5)),
    act("make", (False, True)),
    act("configure", group, ("consumer.assignor",), ("lag", "range", "")),
    act("configure", group, ("consumer.handover.max.partitions",), (0, 1, 2)),
    act("configure", group, ("consumer.initial.rebalance.delay.ms",), (0, 3000)),
    act("configure", group, ("consumer.hold.until.timestamp.ms",), (0, 8000)),
    act("configure", group, ("consumer.hold.until.members",), (0, 3)),
    act("configure", group, ("consumer.hold.dead.members",), ("true", "false")),
    act("configure", group, ("consumer.ownership.fencing.enable",), ("true", "false")),
    act("delete", group),
    act("classic_join", group),
    act("advance", (0, 500, 1000, 3000, 7000)),
    act("late", (1000, 6000, 30_000)),
    act("sweep"),
    act("move"),
    act("crash"),
    *[act("end_turn")] * 3,
)


@histories(300)
@given(st.lists(action, min_size=5, max_size=50))
def test_histories(actions: list[tuple[Any, ...]]) -> None:
    world = World()
    play(world, actions)
    world.silence()


@histories(200)
@given(st.lists(action, max_size=30), some(4))
def test_a_group_of_well_behaved_members_becomes_stable(actions: list[tuple[Any, ...]], names: tuple[str, ...]) -> None:
    """Whatever came before."""
    world = World()
    play(world, actions)
    world.share(names)


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
