"""The consumer in a group against a real server, in both protocols: ownership, hand-over, loss, misuse."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from recording_coordinator import Recording
from running_tasks import running, until, wait_until
from working_consumer import Working

from kohort.client import (
    BlockingGroupConsumer,
    Closed,
    GroupConsumer,
    KafkaError,
    Misuse,
    NotOwned,
    Security,
    ServerError,
)
from kohort.client.admin.groups import Committer
from kohort.client.cluster import Cluster
from kohort.client.consumer.ownership import Partitions
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode

BOTH = pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
# A classic group waits for as long as its most patient member.
IMPATIENT = {"rebalance_timeout_ms": 300, "session_timeout_ms": 5_000, "heartbeat_interval_ms": 50}


@pytest.fixture
def topic(servers: str, unique: str) -> str:
    create(servers, unique, 6)
    return unique


def create(servers: str, topic: str, partitions: int) -> None:
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, partitions)


def settings(protocol: str) -> dict[str, Any]:
    if protocol == "cooperative":
        return {"group_protocol": "classic", "assignors": ("cooperative-sticky",)}
    return {"group_protocol": protocol}


def produce(servers: str, topic: str, count: int, partitions: int = 6) -> set[bytes]:
    values = [b"%d" % n for n in range(count)]
    with Cluster(servers) as cluster:
        for partition in range(partitions):
            cluster.produce(topic, partition, [NewRecord(b"", value, 0) for value in values[partition::partitions]])
    return set(values)


@contextlib.asynccontextmanager
async def working(*members: Working, may_fail: bool = False) -> AsyncIterator[None]:
    async with running(*(member.run() for member in members)) as tasks:
        yield
        for task in tasks:
            if task.done() and not may_fail:
                task.result()


def shares(*members: Working) -> list[int]:
    everything = [place for member in members for place in member.mine]
    assert len(everything) == len(set(everything)), "two owners"
    return sorted(len(member.mine) for member in members)


@BOTH
async def test_members_come_and_go_and_every_record_is_read_once(servers: str, topic: str, protocol: str) -> None:
    a, b, c = (Working(servers, topic, [topic], **settings(protocol)) for _ in range(3))
    async with working(a):
        await until(lambda: shares(a) == [6])
        first = await asyncio.to_thread(produce, servers, topic, 600)
        async with working(b, c):
            await until(lambda: shares(a, b, c) == [2, 2, 2])
            await until(lambda: len(a.values + b.values + c.values) >= 600)
        await until(lambda: shares(a) == [6])
        assert set(a.owned) == a.mine
        await asyncio.to_thread(produce, servers, topic, 60)
        await until(lambda: len(a.values + b.values + c.values) >= 660)
    values = a.values + b.values + c.values
    assert len(values) == 660
    assert set(values) == first
    assert not [call for member in (a, b, c) for call in member.told if call[0] == "lost"]
    with Cluster(servers) as cluster:
        assert sum(entry.offset for entry in cluster.committed(topic).values()) == 660
    if protocol == "cooperative":
        # The remaining partitions were never given up: not when b and c came, and not for the rebalance.
        assert [len(partitions) for call, partitions in a.told if call == "revoked"][:1] != [6]


async def test_the_protocol_is_what_the_cluster_has(servers: str, topic: str) -> None:
    with KohortServer(group_coordinator_rebalance_protocols="classic") as classic:
        for cluster, expected in ((servers, "consumer"), (classic.bootstrap_servers, "classic")):
            auto = Working(cluster, "auto", [topic])
            async with working(auto):
                await until(lambda auto=auto: auto.protocol is not None)  # type: ignore[misc]
                assert auto.protocol == expected


async def test_a_classic_group_that_is_not_converted_is_joined_as_such() -> None:
    with KohortServer(group_consumer_migration_policy="disabled") as server:
        servers = server.bootstrap_servers
        create(servers, "t", 2)
        old = Working(servers, "g", ["t"], group_protocol="classic")
        auto = Working(servers, "g", ["t"])
        new = Working(servers, "g", ["t"], group_protocol="consumer")
        async with working(old):
            await until(lambda: shares(old) == [2])
            async with working(auto):
                await until(lambda: shares(old, auto) == [1, 1])
                assert auto.protocol == "classic"
            with pytest.raises(ServerError, match="GROUP_ID_NOT_FOUND"):
                await new.run()


@BOTH
async def test_a_static_member_comes_back_to_what_it_had(servers: str, topic: str, protocol: str) -> None:
    def member(name: str) -> Working:
        return Working(servers, topic, [topic], group_instance_id=name, **settings(protocol))

    a, b = member("a"), member("b")
    async with working(a):
        async with working(b):
            await until(lambda: shares(a, b) == [3, 3])
            had, kept = b.mine, a.mine
            calls = len(a.told)
        back = member("b")
        async with working(back):
            await until(lambda: back.mine == had)
            assert a.mine == kept
            assert len(a.told) == calls  # it was not disturbed


@pytest.mark.parametrize("protocol", ["classic", "cooperative"])
async def test_a_static_member_is_fenced_by_its_successor(servers: str, topic: str, protocol: str) -> None:
    named = {"group_instance_id": "b", **settings(protocol)}
    first, twin = (Working(servers, topic, [topic], **named) for _ in range(2))
    async with working(first, may_fail=True):
        await until(lambda: shares(first) == [6])
        async with working(twin):
            await until(lambda: len(twin.mine) == 6)
            await until(lambda: first.failure is not None)
    with pytest.raises(ServerError, match="another member has joined as 'b'") as fenced:
        await first.commit({})
    assert fenced.value.code == ErrorCode.FENCED_INSTANCE_ID
    assert first.told[-1][0] == "lost"


@BOTH
async def test_topics_come_and_grow(servers: str, unique: str, protocol: str) -> None:
    member = Working(servers, unique, metadata_max_age_ms=50, **settings(protocol))
    member.pattern = f"{unique}-[a-z]"
    async with working(member):
        await until(lambda: member.protocol is not None)
        for n, name in enumerate(("a", "b"), 1):
            await asyncio.to_thread(create, servers, f"{unique}-{name}", 2)
            await until(lambda n=n: len(member.mine) == 2 * n)  # type: ignore[misc]
        member.subscribe([f"{unique}-b"])
        await until(lambda: member.mine == {(f"{unique}-b", 0), (f"{unique}-b", 1)})


@BOTH
async def test_a_topic_that_is_created_later_is_assigned_soon(servers: str, unique: str, protocol: str) -> None:
    there, later = f"{unique}-there", f"{unique}-later"
    await asyncio.to_thread(create, servers, there, 2)
    member = Working(servers, unique, [there, later], **settings(protocol))
    async with working(member):
        await until(lambda: shares(member) == [2])
        await asyncio.to_thread(create, servers, later, 2)
        await until(lambda: shares(member) == [4])


# -- giving up


@BOTH
async def test_a_partition_has_one_owner_until_it_is_given_up(servers: str, topic: str, protocol: str) -> None:
    release = asyncio.Event()

    class Slow(Working):
        async def on_revoked(self, partitions: Partitions) -> None:
            await release.wait()
            await super().on_revoked(partitions)

    slow = Slow(servers, topic, [topic], **settings(protocol))
    quick = Working(servers, topic, [topic], **settings(protocol))
    async with working(slow):
        await until(lambda: shares(slow) == [6])
        await asyncio.to_thread(produce, servers, topic, 60)
        async with working(quick):
            # Heartbeats and work continue: partitions that must be given up may still be read and committed.
            await until(lambda: len(slow.values) == 60)
            try:
                for _ in range(20):  # in the old generation, between the generations, in the new one
                    await slow.commit(slow.positions)
                assert quick.mine == set()
            finally:
                release.set()  # else a failure would wait for itself
            await until(lambda: shares(slow, quick) == [3, 3])
            assert quick.values == []


@BOTH
async def test_partitions_that_are_not_given_up_in_time_are_lost(servers: str, topic: str, protocol: str) -> None:
    errors: list[NotOwned] = []

    class Stuck(Working):
        async def on_revoked(self, partitions: Partitions) -> None:
            await until(lambda: not partitions & self.owned.keys())
            try:
                await self.commit(dict.fromkeys(partitions, 1))
            except NotOwned as error:
                errors.append(error)

    stuck = Stuck(servers, topic, [topic], **settings(protocol), **IMPATIENT)
    other = Working(servers, topic, [topic], **settings(protocol), **IMPATIENT)
    async with working(stuck):
        await until(lambda: shares(stuck) == [6])
        async with working(other):
            await until(lambda: [call for call, _ in stuck.told if call == "lost"] != [])
            await until(lambda: errors)
            await until(lambda: shares(stuck, other) == [3, 3])


@BOTH
async def test_a_commit_in_on_revoked_that_comes_too_late_does_not_end_the_consumer(
    servers: str, topic: str, protocol: str
) -> None:
    class Slow(Working):
        lost = False

        def on_lost(self, partitions: Partitions) -> None:
            self.lost = True
            super().on_lost(partitions)

        async def on_revoked(self, partitions: Partitions) -> None:
            if not self.lost:
                await until(lambda: self.lost)
                await self.commit(dict.fromkeys(partitions, 1))
            await super().on_revoked(partitions)

    slow = Slow(servers, topic, **settings(protocol), **IMPATIENT)
    async with slow:
        slow.subscribe([topic])
        await until(lambda: shares(slow) == [6])
        slow.subscribe([f"{topic}-other"])
        await until(lambda: slow.lost)
        slow.subscribe([topic])
        await until(lambda: shares(slow) == [6])
        assert slow.failure is None


async def test_an_impossible_commit_in_on_revoked_ends_the_consumer(servers: str, topic: str) -> None:
    class Wrong(Working):
        async def on_revoked(self, partitions: Partitions) -> None:
            await self.commit({(topic, 17): 1})

    wrong = Wrong(servers, topic)
    wrong.subscribe([topic])
    await until(lambda: shares(wrong) == [6])
    with pytest.raises(NotOwned, match=f"{topic}-17"):
        await wrong.close()


async def test_an_exception_of_on_revoked_while_closing_is_raised_once(servers: str, topic: str) -> None:
    fails = asyncio.Event()

    class Broken(Working):
        async def on_revoked(self, partitions: Partitions) -> None:
            self.told.append(("revoked", partitions))
            await fails.wait()
            raise KafkaError(None, "of the program's database")

    broken = Broken(servers, topic)
    await broken.__aenter__()
    broken.subscribe([topic])
    await until(lambda: shares(broken) == [6])
    broken.subscribe([f"{topic}-other"])
    await until(lambda: broken.told[-1][0] == "revoked")
    closing = asyncio.create_task(broken.close())
    await asyncio.sleep(0)
    fails.set()
    with pytest.raises(KafkaError, match="of the program's database"):
        await closing
    assert [call for call, _ in broken.told].count("revoked") == 1


async def test_retries_without_a_pause_do_not_block_the_loop(servers: str, topic: str) -> None:
    member = Working(servers, topic)
    other = asyncio.Event()
    async with member:
        for call in (member.fetch, member.commit):
            other.clear()
            asyncio.get_running_loop().call_soon(other.set)
            for _ in range(100):
                if not other.is_set():
                    with pytest.raises(NotOwned):
                        await call({(topic, 0): 0})
            assert other.is_set()


async def test_a_commit_between_generations_is_taken_with_the_next(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer says REBALANCE_IN_PROGRESS, the next one STALE_MEMBER_EPOCH."""
    answers = [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH]
    commit_as = Cluster.commit_as

    def refused(cluster: Cluster, group_id: str, offsets: Any, committer: Committer) -> Any:
        return dict.fromkeys(offsets, answers.pop(0)) if answers else commit_as(cluster, group_id, offsets, committer)

    member = Working(servers, topic, [topic])
    async with working(member):
        await until(lambda: shares(member) == [6])
        monkeypatch.setattr(Cluster, "commit_as", refused)
        await member.commit({(topic, 0): 0})
        assert not answers
        assert (await member.committed())[topic, 0].offset == 0


