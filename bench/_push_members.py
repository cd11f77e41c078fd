"""librdkafka's consumers for `bench push`: groups in threads of this process, a newcomer that joins and leaves, times.

A consumer's thread polls as applications do; its callbacks note what it holds. A group is settled when its members hold
all partitions, each its share; the time is that of the last change.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

ASSIGNORS = ("range", "cooperative-sticky")
PAUSE_S = (3.5, 6.5)
"""Longer than the time within which rebalances make a storm, and as wide as the clients' heartbeat interval."""
WAIT_S = 60.0
PRODUCE_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    topic: str
    partitions: int
    members: int
    rounds: int
    groups: int
    """At the same time, of each assignor on each server."""


@dataclass(frozen=True, slots=True)
class Sample:
    address: str
    assignor: str
    what: str
    """join, leave or close."""
    ms: float


def measure(addresses: Any, plan: Plan) -> list[Sample]:
    """All groups of all assignors on all servers at once."""
    stop = threading.Event()
    producers = [threading.Thread(target=_trickle, args=(address, plan, stop)) for address in addresses]
    for producer in producers:
        producer.start()
    try:
        runs = [(address, assignor, n) for address in addresses for assignor in ASSIGNORS for n in range(plan.groups)]
        with ThreadPoolExecutor(len(runs)) as pool:
            results = [pool.submit(_Group(*run, plan).run) for run in runs]
            return [sample for result in results for sample in result.result()]
    finally:
        stop.set()
        for producer in producers:
            producer.join()


def _trickle(address: str, plan: Plan, stop: threading.Event) -> None:
    """Something to read and to commit: a record to each partition, now and then."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})
    while not stop.wait(PRODUCE_EVERY_S):
        for partition in range(plan.partitions):
            producer.produce(plan.topic, b"x", partition=partition)
        producer.poll(0)
    producer.flush(10)


class _Group:
    def __init__(self, address: str, assignor: str, number: int, plan: Plan) -> None:
        self.address = address
        self.assignor = assignor
        self.plan = plan
        self.id = f"{assignor}-{number}"
        self.changed = threading.Condition()
        self.changed_at = 0.0
        self.members: list[_Member] = []
        self._random = random.Random(self.id)
        self._samples: list[Sample] = []

    def run(self) -> list[Sample]:
        try:
            for _ in range(self.plan.members):
                self.members.append(_Member(self))
            self._settled()
            for _ in range(self.plan.rounds):
                self._pause()
                newcomer = _Member(self)
                self.members.append(newcomer)
                self._note("join", self._settled() - newcomer.began)
                self._pause()
                self.members.remove(newcomer)
                began = time.monotonic()
                newcomer.stop()
                self._note("leave", self._settled() - began)
                newcomer.join(WAIT_S)
                self._note("close", newcomer.closing_took)
            return self._samples
        finally:
            for member in self.members:
                member.stop()
            for member in self.members:
                member.join(WAIT_S)

    def _pause(self) -> None:
        time.sleep(self._random.uniform(*PAUSE_S))

    def _note(self, what: str, seconds: float) -> None:
        self._samples.append(Sample(self.address, self.assignor, what, seconds * 1000))

    def _settled(self) -> float:
        """Wait until the members share all partitions: the time at which they did."""
        share = self.plan.partitions // len(self.members)

        def settled() -> bool:
            held = [partition for member in self.members for partition in member.held]
            return len(set(held)) == len(held) == self.plan.partitions and all(
                len(member.held) == share for member in self.members
            )

        with self.changed:
            assert self.changed.wait_for(settled, WAIT_S), f"{self.id}: {[sorted(m.held) for m in self.members]}"
            return self.changed_at


class _Member(threading.Thread):
    def __init__(self, group: _Group) -> None:
        super().__init__()
        self.held: set[int] = set()
        self.began = 0.0
        self.closing_took = 0.0
        self._group = group
        self._stop_asked = threading.Event()
        self._subscribed = threading.Event()
        self.start()
        self._subscribed.wait()

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        from confluent_kafka import Consumer

        group = self._group
        consumer = Consumer(
            {
                "bootstrap.servers": group.address,
                "group.id": group.id,
                "partition.assignment.strategy": group.assignor,
            }
        )
        self.began = time.monotonic()
        consumer.subscribe(
            [group.plan.topic],
            on_assign=lambda _, given: self._change(self.held | {p.partition for p in given}),
            on_revoke=lambda _, taken: self._change(self.held - {p.partition for p in taken}),
            on_lost=lambda _, taken: self._change(self.held - {p.partition for p in taken}),
        )
        self._subscribed.set()
        while not self._stop_asked.is_set():
            message = consumer.poll(0.02)
            assert message is None or message.error() is None, message.error()
        began = time.monotonic()
        consumer.close()
        self.closing_took = time.monotonic() - began

    def _change(self, held: set[int]) -> None:
        with self._group.changed:
            self.held = held
            self._group.changed_at = time.monotonic()
            self._group.changed.notify_all()
