"""Moves jobs from the delay topic to their topics when their time has come: one of the workers does this.

The workers elect it. It reads the delay topic from its beginning and keeps all jobs that wait in memory. A transaction
puts the jobs that are due into their topics, and deletes them from the delay topic. So each is moved once, whatever
crashes: a new leader first fences the transactions of the former one, and reads only what was committed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Any

from kohort.client.cluster import Cluster
from kohort.client.connection_options import cluster_of
from kohort.client.coordination.election import Term, lead
from kohort.client.errors import KafkaError
from kohort.client.queue.delays import Delayed, now_ms, read_delayed
from kohort.client.queue.options import Settings
from kohort.client.records.fetched_records import next_position, records
from kohort.client.records.partitioner import partition_for_key
from kohort.client.transactions.reactions import MustAbort
from kohort.client.transactions.writer import TransactionalWriter
from kohort.client.wire.routing import Router, Timing
from kohort.wire.batches import NewRecord

SESSION_TIMEOUT_MS = 10_000
MOST_AT_ONCE = 500
"""Jobs of one transaction."""
LOOK_MS = 200
"""How often the mover looks whether it is to stop."""
LOAD_WAIT_MS = 100
AGAIN_S = 1.0

log = logging.getLogger("kohort.client")


async def move_delayed(settings: Settings, bootstrap_servers: str | Sequence[str]) -> None:
    """Take part in the election; move jobs while this worker leads. Lasts until it is cancelled. Raises KafkaError."""
    options = settings.options
    group = f"{options['delay_topic']}.mover"
    election = lead(
        bootstrap_servers,
        group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        client_id=options["client_id"],
        security=settings.security,
    )

    async def move(term: Term[Any]) -> None:
        while True:
            stop = threading.Event()
            moving = asyncio.ensure_future(asyncio.to_thread(_move, settings, bootstrap_servers, stop))
            try:
                await asyncio.shield(moving)
            except KafkaError as error:
                log.warning("group %s: delayed jobs cannot be moved: %s; the worker tries again", group, error)
                await asyncio.sleep(AGAIN_S)
            finally:
                stop.set()
                await asyncio.wait((moving,))

    async with election:
        async for term in election:
            await term.run(move)


def _move(settings: Settings, bootstrap_servers: str | Sequence[str], stop: threading.Event) -> None:
    """In a thread, until `stop` is set. Raises KafkaError; MustAbort and ProducerFailed are among them."""
    options = settings.options
    topic = options["delay_topic"]
    assert topic is not None
    timing = Timing(
        request=options["request_timeout_ms"], api=options["api_timeout_ms"], connect=options["connect_timeout_ms"]
    )
    router = Router(bootstrap_servers, options["client_id"], timing, settings.security)
    with closing(router), cluster_of(bootstrap_servers, options) as cluster:
        mover = Mover(cluster, TransactionalWriter(router, f"{topic}.mover"), topic, settings.weights)
        mover.begin()
        while not stop.is_set():
            mover.step(LOOK_MS)


class Mover:
    """The jobs that wait. Use it from one thread."""

    def __init__(self, cluster: Cluster, writer: TransactionalWriter, topic: str, targets: Collection[str]) -> None:
        """`targets`: the topics to which jobs are moved. Jobs of other topics stay in the delay topic."""
        self._cluster = cluster
        self._place = topic, 0
        self._targets = targets
        self._writer = writer
        self._position = 0
        self._jobs: dict[bytes, Delayed] = {}
        """By the key of their record in the delay topic."""
        self._due: list[tuple[int, int, bytes]] = []
        """A heap: time, a number in the order of reading, key. Entries without a job are skipped."""
        self._numbers = itertools.count()
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def begin(self) -> None:
        """Fence the former mover, and read all jobs that wait."""
        self._writer.init()
        self._position = self._cluster.offsets([self._place], "earliest")[self._place]
        end = self._cluster.offsets([self._place], "latest", isolation="read_committed")[self._place]
        while self._position < end:
            self._read(LOAD_WAIT_MS)

    def step(self, wait_ms: int) -> int:
        """Wait for jobs that are put or become due, at most so long; move what is due. Returns how many were moved."""
        next_due = self._due[0][0] if self._due else None
        if next_due is not None:
            wait_ms = max(0, min(wait_ms, next_due - now_ms()))
        self._read(wait_ms)
        due = self._take_due()
        if due:
            self._write(due)
        return len(due)

    def _read(self, wait_ms: int) -> None:
        fetched = self._cluster.fetch({self._place: self._position}, max_wait_ms=wait_ms, isolation="read_committed")
        for part in fetched:
            for record in records(part, self._position):
                if record.key is None:
                    continue
                job = None if record.value is None else read_delayed(record.value, record.headers, record.timestamp)
                if job is None:
                    self._jobs.pop(record.key, None)
                elif job.topic not in self._targets:
                    log.warning("delay topic %s: %r is no topic of this queue", self._place[0], job.topic)
                else:
                    self._jobs[record.key] = job
                    heapq.heappush(self._due, (job.due_ms, next(self._numbers), record.key))
            self._position = next_position(part, self._position)

    def _take_due(self) -> dict[bytes, Delayed]:
        now = now_ms()
        found: dict[bytes, Delayed] = {}
        while self._due and self._due[0][0] <= now and len(found) < MOST_AT_ONCE:
            _, _, key = heapq.heappop(self._due)
            job = self._jobs.get(key)
            if job is not None:
                found[key] = job
        return found

    def _write(self, due: dict[bytes, Delayed]) -> None:
        """One transaction. A job stays here until its deletion is read from the topic."""
        batches: dict[tuple[str, int], list[NewRecord]] = {}
        for job in due.values():
            batches.setdefault((job.topic, self._partition(job)), []).append(job.record)
        batches[self._place] = [NewRecord(key, None, now_ms()) for key in due]
        self._writer.begin()
        try:
            self._writer.produce(batches)
            self._writer.commit()
        except MustAbort as error:
            log.warning("delay topic %s: jobs cannot be moved: %s; the worker tries again", self._place[0], error)
            self._writer.abort()
            for key, job in due.items():
                heapq.heappush(self._due, (job.due_ms, next(self._numbers), key))

    def _partition(self, job: Delayed) -> int:
        if job.topic not in self._counts:
            self._counts[job.topic] = max(1, len(self._cluster.topics([job.topic])[job.topic].partitions))
        count = self._counts[job.topic]
        return next(self._numbers) % count if job.record.key is None else partition_for_key(job.record.key, count)