@BOTH
async def test_a_commit_is_not_tried_again_for_what_went_away_and_came_back(
    servers: str, topic: str, protocol: str
) -> None:
    """The position that on_revoked commits is the later one."""

    class Moving(Working):
        async def _commit_once(self, offsets: Any) -> Any:
            if offsets == {(topic, 0): 3}:
                self.subscribe([f"{topic}-other"])
                await until(lambda: not self.owned)
                self.subscribe([topic])
                await until(lambda: shares(self) == [6])
                return {(topic, 0): ErrorCode.REBALANCE_IN_PROGRESS}
            return await super()._commit_once(offsets)

    member = Moving(servers, topic, **settings(protocol))
    async with member:
        member.subscribe([topic])
        await until(lambda: shares(member) == [6])
        member.positions[topic, 0] = 7
        with pytest.raises(NotOwned, match=f"commit: not this member's in group {topic}: {topic}-0$"):
            await member.commit({(topic, 0): 3})
        assert (await member.committed())[topic, 0].offset == 7


async def test_fetches_name_the_member(servers: str, topic: str, request: pytest.FixtureRequest) -> None:
    """Only kohort looks whether the reader owns the partition; the library itself does on every cluster."""
    looks = request.node.callspec.params["servers"] == "kohort"

    def described_epoch() -> int | None:
        with Cluster(servers) as cluster:
            [only] = cluster.describe_groups([topic])[topic].members
            return only.epoch

    member = Working(servers, topic, [topic], group_protocol="consumer")
    async with working(member):
        await until(lambda: shares(member) == [6])
        [fetched] = await member.fetch({(topic, 0): 0}, max_wait_ms=0)
        assert fetched.fenced is looks
        assert member.reader is not None
        assert member.reader.member_epoch == member.epoch == await asyncio.to_thread(described_epoch)
        with pytest.raises(NotOwned, match=f"fetch: not this member's in group {topic}: {topic}-9"):
            await member.fetch({(topic, 9): 0})
        with pytest.raises(TypeError, match="min_bytes"):
            member.fetch({(topic, 0): 0}, min_bytes=1)  # type: ignore[call-arg]


