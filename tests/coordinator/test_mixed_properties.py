"""Random histories of groups that change their protocol: clients of both, restarted with the other one at any time.

The world, its faults and its checks are those of test_consumer_properties.py: a partition has one owner, live state is
the replay of the log, no epoch goes back. The classic clients add:

- from an upgrade on, a member uses only partitions that the group assigned to it, whichever protocol it speaks;
- no number is used twice, as generation or as epoch, and no two members lead the same generation;
- once the faults end, exactly one of the remaining clients uses each partition of their topics.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from classic_client import ClassicClient
from history_world import GROUPS, histories, play
from hypothesis import given
from hypothesis import strategies as st
from test_consumer_properties import CONFIG, Consumer, World, action, group, hold, name

from kohort.coordinator.classic.group import Phase
from kohort.coordinator.consumer.responses import state_name
from kohort.coordinator.hard_state import HardState
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.schemas.offset_commit import OffsetCommitResponse

KINDS = ("consumer", "eager", "cooperative")
Client = Consumer | ClassicClient


class MixedWorld(World):
    """`a` and `t` begin as consumers, the others with the classic protocol."""

    config = replace(CONFIG, group_initial_rebalance_delay_ms=0)
    clients: dict[tuple[str, str], Any]

    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[tuple[str, int], str] = {}
        self.replayed = HardState()
        self.replayed_to = 0
        self.next_full_check = 0
        for place, kind in zip("bcs", ("eager", "cooperative", "eager"), strict=True):
            for group_id in GROUPS:
                self._begin(group_id, place, kind)

    def _begin(self, group_id: str, name: str, kind: str) -> None:
        former = self.clients[group_id, name]
        client: Client
        if kind == "consumer":
            client = Consumer(group_id, name)
            client.lives = former.lives
            client.start()
        else:
            client = ClassicClient(group_id, name, self.names, cooperative=kind == "cooperative", lives=former.lives)
        client.topics, client.pattern = former.topics, former.pattern
        self.clients[group_id, name] = client

    # -- checks

    def check_log(self) -> None:
        """Each turn replay its own records, now and then the whole log."""
        for record in self.log[self.replayed_to :]:
            self.replayed.apply(record)
        self.replayed_to = len(self.log)
        assert self.replayed == self.shard.hard
        if self.replayed_to >= self.next_full_check:
            self.next_full_check = self.replayed_to + 60
            super().check_log()

    def check_uses(self) -> None:
        for place in self.running:
            client = self.clients[place]
            consumers = self.shard.consumers.groups.get(client.group)
            if consumers is None or client.member_id not in consumers.members:
                continue
            state = consumers.state_of(client.member_id)
            if isinstance(client, ClassicClient):
                if not client.is_mixed and client.generation != state.member_epoch:
                    continue  # a static member that missed a generation: the classic protocol gives its partitions away
            elif client.epoch <= 0:
                continue
            here = {(topic_id, index) for topic_id, index in client.uses if topic_id in self.catalog.by_id}
            lost = here - state.assigned.keys() - state.revoking.keys()
            assert not lost, f"{client.member_id} uses {lost}, which the group took from it"

    def end_turn(self) -> None:
        for reply in self.turn_replies:
            client = self.open.get(reply.request_id)
            if isinstance(reply.body, JoinGroupResponse) and not reply.body.error_code and client is not None:
                self._check_number(client.group, reply.body)
        super().end_turn()
        for group_id, classic in self.shard.running.groups.items():
            number = max(classic.generation_id, self.shard.hard.generations.get(group_id, 0))
            assert number >= self.epochs[group_id], "a group's number goes back"
            self.epochs[group_id] = number

    def _check_number(self, group_id: str, answer: JoinGroupResponse) -> None:
        if not answer.leader:
            return
        former = self.leaders.setdefault((group_id, answer.generation_id), answer.leader)
        # A static member that returns keeps leading under its new id.
        same = former == answer.leader or (former[:1] == answer.leader[:1] and former[:2] in ("s-", "t-"))
        assert same, f"{former} and {answer.leader} lead {answer.generation_id}"

    # -- what may happen

    def beat(self, group: str, name: str, hold_ms: int, fate: str) -> None:
        client = self.clients[group, name]
        if not isinstance(client, ClassicClient):
            return super().beat(group, name, hold_ms, fate)
        if client.is_fenced:
            client.start()
        self.running.add((group, name))
        if client.asked is not None:
            client.misses_answer()
        body, version = client.request()
        if not isinstance(body, HeartbeatRequest):
            hold_ms = 0
        if fate != "no request":
            self.ask(client, body, version, hold_ms)
        if fate == "twice":
            self.ask(client, body, version, hold_ms)
        if fate in ("no answer", "no request"):
            client.misses_answer()
        return None

    def work(self, group: str, name: str) -> None:
        if not isinstance(self.clients[group, name], ClassicClient):
            super().work(group, name)

    def subscribe(self, group: str, name: str, topics: int) -> None:
        client = self.clients[group, name]
        super().subscribe(group, name, topics)
        if isinstance(client, ClassicClient) and client.asked is None:
            client.phase = "join"

    def leave(self, group: str, name: str, epoch: int) -> None:
        client = self.clients[group, name]
        if not isinstance(client, ClassicClient):
            return super().leave(group, name, epoch)
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)
        self.running.discard((group, name))
        if client.member_id:
            self.ask(None, LeaveGroupRequest(group_id=group, members=(identity,)), 5)
        client.start()
        return None

    def former(self, group: str, name: str, epoch: int) -> None:
        client = self.clients[group, name]
        if not isinstance(client, ClassicClient):
            return super().former(group, name, epoch)
        if client.former_id:
            generation = max(self.epochs[group] - epoch, 0)
            request = HeartbeatRequest(
                group_id=group,
                generation_id=generation,
                member_id=client.former_id,
                group_instance_id=client.instance,
            )
            self.ask(None, request, 4)
        return None

    def commit(self, group: str, name: str) -> None:
        client = self.clients[group, name]
        if not isinstance(client, ClassicClient):
            return super().commit(group, name)
        consumers = self.shard.consumers.groups.get(group)
        is_member = consumers is not None and client.member_id in consumers.members
        request = self.commit_of(client)
        if request is None:
            return None
        request_id = self.ask(None, request, 8)
        body = next(reply.body for reply in self.turn_replies if reply.request_id == request_id)
        if consumers is None or not is_member or (group, name) not in self.running or not client.is_mixed:
            return None
        assert isinstance(body, OffsetCommitResponse)
        errors = {p.error_code for topic in body.topics for p in topic.partitions}
        is_current = client.generation == consumers.state_of(client.member_id).member_epoch
        assert errors <= ({0} if is_current else {0, 22}), errors
        return None

    def classic_join(self, group: str) -> None:
        """A client that joins, and then sends nothing more."""
        client = ClassicClient(group, "z", self.names, cooperative=False)
        self.ask(None, client.request()[0], 3)

    def switch(self, group: str, name: str, kind: str, how: str) -> None:
        """The process ends in one of several ways, and starts again with this protocol."""
        if how == "leave":
            self.leave(group, name, -1)
        elif how == "away" and self.clients[group, name].instance is not None:
            self.leave(group, name, -2)
        self.running.discard((group, name))
        self._begin(group, name, kind)


def end_of(world: MixedWorld) -> None:
    """No more requests: parked ones are answered, and every member's session ends."""
    world.advance(1_000_000)
    world.end_turn()
    assert not world.open, "requests without a reply"
    assert not any(group.members for group in world.shard.consumers.groups.values())
    assert not any(group.members for group in world.shard.running.groups.values())
    world.sweep()
    world.sweep()
    world.end_turn()
    assert not world.shard.consumers.groups
    assert not world.shard.running.groups
    assert world.shard.next_deadline() is None


