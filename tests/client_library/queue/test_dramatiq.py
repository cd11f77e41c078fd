"""Dramatiq's own worker on KohortBroker: retries, time limits, delays, dead letters, shutdown."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.errors import QueueJoinTimeout, QueueNotFound
from queue_world import SHARES, read_all

from kohort.client.dramatiq import KohortBroker
from kohort.testing import KohortServer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(**SHARES) as found:
        yield found


@pytest.fixture
def broker(server: KohortServer, request: pytest.FixtureRequest) -> Iterator[KohortBroker]:
    """A namespace for each test."""
    name = request.node.name
    found = KohortBroker(server.bootstrap_servers, namespace=name[:40], close_timeout=1.0)
    yield found
    found.close()


@contextlib.contextmanager
def working(broker: KohortBroker, threads: int = 4) -> Iterator[dramatiq.Worker]:
    broker.emit_after("process_boot")  # as Dramatiq's command does: this starts the timer of time limits
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=threads)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def test_messages_are_processed(broker: KohortBroker) -> None:
    seen: list[int] = []

    @dramatiq.actor(broker=broker)
    def add(number: int, more: int = 0) -> None:
        seen.append(number + more)

    for number in range(20):
        add.send(number, more=100)
    with working(broker):
        broker.join("default", timeout=30_000)
    assert sorted(seen) == list(range(100, 120))


def test_an_actor_that_fails_is_retried_and_then_dead(broker: KohortBroker, server: KohortServer) -> None:
    tries: list[float] = []
    fine: list[int] = []

    @dramatiq.actor(broker=broker, max_retries=2, min_backoff=50, max_backoff=50)
    def fails() -> None:
        tries.append(time.monotonic())
        raise LookupError("nothing there")

    @dramatiq.actor(broker=broker, max_retries=5, min_backoff=1, max_backoff=10)
    def recovers() -> None:
        fine.append(1)
        if len(fine) < 3:
            raise dramatiq.Retry(delay=10)

    fails.send()
    recovers.send()
    with working(broker):
        broker.join("default", timeout=30_000)
    assert (len(tries), len(fine)) == (3, 3)
    [letter] = read_all(server, f"{broker._topic('default')}.XQ")
    assert dramatiq.Message.decode(letter.value or b"").actor_name == "fails"
    assert dict(letter.headers)["__dlq.errors.message"] == b"LookupError: nothing there"


def test_time_limits(broker: KohortBroker) -> None:
    raised: list[str] = []

    @dramatiq.actor(broker=broker, time_limit=300, max_retries=0)
    def slow() -> None:
        try:
            for _ in range(1_000):
                time.sleep(0.01)
        except dramatiq.middleware.TimeLimitExceeded:
            raised.append("limit")
            raise

    slow.send()
    with working(broker):
        broker.join("default", timeout=30_000)
    assert raised == ["limit"]


def test_delayed_messages(broker: KohortBroker) -> None:
    at: dict[str, float] = {}

    @dramatiq.actor(broker=broker)
    def note(name: str) -> None:
        at[name] = time.monotonic()

    began = time.monotonic()
    note.send_with_options(args=("later",), delay=600)
    note.send("now")
    with working(broker):
        with pytest.raises(QueueJoinTimeout):
            broker.join("default", timeout=1)
        broker.join("default", timeout=30_000)
    assert at["later"] - began >= 0.6
    assert at["now"] < at["later"]


def test_a_worker_that_stops_gives_back_what_it_has_not_begun(broker: KohortBroker) -> None:
    begun = threading.Event()
    may_go = threading.Event()
    seen: list[int] = []

    @dramatiq.actor(broker=broker)
    def work(number: int) -> None:
        begun.set()
        may_go.wait(10)
        seen.append(number)

    for number in range(4):
        work.send(number)
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    assert begun.wait(20)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    may_go.set()
    stopping.join()
    with working(broker):
        broker.join("default", timeout=30_000)
    assert sorted(seen) == [0, 1, 2, 3]


def test_messages_that_no_actor_takes_are_dead_letters(broker: KohortBroker, server: KohortServer) -> None:
    @dramatiq.actor(broker=broker)
    def known() -> None:
        pass

    broker.enqueue(known.message().copy(actor_name="unknown"))
    topic = broker._topic("default")
    server.produce(topic, b"no message")
    with working(broker):
        broker.join("default", timeout=30_000)
    assert len(read_all(server, f"{topic}.XQ")) == 2


def test_flush_drops_everything(broker: KohortBroker) -> None:
    seen: list[Any] = []

    @dramatiq.actor(broker=broker)
    def work(number: int) -> None:
        seen.append(number)

    work.send(1)
    work.send_with_options(args=(2,), delay=60_000)
    broker.flush_all()
    work.send(3)
    with working(broker):
        broker.join("default", timeout=30_000)
    assert seen == [3]


def test_names() -> None:
    broker = KohortBroker("127.0.0.1:1")
    assert repr(broker) == "<KohortBroker 'dramatiq', 0 queues>"
    with pytest.raises(QueueNotFound):
        broker.enqueue(dramatiq.Message("missing", "a", (), {}, {}))
    with pytest.raises(QueueNotFound):
        broker.consume("missing")
    with pytest.raises(TypeError, match="unknown setting max_delivery; did you mean max_deliveries"):
        KohortBroker("127.0.0.1:1", max_delivery=1)  # type: ignore[call-arg]