# -- misuse


async def test_a_callback_that_raises_ends_the_consumer(servers: str, topic: str) -> None:
    class Broken(Working):
        async def on_assigned(self, partitions: Partitions) -> None:
            raise LookupError("no room")

    broken = Broken(servers, topic, [topic])
    other = Working(servers, topic, [topic])
    with pytest.raises(LookupError, match="no room") as raised:
        await broken.run()
    assert raised.value.__notes__ == [f"in on_assigned of group {topic}"]
    with pytest.raises(LookupError):
        await broken.commit({})
    async with working(other):
        await until(lambda: shares(other) == [6])


@pytest.mark.parametrize("protocol", ["auto", "classic", "consumer"])
async def test_a_token_provider_that_raises_ends_the_consumer(servers: str, topic: str, protocol: str) -> None:
    def token() -> str:
        raise LookupError("no token today")

    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    security = Security.of(properties, token_provider=token)
    member = Working(servers, topic, group_protocol=protocol, security=security)
    member.subscribe([topic])
    await until(lambda: member.failure is not None)
    with pytest.raises(LookupError, match="no token today"):
        await member.commit({})
    await member.close()


async def test_a_token_provider_that_raises_later_does_too(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise LookupError("no token any more")

    member = Working(servers, topic, group_protocol="classic", metadata_max_age_ms=100)
    async with member:
        member.subscribe(pattern=topic)
        await until(lambda: shares(member) == [6])
        monkeypatch.setattr(Cluster, "topics", broken)
        member.subscribe(pattern="another")  # it looks for topics
        await until(lambda: member.failure is not None)
        with pytest.raises(LookupError, match="no token any more"):
            await member.commit({})


async def test_misuse_is_told(servers: str, topic: str) -> None:
    class Closing(Working):
        seen: BaseException | None = None

        async def on_assigned(self, partitions: Partitions) -> None:
            await super().on_assigned(partitions)
            try:
                await self.close()
            except Misuse as error:
                self.seen = error

    member = Closing(servers, topic, [topic])
    async with working(member):
        await until(lambda: member.seen is not None)
        assert "inside a callback" in str(member.seen)
        with pytest.raises(ValueError, match="either topics or a pattern"):
            member.subscribe()
        with pytest.raises(Misuse, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, member.commit({}))
    with pytest.raises(Closed, match="the consumer of group"):
        member.subscribe([topic])
    for wrong, message in (
        ({"group_protocol": "new"}, "group_protocol is 'new'"),
        ({"assignors": ("mine",)}, "no assignor 'mine'"),
        ({"heartbeat_interval_ms": 60_000}, "heartbeat_interval_ms"),
    ):
        with pytest.raises(ValueError, match=message):
            GroupConsumer("h:1", "g", **wrong)  # type: ignore[misc]
    with pytest.raises(ValueError, match="the group id is empty"):
        GroupConsumer("h:1", "")


# -- threads


class Threaded(BlockingGroupConsumer):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.mine: set[Any] = set()
        self.changed = threading.Condition()
        self.threads: set[int] = set()
        self.seen: Misuse | None = None

    def try_to_close(self) -> None:
        try:
            self.close()
        except Misuse as error:
            self.seen = error

    def on_assigned(self, partitions: Partitions) -> None:
        self.threads.add(threading.get_ident())
        with self.changed:
            self.mine |= partitions
            self.changed.notify_all()

    def on_revoked(self, partitions: Partitions) -> None:
        self.commit(dict.fromkeys(partitions, 7))
        with self.changed:
            self.mine -= partitions
            self.changed.notify_all()

    def until(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.mine) == count, 20)


