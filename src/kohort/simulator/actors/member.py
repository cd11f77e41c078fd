"""A simulated consumer: our own sans-IO member, a connection to its coordinator, and work that commits.

It finds its coordinator, joins, takes its partitions, fetches the committed offsets and commits progress from there:
among well-behaved members, commits of a partition never go back. It believes that it owns its assignment until it
revokes it or learns of the loss. Two members with this belief for the same partition and generation are a violation,
unless one is the former process of a static member that does not yet know that it is fenced.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kohort.client.membership.classic import Assign, Assigned, LetGo, Lost, Membership, Phase, Protocol, Settings
from kohort.simulator.actors.offsets import commit_request, fetch_request
from kohort.simulator.actors.participant import Participant
from kohort.simulator.plan import NOBODYS, TOPICS, Faults
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import Violation, World
from kohort.wire.codec import decode, encode
from kohort.wire.schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentResponseTopicPartition,
    ConsumerProtocolSubscription,
)
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponseMember
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest

Place = tuple[str, int]

NEWEST = {JoinGroupRequest: 9, SyncGroupRequest: 5, HeartbeatRequest: 4, LeaveGroupRequest: 5, OffsetCommitRequest: 9}
OLD = (
    {JoinGroupRequest: 2, SyncGroupRequest: 1, HeartbeatRequest: 1, LeaveGroupRequest: 1, OffsetCommitRequest: 3},
    {JoinGroupRequest: 0, SyncGroupRequest: 0, HeartbeatRequest: 0, LeaveGroupRequest: 0, OffsetCommitRequest: 2},
    {JoinGroupRequest: 5, SyncGroupRequest: 3, HeartbeatRequest: 3, LeaveGroupRequest: 3, OffsetCommitRequest: 7},
)
"""Versions of older clients; the last one is the oldest with static members."""

SUBSCRIPTION = b"\0\1" + encode(ConsumerProtocolSubscription(topics=tuple(TOPICS)), 1)


class Owners:
    """Which member believes to own which partition."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int, Place], Member] = {}

    def take(self, member: Member, generation: int, places: list[Place]) -> None:
        for place in places:
            key = (member.group, generation, place)
            other = self._owners.get(key)
            if (
                other is not None
                and other is not member
                and (other.instance is None or other.instance != member.instance)
            ):
                text = f"{place} in generation {generation}: {other.name} and {member.name}"
                raise Violation.of(member.group, "one owner a partition and generation", text)
            self._owners[key] = member

    def give_up(self, member: Member, generation: int, places: list[Place]) -> None:
        for place in places:
            if self._owners.get((member.group, generation, place)) is member:
                del self._owners[member.group, generation, place]


