"""The mover of delayed jobs: each is moved once, also by a mover that replaces another one in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from queue_world import read_all

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.queue.delay_mover import Mover
from kohort.client.queue.delays import delayed, now_ms
from kohort.client.queue.remaining import waiting_keys
from kohort.client.transactions.writer import TransactionalWriter
from kohort.client.wire.routing import Router, Timing
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

DELAYS = "jobs.delays"


class World:
    def __init__(self, server: KohortServer, stack: ExitStack) -> None:
        self.server = server
        self._stack = stack
        self.cluster = stack.enter_context(Cluster(server.bootstrap_servers))
        server.create_topic("jobs", 1)
        server.create_topic(DELAYS, 1, configs={"cleanup.policy": "compact"})

    def mover(self) -> Mover:
        router = Router(self.server.bootstrap_servers, "kohort", Timing())
        self._stack.callback(router.close)
        mover = Mover(self.cluster, TransactionalWriter(router, f"{DELAYS}.mover"), DELAYS, ["jobs"])
        mover.begin()
        return mover

    def put(self, record: NewRecord, due_ms: int, topic: str = "jobs") -> None:
        self.cluster.produce(DELAYS, 0, [delayed(topic, record, due_ms)])


@pytest.fixture
def world() -> Iterator[World]:
    with KohortServer() as server, ExitStack() as stack:
        yield World(server, stack)


def test_jobs_are_moved_as_they_were_when_they_are_due(world: World) -> None:
    record = NewRecord(b"k", None, 1_000, (("h", b"x"), ("n", None)))
    world.put(record, 0)
    world.put(NewRecord(None, b"later", 1_000), now_ms() + 3_600_000)
    world.put(NewRecord(None, b"foreign", 1_000), 0, "others")
    world.cluster.produce(DELAYS, 0, [NewRecord(b"a", b"no job", 1_000)])
    mover = world.mover()
    assert len(mover) == 2
    assert mover.step(100) == 1
    [moved] = read_all(world.server, "jobs")
    assert (moved.key, moved.value, moved.headers, moved.timestamp) == (b"k", None, (("h", b"x"), ("n", None)), 1_000)
    mover.step(100)
    assert len(mover) == 1
    assert len(waiting_keys(world.cluster, DELAYS)) == 3
    assert mover.step(100) == 0


def test_a_mover_that_was_replaced_moves_nothing(world: World) -> None:
    for number in range(3):
        world.put(NewRecord(None, str(number).encode(), 1_000), 0)
    first = world.mover()
    second = world.mover()
    with pytest.raises(KafkaError):
        first.step(100)
    assert read_all(world.server, "jobs") == []
    assert second.step(100) == 3
    world.put(NewRecord(None, b"3", 1_000), 0)
    third = world.mover()
    assert len(third) == 1
    assert third.step(100) == 1
    assert [record.value for record in read_all(world.server, "jobs")] == [b"0", b"1", b"2", b"3"]