@BOTH
def test_members_in_threads_share_partitions(servers: str, topic: str, protocol: str) -> None:
    with Threaded(servers, topic, **settings(protocol)) as a:
        a.subscribe([topic])
        a.until(6)
        a.fetch({(topic, 0): 0}, max_wait_ms=0)
        its = [thread for thread in threading.enumerate() if thread.name.endswith(f"-{topic}")]
        assert len(its) == 4  # the loop's, two that ask, the callbacks'
        with Threaded(servers, topic, **settings(protocol)) as b:
            b.subscribe([topic])
            a.until(3)
            b.until(3)
            assert not set(a.owned) & set(b.owned)
            assert {entry.offset for entry in b.committed().values()} == {7}
            assert a.fetch(dict.fromkeys(a.owned, 0), max_wait_ms=0) != []
        a.until(6)
        assert a.threads.isdisjoint({threading.get_ident()})
        assert len(a.threads) == 1
    with pytest.raises(Closed):
        a.committed()
    a.close()
    for thread in its:
        thread.join(20)
        assert not thread.is_alive(), thread.name


def test_sys_exit_in_a_callback_of_threads(servers: str, topic: str) -> None:
    class Leaving(Threaded):
        def on_assigned(self, partitions: Partitions) -> None:
            sys.exit("enough")

    with Leaving(servers, topic) as leaving:
        leaving.subscribe([topic])
        with pytest.raises(RuntimeError, match="on_assigned raised SystemExit: enough") as raised:
            wait_until(lambda: leaving.failure is not None) or leaving.committed()
        assert isinstance(raised.value.__cause__, SystemExit)
        closing = threading.Thread(target=leaving.close)  # it may get the number of the callbacks' thread
        closing.start()
        closing.join(20)
        assert not closing.is_alive()


