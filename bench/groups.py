"""Large groups: joining, idling, a replay of many offsets, and a storm of short-lived members.

The server is a child process, the members share this one: real TCP, a connection each (_crowd.py), both on the same
machine. CPU is the server's own, from /proc, so those figures hold even where the members are the slower side; times
include the members' work. 10,000 members take 10,000 open files in each process: `ulimit -n 20000`; fewer are used, and
it is said, where that many are not allowed. Takes five minutes.
"""

from __future__ import annotations

import resource
import socket
import tempfile
import time
from pathlib import Path

from bench._crowd import Crowd, Member
from bench._process import Address, call, cpu_seconds, memory_mb, serving
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.storage.sqlite import SqliteStorage
from kohort.wire.batches import read_header
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

MANY = ("max.connections=12000", "max.connections.per.ip=12000")
IDLE_S = 30.0
STORM_S = 30
STORMS = ((20, ""), (100, ""), (100, "kohort"))
"""Members a second, and what they call themselves."""
LONG_LIVED = 50


def main() -> None:
    most = _files_allowed() - 200
    sizes = [min(size, most) for size in (1_000, 10_000)]
    _joining(sizes)
    _idling(sizes[-1])
    _replay()
    for rate, software in STORMS:
        _storm(rate, software)


def _files_allowed() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = 12_000 if hard == resource.RLIM_INFINITY else min(hard, 12_000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < 10_200:
        print(f"only {allowed} open files are allowed (ulimit -n): fewer members than 10,000")
    return allowed


# -- joining


def _joining(sizes: list[int]) -> None:
    """A new group within its initial window; then one more member, who makes the whole group rebalance."""
    print("\na group forms in its initial window; then one more joins the stable group. No peer has published figures")
    print(
        f"{'members':>8} {'heartbeats':>10} {'window':>7} {'all asked':>10} {'last join to stable':>20} "
        f"{'window to stable':>17} {'server CPU':>11} {'MB':>5} {'one more to stable':>19} {'CPU':>6}"
    )
    for size, window in zip(sizes, (300, 1_000), strict=False):
        for software in ("", "kohort"):
            _form(size, window, software)


def _form(size: int, window_ms: int, software: str) -> None:
    with serving(*MANY, f"group.initial.rebalance.delay.ms={window_ms}") as (pid, address, _):
        crowd = Crowd(address, software=software)
        members = [crowd.connect("orders") for _ in range(size)]
        before = cpu_seconds(pid)
        began = time.monotonic()
        for index, member in enumerate(members):
            member.join()
            if index % 50 == 49:
                crowd.serve(0)
        asked = time.monotonic()
        crowd.run(lambda: crowd.stable == size, 120)
        stable = time.monotonic()
        used = cpu_seconds(pid) - before
        last_join = max(member.asked for member in members)
        memory = memory_mb(pid)
        took, cost = _one_more(crowd, pid)
        print(
            f"{size:8} {'held' if software else 'plain':>10} {window_ms / 1000:5.1f} s {asked - began:8.2f} s "
            f"{stable - last_join:18.2f} s {stable - crowd.formed:15.2f} s {used:9.2f} s {memory:5.0f} "
            f"{took:17.2f} s {cost:4.2f} s",
            flush=True,
        )
        assert crowd.expelled == 0
        crowd.close()


def _one_more(crowd: Crowd, pid: int) -> tuple[float, float]:
    """From its first JoinGroup to all stable again; the server's CPU meanwhile."""
    crowd.spread()
    crowd.serve(3.5)
    size = len(crowd.members) + 1
    newcomer = crowd.connect("orders")
    before, generation = cpu_seconds(pid), crowd.generation
    newcomer.join()
    crowd.run(lambda: crowd.stable == size and crowd.generation > generation, 60)
    return time.monotonic() - newcomer.began, cpu_seconds(pid) - before


# -- idling


def _idling(size: int) -> None:
    print(f"\n{size:,} members of 100 groups, heartbeating every 3 s, evenly spread; {IDLE_S:.0f} s")
    print(f"{'heartbeats':>10} {'answered/s':>11} {'share of a core':>16} {'µs each':>8} {'MB':>5}")
    for software in ("", "kohort"):
        _idle(size, software)
    print("peers at 25,000/s over 1,000 connections (earlier): kfake 30.7 µs, Kafka 0.9 36.8 µs")


def _idle(size: int, software: str) -> None:
    with serving(*MANY, "group.initial.rebalance.delay.ms=3000") as (pid, address, _):
        crowd = Crowd(address, software=software)
        for index in range(size):
            crowd.connect(f"orders-{index % 100}").join()
            if index % 50 == 49:
                crowd.serve(0)
        crowd.run(lambda: crowd.stable == size, 120)
        crowd.spread()
        crowd.serve(4)
        before, answered, began = cpu_seconds(pid), crowd.heartbeats, time.monotonic()
        crowd.serve(IDLE_S)
        took, answered = time.monotonic() - began, crowd.heartbeats - answered
        used = cpu_seconds(pid) - before
        print(
            f"{'held' if software else 'plain':>10} {answered / took:11,.0f} {used / took:15.1%} "
            f"{used / max(answered, 1) * 1e6:8.1f} {memory_mb(pid):5.0f}",
            flush=True,
        )
        crowd.close()


# -- a replay


def _replay() -> None:
    print("\nserver start to the ready line, with so many committed offsets")
    print(f"{'partitions':>10} {'groups':>7} {'commits each':>13} {'ready':>9} {'CPU':>8} {'empty server':>13}")
    for commits in (1, 5):
        with tempfile.TemporaryDirectory() as data:
            with serving("log.cleaner.enable=false", data=data) as (_, address, empty):
                _commit(address, groups=100, partitions=1_000, commits=commits)
            times = []
            for _ in range(3):
                with serving("log.cleaner.enable=false", data=data) as (pid, _, ready):
                    times.append((ready, cpu_seconds(pid)))
            ready, used = min(times)
            print(f"{100_000:10,} {100:7} {commits:13} {ready:6} ms {used:6.2f} s {empty:10} ms", flush=True)
    print("peer: Kafka's new coordinator loads 4.4 M offset records a second from memory (KAFKA-19716, JMH)")


def _commit(address: Address, *, groups: int, partitions: int, commits: int) -> None:
    with socket.create_connection(address, 30) as connection:
        topic = CreatableTopic(name="orders", num_partitions=partitions, replication_factor=1)
        call(connection, CreateTopicsRequest(topics=(topic,), timeout_ms=30_000), 5, CreateTopicsResponse)
        for commit in range(commits):
            asked = tuple(
                OffsetCommitRequestPartition(partition_index=p, committed_offset=commit, committed_metadata="")
                for p in range(partitions)
            )
            for group in range(groups):
                request = OffsetCommitRequest(
                    group_id=f"group-{group}", topics=(OffsetCommitRequestTopic(name="orders", partitions=asked),)
                )
                answer = call(connection, request, 8, OffsetCommitResponse)
                assert answer.topics[0].partitions[0].error_code == 0, answer.topics[0].partitions[0]


# -- a storm


def _storm(rate: int, software: str) -> None:
    """Members that join, get an assignment, leave; so many a second, beside some that stay."""
    print(
        f"\n{rate} members a second join and leave for {STORM_S} s, beside {LONG_LIVED} that stay; "
        f"heartbeats {'held' if software else 'plain'}"
    )
    with tempfile.TemporaryDirectory() as data:
        with serving(*MANY, "log.cleaner.enable=false", data=data) as (pid, address, _):
            run = _Storm(Crowd(address, software=software), pid, rate)
            run.go()
            topic_id = _offsets_topic(address)
        before = _stored(data, topic_id)
        with serving("log.retention.check.interval.ms=500", data=data):
            time.sleep(4)
        run.report(before, _stored(data, topic_id))


class _Storm:
    def __init__(self, crowd: Crowd, pid: int, rate: int) -> None:
        self.crowd = crowd
        self.pid = pid
        self.rate = rate
        self.waited: list[float] = []
        """Of each short-lived member, from its first JoinGroup to its assignment, in the order of the joins."""
        self.cpu: list[float] = []
        """The server's, at the start and after each third."""
        self.rebalances = 0

    def go(self) -> None:
        crowd = self.crowd
        stay = {crowd.connect("orders") for _ in range(LONG_LIVED)}
        for member in stay:
            member.join()
        crowd.run(lambda: crowd.stable == LONG_LIVED, 60)
        crowd.spread()

        def settled(member: Member) -> None:
            if member not in stay:
                self.waited.append(time.monotonic() - member.began)
                member.leave()

        crowd.settled = settled
        first = crowd.generation
        self.cpu = [cpu_seconds(self.pid)]
        total = self.rate * STORM_S
        began = time.monotonic()
        for index in range(total):
            crowd.run(lambda due=began + index / self.rate: time.monotonic() >= due, 60)
            crowd.connect("orders").join()
            if (index + 1) % (total // 3) == 0:
                self.cpu.append(cpu_seconds(self.pid))
        self.rebalances = crowd.generation - first
        crowd.run(lambda: crowd.gone == total and crowd.stable == LONG_LIVED, 120)
        crowd.close()

    def report(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        third = len(self.waited) // 3
        each = [(b - a) / (self.rate * STORM_S / 3) * 1000 for a, b in zip(self.cpu, self.cpu[1:], strict=False)]
        print(f"  members that came and went {len(self.waited):8,}      rebalances {self.rebalances}")
        print(f"  join to assignment, median {_median(self.waited[:third]):8.2f} s    of the first third")
        print(f"                             {_median(self.waited[-third:]):8.2f} s    of the last third")
        print(f"  server CPU for one         {each[0]:8.2f} ms   of the first third, rebalances included")
        print(f"                             {each[-1]:8.2f} ms   of the last third")
        print(f"  {OFFSETS_TOPIC}         {before[0]:8,} records, {before[1]:,} bytes; not compacted")
        print(f"                             {after[0]:8,} records, {after[1]:,} bytes; compacted", flush=True)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _offsets_topic(address: Address) -> bytes:
    with socket.create_connection(address, 30) as connection:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=OFFSETS_TOPIC),))
        found: bytes = call(connection, request, 10, MetadataResponse).topics[0].topic_id
        return found


def _stored(data: str, topic_id: bytes) -> tuple[int, int]:
    """Records and bytes of a topic in the data directory of a stopped server."""
    storage = SqliteStorage(Path(data))
    try:
        records = size = 0
        for log in storage.logs():
            if log.key.topic_id == topic_id:
                size += log.size
                offset = log.start_offset
                while batches := storage.read(log.key, offset, 8_388_608):
                    records += sum(read_header(batch.data).record_count for batch in batches)
                    offset = batches[-1].last_offset + 1
        return records, size
    finally:
        storage.close()


if __name__ == "__main__":
    main()