def share(world: MixedWorld, names: tuple[str, ...]) -> None:
    """From now on only these clients send requests, and nothing fails."""
    for member in world.clients.values():
        if member.name not in names or member.group != "g":
            world.running.discard((member.group, member.name))
    for setting in ("handover.max.partitions", "hold.until.timestamp.ms", "initial.rebalance.delay.ms"):
        world.configure("g", f"consumer.{setting}", 0)
    world.cooperate("g", names, 40)
    members = [world.clients["g", name] for name in names]
    ids = sorted(member.member_id for member in members)
    consumers, classic = world.shard.consumers.groups.get("g"), world.shard.running.groups.get("g")
    if any(isinstance(member, Consumer) for member in members):
        assert consumers is not None
    if consumers is not None:
        assert (state_name(consumers), sorted(consumers.members)) == ("Stable", ids)
    else:
        assert classic is not None
        assert (classic.phase, sorted(classic.members)) == (Phase.STABLE, ids)
    used = [partition for member in members for partition in member.uses if partition[0] in world.catalog.by_id]
    assert len(used) == len(set(used))
    assert set(used) == {
        (spec.topic_id, index)
        for spec in world.catalog.by_name.values()
        if any(member.wants(spec.name) for member in members)
        for index in range(spec.partitions)
    }