class Member(Participant):
    membership: Membership

    def __init__(
        self, world: World, process: Process, faults: Faults, name: str, owners: Owners, options: dict[str, Any]
    ) -> None:
        super().__init__(world, process, faults, name, options)
        self.generation = -1
        self.owned: list[Place] = []
        self._owners = owners
        self._positions: dict[Place, int] = {}
        self._round = 0
        """Counts phases of work; calls planned in an earlier one are void."""
        self._versions = NEWEST
        if options.get("old"):
            self._versions = OLD[2] if self.instance is not None else self.random.choice(OLD)

    # -- its life

    def begin(self) -> None:
        self.membership = Membership(self._settings())
        self.membership.join(self.world.now, "it starts")
        self.act()

    def _settings(self) -> Settings:
        options = self.options
        protocols = [Protocol("range", SUBSCRIPTION), Protocol("roundrobin", SUBSCRIPTION)]
        return Settings(
            self.group,
            tuple(protocols if options.get("ranged", True) else protocols[::-1]),
            instance_id=self.instance,
            session_timeout_ms=options["session_ms"],
            # JoinGroup v0 has no rebalance timeout; its clients use the session timeout.
            rebalance_timeout_ms=options["session_ms" if self._versions[JoinGroupRequest] == 0 else "rebalance_ms"],
            heartbeat_interval_ms=options["heartbeat_ms"],
            request_timeout_ms=options.get("patience_ms", 3_000),
        )

    def say_goodbye(self, *, static_too: bool) -> None:
        self.membership.leave(self.world.now, "it is done", static_too=static_too)

    def forget(self) -> None:
        self._owners.give_up(self, self.generation, self.owned)
        self.owned = []
        self._positions.clear()
        self._round += 1

    @property
    def content(self) -> bool:
        """The process is a member and has its assignment."""
        return self.running and not self.paused and self.membership.phase is Phase.STABLE

    # -- the membership's actions

    def version_of(self, request: Any) -> int:
        return self._versions[type(request)]

    def on_action(self, action: Any) -> None:
        match action:
            case LetGo():
                self._let_go(action)
            case Assign():
                self._begin_to_assign(action)
            case Assigned():
                self._assigned(action)
            case Lost():
                self.tell(f"has lost its assignment: {action.reason}")
                self.forget()

    # -- the assignment

    def _begin_to_assign(self, action: Assign) -> None:
        delay = self.random.choice((0, 0, 5, 300))
        if self.is_late(0.3):
            delay = self.random.randrange(5_000, 9_500)
        if delay and self.random.random() < 0.3:
            self._commit({(NOBODYS, 0): 0}, action.generation_id)  # too early: no member owns anything yet
        self.soon(delay, self._assign, self.membership, action)

    def _assign(self, membership: Membership, action: Assign) -> None:
        if membership is self.membership:
            membership.assign(action.generation_id, divide(self.world.topics, action.members), self.world.now)
            self.act()

    def _assigned(self, action: Assigned) -> None:
        assignment = decode(ConsumerProtocolAssignment, 0, action.assignment, 2) if action.assignment else None
        self.generation = action.generation_id
        self.owned = [(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions] if assignment else []
        self.tell(f"owns {self.owned} in generation {self.generation}")
        self._owners.take(self, self.generation, self.owned)
        self._positions.clear()
        self._round += 1
        if self.owned:
            self._read_positions(self._round)

    def _let_go(self, action: LetGo) -> None:
        self._round += 1
        delay = self.random.randrange(2_000, 12_000) if self.is_late(0.3) else self.random.choice((0, 0, 20, 400))
        if self._positions and self.random.random() < 0.7:
            self._commit(dict(self._positions))
        self.soon(delay, self._gone, self.membership, action.generation_id)

    def _gone(self, membership: Membership, generation: int) -> None:
        if membership is self.membership and membership.phase is Phase.LETTING_GO and generation == self.generation:
            self.forget()
            membership.let_go(self.world.now)
            self.act()

    def topics_changed(self) -> None:
        """A topic was created or deleted: the leader rejoins for a new assignment."""
        if self.content:
            self.membership.subscribe(self.membership.settings.protocols, self.world.now)
            self.act()

    # -- work

    def _read_positions(self, work: int) -> None:
        self.send(fetch_request(self.group, self.owned), 8, partial(self._positions_read, work))
        self.soon(3_000, self._read_again, work)

    def _read_again(self, work: int) -> None:
        if work == self._round and not self._positions:
            self._read_positions(work)

    def _positions_read(self, work: int, response: Any) -> None:
        if work != self._round or response.groups[0].error_code or self._positions:
            return
        for topic in response.groups[0].topics:
            for partition in topic.partitions:
                self._positions[topic.name, partition.partition_index] = max(partition.committed_offset, 0)
        self.soon(self.pace(), self._work, work)

    def _work(self, work: int) -> None:
        if work != self._round:
            return
        for place in self._positions:
            self._positions[place] += self.random.randrange(3)
        self._commit(dict(self._positions))
        self.soon(self.pace(), self._work, work)

    def _commit(self, positions: dict[Place, int], generation: int | None = None) -> None:
        generation = self.generation if generation is None else generation
        request = commit_request(self.group, generation, self.membership.member_id, self.instance, positions)
        self.send(request, self.version_of(request), partial(self._committed, generation))

    def _committed(self, generation: int, response: Any) -> None:
        errors = {p.error_code for t in response.topics for p in t.partitions} - {0, 3}
        if errors:
            self.membership.commit_answered(min(errors), generation, self.world.now)
            self.act()


def divide(topics: dict[str, int], members: tuple[JoinGroupResponseMember, ...]) -> dict[str, bytes]:
    """Every partition to one member, in turn."""
    given: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in members}
    ids = list(given)
    places = [(topic, index) for topic in sorted(topics) if topic != NOBODYS for index in range(topics[topic])]
    for number, (topic, index) in enumerate(places):
        given[ids[number % len(ids)]].setdefault(topic, []).append(index)
    return {
        member_id: b"\0\0"
        + encode(
            ConsumerProtocolAssignment(
                assigned_partitions=tuple(
                    ConsumerProtocolAssignmentResponseTopicPartition(topic=t, partitions=tuple(p))
                    for t, p in assigned.items()
                )
            ),
            0,
        )
        for member_id, assigned in given.items()
    }
