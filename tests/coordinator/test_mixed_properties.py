"""Random histories of groups that change their protocol: clients of both, restarted with the other one at any time.

The world, its faults and its checks are those of test_consumer_properties.py: a partition has one owner, live state is
the replay of the log, no epoch goes back. The classic clients add:

- from an upgrade on, a member uses only partitions that the group assigned to it, whichever protocol it speaks;
- no number is used twice, as generation or as epoch, and no two members lead the same generation;
- once the faults end, exactly one of the remaining clients uses each partition of their topics.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from classic_client import ClassicClient
from history_world import CLIENTS, GROUPS, act, histories, play, some
from hypothesis import given
from hypothesis import strategies as st
from test_consumer_properties import CONFIG, Consumer, World, action, group, hold

from kohort.coordinator.classic.group import Phase
from kohort.coordinator.consumer.responses import state_name
from kohort.wire.schemas.join_group import JoinGroupResponse

KINDS = ("consumer", "eager", "cooperative")
Client = Consumer | ClassicClient


class MixedWorld(World):
    """`a` and `t` begin as consumers, the others with the classic protocol."""

    config = replace(CONFIG, group_initial_rebalance_delay_ms=0)
    silence_ms = 1_000_000
    share_seconds = 40

    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[tuple[str, int], str] = {}
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

    def check_commit(self, client: Client, errors: set[int]) -> None:
        if not isinstance(client, ClassicClient):
            super().check_commit(client, errors)
        elif client.is_mixed:
            state = self.shard.consumers.groups[client.group].state_of(client.member_id)
            assert errors <= ({0} if client.generation == state.member_epoch else {0, 22}), errors

    # -- what may happen

    def switch(self, group: str, name: str, kind: str, how: str) -> None:
        """The process ends in one of several ways, and starts again with this protocol."""
        if how == "leave":
            self.leave(group, name, -1)
        elif how == "away" and self.clients[group, name].instance is not None:
            self.leave(group, name, -2)
        self.running.discard((group, name))
        self._begin(group, name, kind)

    def share(self, names: tuple[str, ...]) -> None:
        for setting in ("handover.max.partitions", "hold.until.timestamp.ms", "initial.rebalance.delay.ms"):
            self.configure("g", f"consumer.{setting}", 0)
        super().share(names)

    def check_shared(self, members: list[Client]) -> None:
        ids = sorted(member.member_id for member in members)
        consumers, classic = self.shard.consumers.groups.get("g"), self.shard.running.groups.get("g")
        if any(isinstance(member, Consumer) for member in members):
            assert consumers is not None
        if consumers is not None:
            assert (state_name(consumers), sorted(consumers.members)) == ("Stable", ids)
        else:
            assert (classic.phase, sorted(classic.members)) == (Phase.STABLE, ids)


switch = act("switch", "g", CLIENTS, KINDS, ("die", "die", "leave", "away"))
beat = act("beat", group, CLIENTS, hold, ("", "", "", "no answer", "twice", "no request"))
cooperate = act("cooperate", "g", some(4, least=2), range(2, 13))
mixed_action = st.one_of(action, *[cooperate] * 12, *[switch] * 12, *[beat] * 6)
"""A few clients run for a while, then one changes; now and then there is another event in between."""


@histories(300)
@given(st.lists(mixed_action, min_size=15, max_size=40))
def test_histories(actions: list[tuple[Any, ...]]) -> None:
    world = MixedWorld()
    play(world, actions)
    world.silence()


@pytest.mark.conformance("N18")
@histories(200)
@given(st.lists(mixed_action, min_size=5, max_size=25), some(4))
def test_the_remaining_clients_share_all_partitions(actions: list[tuple[Any, ...]], names: tuple[str, ...]) -> None:
    """After any history: once only these clients run, and nothing fails, each reaches its part in bounded time."""
    world = MixedWorld()
    play(world, actions)
    world.share(names)


@histories(30)
@given(st.lists(mixed_action, min_size=25, max_size=60), some(4))
def test_long_histories(actions: list[tuple[Any, ...]], names: tuple[str, ...]) -> None:
    for ending in (World.silence, lambda world: world.share(names)):
        world = MixedWorld()
        world.is_patient = True
        play(world, actions)
        ending(world)
