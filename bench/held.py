"""Held heartbeats of consumer groups: memory, deadlines and time, for 50,000 of them; timers of the server's loop.

First the broker alone, in this process, on memory storage: 500 groups of 100 members, a connection each, an owner for
each partition. Bytes are those that Python allocates (tracemalloc) from just before the heartbeats until they are
held, above what their connections and members take; times are of a second run without it. Then the server with real
connections, as many as the open files allow, 2,000 at most: the timers of its event loop. Takes two minutes.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import socket
import time
import tracemalloc
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from bench._process import call, receive, wait_until
from kohort.broker.broker import Broker
from kohort.broker.state import Endpoint
from kohort.broker.turn import Frame, Opened, Send, Turn
from kohort.config import Config
from kohort.storage.memory import MemoryStorage
from kohort.testing import KohortServer
from kohort.wire.codec import decode, encode_request
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

GROUPS, MEMBERS = 500, 100
SOCKETS = 2_000
VERSION = 1
TOPIC = "orders"
ADMIN = 1


@dataclass(slots=True)
class Member:
    connection: int
    group: str
    name: str
    epoch: int = 0
    owned: tuple[HeartbeatTopicPartitions, ...] = ()
    owes: bool = True
    """It has an assignment to acknowledge, or has not joined."""

    def frame(self) -> bytes:
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=30_000 if joins else -1,
            subscribed_topic_names=(TOPIC,) if joins else None,
            topic_partitions=self.owned if self.owes else None,
        )
        return encode_request(request, VERSION, 68, "bench")

    def answered(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions
            self.owes = True


@dataclass
class World:
    """A broker without a server: time moves by hand, every turn is committed at once."""

    groups: int
    members: int
    now: int = 1_760_000_000_000
    people: dict[int, Member] = field(default_factory=dict)
    answers: int = 0

    def __post_init__(self) -> None:
        config = Config(group_consumer_heartbeat_hold_max_ms=4_500)
        self.storage = MemoryStorage()
        endpoints = [Endpoint("127.0.0.1", 9092)]
        self.broker = Broker(config, self.storage, now=self.now, random=random.Random(1), endpoints=endpoints)
        self.step([Opened(ADMIN, config.broker_id, "127.0.0.1")])
        topic = CreatableTopic(name=TOPIC, num_partitions=self.members, replication_factor=1)
        self.ask(ADMIN, encode_request(CreateTopicsRequest(topics=(topic,), timeout_ms=1_000), 5, 19, "bench"))
        for index in range(self.groups * self.members):
            group, number = divmod(index, self.members)
            member = Member(ADMIN + 1 + index, f"group-{group}", f"{number:022}")
            self.people[member.connection] = member
            self.step([Opened(member.connection, config.broker_id, "127.0.0.1")])

    def step(self, arrived: list[Any]) -> Turn:
        turn = self.broker.step(arrived, self.now)
        self.storage.commit(turn.operations)
        for release in turn.releases:
            assert isinstance(release, Send), release
            member = self.people.get(release.connection)
            if member is not None:
                self.answers += 1
                member.answered(decode(ConsumerGroupHeartbeatResponse, VERSION, release.data[4:], 5))
        return turn

    def ask(self, connection: int, data: bytes) -> Turn:
        return self.step([Frame(connection, data[4:])])

    def beat(self, member: Member) -> None:
        frame = member.frame()
        member.owes = False
        self.ask(member.connection, frame)

    @property
    def held(self) -> int:
        return sum(len(shard.consumers.holds.held) for shard in self.broker.state.shards)

    def settle(self) -> None:
        """Until every member has its share and the group has heard that it does, and nobody is held."""
        while True:
            before = [(member.epoch, member.owned) for member in self.people.values()]
            for member in self.people.values():
                self.beat(member)
            self.now += 2_000
            self.step([])
            self.expire()
            if before == [(member.epoch, member.owned) for member in self.people.values()]:
                return

    def expire(self) -> None:
        self.now += 6_000
        self.step([])
        assert self.held == 0, self.held

    def hold(self) -> float:
        """One heartbeat of each; microseconds for one."""
        frames = [(member.connection, member.frame()[4:]) for member in self.people.values()]
        began = time.perf_counter()
        for connection, frame in frames:
            self.broker.step([Frame(connection, frame)], self.now)
        took = time.perf_counter() - began
        assert self.held == len(self.people), self.held
        return took / len(frames) * 1e6


def main() -> None:
    count = GROUPS * MEMBERS
    print(f"{count:,} members of consumer groups of {MEMBERS}, each heartbeat held")
    world = World(GROUPS, MEMBERS)
    began = time.perf_counter()
    world.settle()
    print(f"  (joined and settled in {time.perf_counter() - began:.0f} s)")
    _memory(world)
    _times(world)
    _sockets()


def _memory(world: World) -> None:
    count = len(world.people)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    frames = [(member.connection, member.frame()[4:]) for member in world.people.values()]
    overhead = tracemalloc.get_traced_memory()[0] - before
    for connection, frame in frames:
        world.broker.step([Frame(connection, frame)], world.now)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before - overhead
    tracemalloc.stop()
    shards = world.broker.state.shards
    places = sum(shard.running.deadlines.places for shard in shards)
    print(f"  bytes each                    {used / count:8.0f}      {used / 1e6:.0f} MB in all")
    print(f"  deadlines in heaps            {places:8,}      {places / count:.1f} each: session and hold")
    print(f"  heaps that the loop looks at  {1:8}      of {len(shards)} shards' next deadlines; one timer in the loop")
    world.expire()


def _times(world: World) -> None:
    count = len(world.people)
    print(f"  to hold one                   {world.hold():8.1f} µs   its turn, its frame decoded")
    world.now += 6_000
    began = time.perf_counter()
    turn = world.broker.step([], world.now)
    took = time.perf_counter() - began
    assert len(turn.releases) == count, len(turn.releases)
    print(f"  to answer one, time is up     {took / count * 1e6:8.1f} µs   {took:.2f} s for all in one turn")
    world.hold()
    request = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=TOPIC, count=2 * MEMBERS),), timeout_ms=1_000)
    began = time.perf_counter()
    turn = world.broker.step([Frame(ADMIN, encode_request(request, 2, 37, "bench")[4:])], world.now)
    took = time.perf_counter() - began
    told = len(turn.releases) - 1
    each = took / max(told, 1) * 1e6
    print(f"  to push a change to one       {each:8.1f} µs   {took:.2f} s: a topic grows, {told:,} are told")


def _sockets() -> None:
    """A server in a thread of this process, and its members' sockets here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(SOCKETS, (hard - 500) // 2)
    # uvloop does not tell its timers.
    own_loop = mock.patch("kohort.testing.server.loop_factory", return_value=asyncio.SelectorEventLoop)
    with own_loop, KohortServer(max_connections=count + 10, max_connections_per_ip=count + 10) as server:
        host, _, port = server.bootstrap_servers.rpartition(":")
        people = [Member(n, f"group-{n // MEMBERS}", f"{n:022}") for n in range(count)]
        links = [socket.create_connection((host, int(port)), 10) for _ in people]
        for joined in (False, True):
            # The first answers of a group tell short intervals, until it has a target.
            for member, link in zip(people, links, strict=True):
                link.sendall(member.frame())
                member.owes = False
                if not joined:
                    member.answered(_answer(link))
            time.sleep(1.5)
        for member, link in zip(people, links, strict=True):
            member.answered(_answer(link))
        frames = [member.frame() for member in people]
        idle = _timers(server)
        for frame, link in zip(frames, links, strict=True):
            link.sendall(frame)
        wait_until(lambda: _held(server) == count, 10, f"{_held(server)} of {count} are held")
        print(f"{count:,} over sockets, the server in a thread beside them")
        print(f"  timers of the event loop      {_timers(server):8}      {idle} without held heartbeats")
        began = time.perf_counter()
        with socket.create_connection((host, int(port)), 10) as admin:
            topic = CreatableTopic(name=TOPIC, num_partitions=MEMBERS, replication_factor=1)
            call(admin, CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), 5, CreateTopicsResponse)
        for member, link in zip(people, links, strict=True):
            answer = _answer(link)
            assert answer.assignment is not None, member
        took = time.perf_counter() - began
        print(f"  a topic comes, all are told   {took:8.2f} s    {took / count * 1e6:.0f} µs each")
        for link in links:
            link.close()


def _answer(link: socket.socket) -> ConsumerGroupHeartbeatResponse:
    frame = receive(link, int.from_bytes(receive(link, 4), "big"))
    return decode(ConsumerGroupHeartbeatResponse, VERSION, frame, 5)


def _timers(server: KohortServer) -> int:
    """Of the event loop."""
    return sum(not handle.cancelled() for handle in server._loop._scheduled)


def _held(server: KohortServer) -> int:
    assert server._server is not None
    return sum(len(shard.consumers.holds.held) for shard in server._server._broker.state.shards)


if __name__ == "__main__":
    main()