kind = st.sampled_from(KINDS)
switch = st.tuples(st.just("switch"), st.just("g"), name, kind, st.sampled_from(("die", "die", "leave", "away")))
beat = st.tuples(st.just("beat"), group, name, hold, st.sampled_from(("", "", "", "no answer", "twice", "no request")))
few = st.tuples(
    st.just("cooperate"),
    st.just("g"),
    st.lists(name, min_size=2, max_size=4, unique=True).map(tuple),
    st.integers(2, 12),
)
mixed_action = st.one_of(action, *[few] * 12, *[switch] * 12, *[beat] * 6)
"""A few clients run for a while, then one changes; now and then there is another event in between."""


@histories(300)
@given(st.lists(mixed_action, min_size=15, max_size=40))
def test_histories(actions: list[tuple[Any, ...]]) -> None:
    world = MixedWorld()
    play(world, actions)
    world.end_turn()
    end_of(world)


@pytest.mark.conformance("N18")
@histories(200)
@given(st.lists(mixed_action, min_size=5, max_size=25), st.lists(name, min_size=1, max_size=4, unique=True).map(tuple))
def test_the_remaining_clients_share_all_partitions(actions: list[tuple[Any, ...]], names: tuple[str, ...]) -> None:
    """After any history: once only these clients run, and nothing fails, each reaches its part in bounded time."""
    world = MixedWorld()
    play(world, actions)
    world.end_turn()
    share(world, names)


# -- longer histories, by seed


def history(random: Random) -> list[tuple[Any, ...]]:
    """A few clients run for a while, then one changes; now and then there is another event in between."""
    actions: list[tuple[Any, ...]] = []
    for _ in range(random.randint(10, 60)):
        group, name = random.choice("ggggggh"), random.choice("abcst")
        fate = random.choice(("", "", "", "no answer", "twice", "no request"))
        seldom = [
            ("subscribe", group, name, random.randrange(7)),
            ("die", group, name),
            ("leave", group, name, -1),
            ("leave", group, random.choice("st"), -2),
            ("former", group, name, random.randrange(4)),
            ("answer_held", random.randrange(4)),
            ("vanish", random.randrange(4)),
            ("commit", group, name),
            ("topic", random.choice("tu"), random.choice((0, 1, 2, 4, 5))),
            ("make", random.random() < 0.3),
            ("configure", group, "consumer.assignor", random.choice(("lag", "range", ""))),
            ("configure", group, "consumer.handover.max.partitions", random.choice((0, 1, 2))),
            ("delete", group),
            ("classic_join", group),
            ("advance", random.choice((0, 500, 1000, 3000, 7000))),
            ("late", random.choice((1000, 6000))),
            ("sweep",),
            ("move",),
            ("crash",),
        ]
        often = [
            ("cooperate", "g", tuple(random.sample("abcst", random.randint(1, 4))), random.randint(1, 12)),
            ("switch", "g", name, random.choice(KINDS), random.choice(("die", "die", "leave", "away"))),
            ("beat", group, name, random.choice((0, 0, 1000, 10_000)), fate),
            ("end_turn",),
        ]
        actions.append(random.choice(often if random.random() < 0.75 else seldom))
    return actions


@pytest.mark.parametrize("seed", range(30))
def test_long_histories(seed: int) -> None:
    random = Random(seed)
    actions, names = history(random), tuple(random.sample("abcst", random.randint(1, 4)))
    for ending in (end_of, lambda world: share(world, names)):
        world = MixedWorld()
        play(world, actions)
        world.end_turn()
        ending(world)