def test_misuse_in_on_lost_is_told(servers: str, topic: str) -> None:
    class Closing(Threaded):
        def on_lost(self, partitions: Partitions) -> None:
            self.try_to_close()
            self.mine -= partitions
            sys.exit("is not for here either")

    with Closing(servers, topic, group_protocol="classic", heartbeat_interval_ms=50) as closing:
        closing.subscribe([topic])
        closing.until(6)
        with Cluster(servers) as cluster:
            cluster.leave_as(topic, Committer(closing.member_id, -1), classic=True)
        wait_until(lambda: closing.seen is not None)
        assert "close was called in the consumer's own thread, where on_lost runs" in str(closing.seen)
        closing.until(6)  # it goes on
        assert closing.committed() == {}


def test_misuse_in_threads_is_told(servers: str, topic: str) -> None:
    class Closing(Threaded):
        def on_assigned(self, partitions: Partitions) -> None:
            self.try_to_close()
            super().on_assigned(partitions)

    class Awaiting(BlockingGroupConsumer):
        async def on_assigned(self, partitions: Partitions) -> None:  # type: ignore[override]
            pass

    with Closing(servers, topic) as closing:
        closing.subscribe(topic)
        closing.until(6)
        assert "close was called inside a callback" in str(closing.seen)
    with Awaiting(servers, topic) as awaiting:
        awaiting.subscribe(topic)
        with pytest.raises(Misuse, match="on_assigned is a coroutine function: those are for GroupConsumer"):
            wait_until(lambda: awaiting.failure is not None) or awaiting.committed()


async def test_a_group_of_another_kind_is_not_joined(servers: str, topic: str) -> None:
    async with Recording(servers, topic) as other:
        await other.ensure_active_group()
        for protocol in ("auto", "classic"):
            member = Working(servers, topic, [topic], group_protocol=protocol)
            with pytest.raises(ServerError, match="its members are not consumers") as refused:
                await member.run()
            assert refused.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
