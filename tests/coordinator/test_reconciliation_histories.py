"""Reconciliation over random histories: members come, go, are fenced; targets change; heartbeats and answers get lost.

The world is a group as its clients see it. A client has one heartbeat in flight at a time. The server may receive it
twice (a client repeats it without an answer) or never, and the answer may be lost. A client takes its time to follow
an answer. A report is always true when the server receives it: no heartbeat overtakes another of the same client, and
no client takes partitions while a report without them is in flight. A stale report would acknowledge revocations that
have not reached its client; this is so in Kafka too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from kohort.coordinator.consumer.reconciliation import FREE, MemberState, Reconciliation, TopicPartition, reconcile

TOPICS = (b"a" * 16, b"b" * 16)
PARTITIONS: tuple[TopicPartition, ...] = tuple((topic, number) for topic in TOPICS for number in range(3))
MOST_CLIENTS = 4
MOST_ROUNDS = 5
"""Heartbeats until every member has its target: be fenced, rejoin, acknowledge, get partitions; one to spare."""


@dataclass(frozen=True)
class Heartbeat:
    epoch: int
    owned: frozenset[TopicPartition] | None
    """None if nothing has changed since the last report."""
    subscribed: frozenset[bytes]


@dataclass(frozen=True)
class Answer:
    epoch: int
    assignment: frozenset[TopicPartition] = frozenset()
    fenced: bool = False


@dataclass
class Client:
    epoch: int = 0
    held: frozenset[TopicPartition] = frozenset()
    told: frozenset[TopicPartition] = frozenset()
    subscribed: frozenset[bytes] = frozenset(TOPICS)
    sent: Heartbeat | None = None
    answer: Answer | None = None


@dataclass
class Server:
    """The part of a coordinator that reconciliation needs."""

    target_epoch: int = 0
    target: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    members: dict[str, MemberState] = field(default_factory=dict)
    subscribed: dict[str, frozenset[bytes]] = field(default_factory=dict)
    owned_at: dict[tuple[TopicPartition, int], str] = field(default_factory=dict)
    """The owner of each partition at each epoch so far."""

    def current_epoch_of(self, partition: TopicPartition) -> int:
        for member in self.members.values():
            if partition in member.assigned or partition in member.revoking:
                return member.member_epoch
        return FREE

    def retarget(self, choices: list[int]) -> None:
        """A new target: each partition goes to any subscriber, or to none."""
        self.target_epoch += 1
        shares: dict[str, set[TopicPartition]] = {name: set() for name in self.members}
        for partition, choice in zip(PARTITIONS, choices, strict=True):
            subscribers = [name for name in self.members if partition[0] in self.subscribed[name]]
            if choice < len(subscribers):
                shares[subscribers[choice]].add(partition)
        self.target = {name: frozenset(share) for name, share in shares.items()}

    def remove(self, name: str) -> None:
        for known in (self.members, self.subscribed, self.target):
            known.pop(name, None)  # type: ignore[attr-defined]

    def serve(self, name: str, request: Heartbeat) -> Answer:
        before = self.members.get(name)
        # A report counts only under the present epoch; a newcomer's is empty.
        reported = request.owned if before is None or request.epoch == before.member_epoch else None
        if before is None:
            if request.epoch != 0:
                return Answer(0, fenced=True)
            before = self.members[name] = MemberState()
            self.target[name] = frozenset()
            self.target_epoch += 1
        elif request.epoch > before.member_epoch:
            raise AssertionError("nobody has told it that epoch")
        elif 0 < request.epoch < before.member_epoch:
            missed_one = request.epoch == before.previous_member_epoch
            if not (missed_one and (request.owned or frozenset()) <= before.assigned.keys()):
                return Answer(0, fenced=True)
        changed = self.subscribed.get(name, request.subscribed) != request.subscribed
        self.subscribed[name] = request.subscribed
        after = self.members[name] = reconcile(
            before,
            target_epoch=self.target_epoch,
            target=self.target[name],
            owned=reported,
            current_epoch_of=self.current_epoch_of,
            subscribed=request.subscribed,
            subscription_changed=changed,
        )
        self.check(name, before, after)
        return Answer(after.member_epoch, frozenset(after.assigned))

    def check(self, name: str, before: MemberState, after: MemberState) -> None:
        wanted = {partition for partition in self.target[name] if partition[0] in self.subscribed[name]}
        assert before is after or before != after
        assert before.member_epoch <= after.member_epoch <= self.target_epoch
        if after.member_epoch > before.member_epoch:
            assert after.previous_member_epoch == before.member_epoch
        assert before.assigned.keys() & wanted <= after.assigned.keys(), "it lost what its target has"
        assert bool(after.revoking) == (after.state == Reconciliation.UNREVOKED_PARTITIONS)
        if after.state == Reconciliation.UNREVOKED_PARTITIONS:
            assert after.member_epoch == before.member_epoch, "it must revoke, and its epoch rose"
            assert after.assigned.keys() <= before.assigned.keys(), "it must revoke, and was given something"
        elif after is not before and after.member_epoch == self.target_epoch:
            assert after.assigned.keys() <= wanted
        for partition, epoch in (after.assigned | after.revoking).items():  # type: ignore[operator]
            assert epoch <= after.member_epoch
            if partition in before.assigned:
                assert epoch == before.assigned[partition], "it kept the partition, but not its epoch"
            owner = self.owned_at.setdefault((partition, after.member_epoch), name)
            assert owner == name, f"{partition} had two owners at epoch {after.member_epoch}"


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.clients: dict[str, Client] = {}
        self.born = 0
        for _ in range(3):
            self.start()
            self.heartbeat(self.born - 1)
        self.retarget([0, 1, 2, 0, 1, 2])

    def pick(self, index: int) -> str:
        return sorted(self.clients)[index % len(self.clients)]

    indexes = st.integers(0, MOST_CLIENTS - 1)
    have_clients = precondition(lambda self: self.clients)

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule()
    def start(self) -> None:
        self.born += 1
        self.clients[f"m{self.born}"] = Client()

    @rule(choices=st.lists(st.integers(0, MOST_CLIENTS), min_size=len(PARTITIONS), max_size=len(PARTITIONS)))
    def retarget(self, choices: list[int]) -> None:
        self.server.retarget(choices)

    @have_clients
    @rule(index=indexes, full=st.booleans())
    def send(self, index: int, full: bool = True) -> None:
        client = self.clients[self.pick(index)]
        if client.sent is None:
            client.sent = Heartbeat(client.epoch, client.held if full else None, client.subscribed)

    @have_clients
    @rule(index=indexes)
    def serve(self, index: int) -> None:
        """May serve the same heartbeat again, as long as the client has no answer."""
        name = self.pick(index)
        client = self.clients[name]
        if client.sent is not None:
            client.answer = self.server.serve(name, client.sent)

    @have_clients
    @rule(index=indexes)
    def lose_the_answer(self, index: int) -> None:
        self.clients[self.pick(index)].answer = None

    @have_clients
    @rule(index=indexes)
    def lose_the_heartbeat(self, index: int) -> None:
        """The client then makes a new heartbeat, and drops an answer to the old one."""
        client = self.clients[self.pick(index)]
        client.sent = client.answer = None

    @have_clients
    @rule(index=indexes)
    def receive(self, index: int) -> None:
        client = self.clients[self.pick(index)]
        if client.answer is not None:
            client.epoch, client.told = client.answer.epoch, client.answer.assignment
            if client.answer.fenced:
                client.held = frozenset()
            client.sent = client.answer = None

    @have_clients
    @rule(index=indexes)
    def do_as_told(self, index: int) -> None:
        client = self.clients[self.pick(index)]
        if client.sent is None or client.sent.owned is None:
            client.held = client.told

    @have_clients
    @rule(index=indexes, full=st.booleans(), diligent=st.booleans())
    def heartbeat(self, index: int, full: bool = True, diligent: bool = True) -> None:
        """All steps of a heartbeat at once, so that histories make progress."""
        self.send(index, full)
        self.serve(index)
        self.receive(index)
        if diligent:
            self.do_as_told(index)

    @have_clients
    @rule(index=indexes, topics=st.sets(st.sampled_from(TOPICS), min_size=1))
    def subscribe(self, index: int, topics: set[bytes]) -> None:
        self.clients[self.pick(index)].subscribed = frozenset(topics)

    @have_clients
    @rule(index=indexes, leaves=st.sampled_from((True, False, None, None)))
    def end(self, index: int, leaves: bool | None) -> None:
        """The client leaves, or its session or its time to revoke is over, of which its next heartbeat learns."""
        name = self.pick(index)
        if leaves is not None:
            self.server.remove(name)
        if leaves:
            del self.clients[name]

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        owned = [p for member in self.server.members.values() for p in (*member.assigned, *member.revoking)]
        assert len(owned) == len(set(owned))

    @invariant()
    def no_two_clients_use_a_partition(self) -> None:
        """Except for fenced clients that do not know it yet: their commits are refused."""
        held = [p for name in self.server.members for p in self.clients[name].held]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        """Without further changes and losses every member reaches the next target.

        A topic that is subscribed again is missing until the next target. A change of subscription raises the group's
        epoch, so there always is a next target.
        """
        for index in range(len(self.clients)):
            self.heartbeat(index)
        self.retarget([0, 1, 2, 3, 0, 1])
        rounds = 0
        while not self.settled():
            rounds += 1
            assert rounds <= MOST_ROUNDS, "it does not settle"
            for index in range(len(self.clients)):
                self.heartbeat(index)
                self.a_partition_has_one_owner()
                self.no_two_clients_use_a_partition()

    def settled(self) -> bool:
        return all(name in self.server.members and self.at_rest(name) for name in self.clients)

    def at_rest(self, name: str) -> bool:
        client, member = self.clients[name], self.server.members[name]
        wanted = {p for p in self.server.target[name] if p[0] in client.subscribed}
        is_stable = (member.state, member.member_epoch) == (Reconciliation.STABLE, self.server.target_epoch)
        return client.sent is None and is_stable and member.assigned.keys() == wanted == client.held


def test_histories() -> None:
    run_state_machine_as_test(
        History,
        settings=settings(max_examples=150, stateful_step_count=60, deadline=None, derandomize=True, database=None),
    )


def test_a_history_of_two_members() -> None:
    """The shortest hand-over: the newcomer's partitions are revoked, acknowledged, released and added."""
    world: Any = History()
    world.end(2, leaves=True)
    world.retarget([0] * 6)
    for index in (0, 1, 1, 0):
        world.heartbeat(index)
    assert world.clients["m1"].held == frozenset(PARTITIONS)
    world.retarget([0, 0, 0, 1, 1, 1])
    world.heartbeat(1)
    assert world.clients["m2"].held == frozenset(), "not released yet"
    world.heartbeat(0)
    world.heartbeat(1)
    assert world.clients["m2"].held == frozenset(), "told, but not acknowledged"
    world.heartbeat(0)
    world.heartbeat(1)
    assert world.clients["m1"].held == frozenset(PARTITIONS[:3])
    assert world.clients["m2"].held == frozenset(PARTITIONS[3:])
    assert world.server.members["m2"].assigned == dict.fromkeys(PARTITIONS[3:], world.server.target_epoch)
    world.teardown()
