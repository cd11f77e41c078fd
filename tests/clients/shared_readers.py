"""Members of a group that read, commit and give up, for tests that count records: ours, librdkafka's, other ones."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError
from working_consumer import Working

from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord

PARTITIONS = 7


class Ours(Working):
    """The consumer without changes; all readers here have `held` and `values`."""

    @property
    def held(self) -> set[int]:
        return {index for _, index in self.positions}

    @property
    def leads(self) -> bool:
        return bool(self._session.ownership is not None and self._session.ownership.watched_topics())


class Librdkafka:
    """Commits the offsets that it has read before it gives up partitions."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.held: set[int] = set()
        self.values: list[bytes] = []
        self._topic = topic
        self._stop = threading.Event()
        base = {"bootstrap.servers": servers, "group.id": group}
        base |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = confluent_kafka.Consumer({**base, **settings})

    async def run(self) -> None:
        """Reads until it is cancelled; then it leaves."""
        work = asyncio.create_task(asyncio.to_thread(self._work))
        try:
            await asyncio.shield(work)
        finally:
            self._stop.set()
            await work

    def _work(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        try:
            while not self._stop.is_set():
                for message in self._consumer.consume(100, 0.05):
                    if not message.error():
                        self.values.append(message.value())
                # The group may rebalance at any moment: then the next commit, or that of a revocation, counts.
                self._commit(KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)
        finally:
            self._consumer.close()

    def _commit(self, *tolerated: int) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in (KafkaError._NO_OFFSET, *tolerated):
                raise

    def _assigned(self, _: Any, partitions: Any) -> None:
        self.held |= {place.partition for place in partitions}

    def _revoked(self, _: Any, partitions: Any) -> None:
        self._commit()
        self.held -= {place.partition for place in partitions}

    def _lost(self, _: Any, partitions: Any) -> None:
        raise AssertionError(f"lost {partitions}")


class Program:
    """A process that prints "owns" with its partitions, and "read" with values. It leaves when its input ends."""

    def __init__(self, *command: str) -> None:
        self.held: set[int] = set()
        self.values: list[bytes] = []
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Read until cancelled; then leave."""
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        hearing = asyncio.create_task(self._hear(process))
        try:
            await asyncio.shield(hearing)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await hearing
            await process.wait()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            what, *rest = line.split()
            assert what in (b"owns", b"read"), line
            if what == b"read":
                self.values += rest
            else:
                self.held = set(map(int, rest))


class Records:
    """A topic, and what has been written to it: numbers."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic, self.count = servers, topic, 0
        with Cluster(servers) as cluster:
            cluster.create_topic(topic, PARTITIONS)

    async def write(self, count: int) -> None:
        await asyncio.to_thread(self._write, range(self.count, self.count + count))
        self.count += count

    def _write(self, numbers: range) -> None:
        with Cluster(self._servers) as cluster:
            for partition in range(PARTITIONS):
                values = [NewRecord(None, b"%d" % n, 0) for n in numbers if n % PARTITIONS == partition]
                cluster.produce(self._topic, partition, values)

    def read_once(self, *readers: Any) -> None:
        found = Counter(value for reader in readers for value in reader.values)
        assert (len(found), sum(found.values())) == (self.count, self.count)


async def until(condition: Callable[[], Any], what: str, tasks: list[asyncio.Task[None]], seconds: float = 60) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                for task in tasks:
                    if task.done() and not task.cancelled():
                        task.result()
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


def shared(members: Sequence[Any]) -> Callable[[], bool]:
    """Whether each has some partitions, and together they have all of them, each once."""
    return lambda: (
        all(member.held for member in members)
        and sorted(index for member in members for index in member.held) == [*range(PARTITIONS)]
    )


async def share(records: Records, readers: list[Any], look: Callable[[], None] = lambda: None) -> None:
    """They come one after the other, go one after the other, and read meanwhile: every record once in all.

    `look` is called when all are there, and after each that went.
    """
    tasks: list[asyncio.Task[None]] = []
    gone: list[asyncio.Task[None]] = []

    def read() -> int:
        return sum(len(reader.values) for reader in readers)

    try:
        for n, reader in enumerate(readers, 1):
            tasks.append(asyncio.create_task(reader.run()))
            await records.write(140)
            await until(shared(readers[:n]), f"shared by {n}", tasks)
        await records.write(140)
        look()
        for n in range(1, len(readers)):
            gone.append(tasks.pop(0))  # the leader, where one of them leads
            gone[-1].cancel()
            await asyncio.gather(gone[-1], return_exceptions=True)
            await records.write(140)
            await until(shared(readers[n:]), f"taken over from {n}", tasks)
            look()
        await until(lambda: read() >= records.count, "all is read", tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    records.read_once(*readers)
