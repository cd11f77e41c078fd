"""The processes around the transactional workload: workers that copy (`crash_copy_worker.py`), and in this process a
feeder of the input and a reader of committed records, which live through all crashes of the server."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from crash_clients import WorkerProcess
from crash_copies import Copies
from crash_copy_worker import FENCED_CODE, STUCK_CODE

PARTITIONS = 4
INPUT = "input"
QUICK_RETURN = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 300}


def output_of(group: str) -> str:
    return f"output-{group}"


class CopyWorker(WorkerProcess):
    def __init__(self, options: dict[str, Any], log: Path) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
        super().__init__("crash_copy_worker.py", options, log)

    def take(self, said: Any) -> None:
        self.counts = Counter(said)

    def print_stack(self) -> None:
        """Into the log of the workers."""
        self._process.send_signal(signal.SIGUSR1)


class CopyWorkers:
    """`count` workers of each group. A worker that ended because it was fenced, or did not return from a call, is
    started again: only a frozen worker whose transactional id another one got has to stay away."""

    def __init__(self, groups: dict[str, str], count: int, options: dict[str, Any], log: Path) -> None:
        """`groups`: their protocols."""
        self._options = options
        self._log = log
        self._names = 0
        self._groups = groups
        self.counts: Counter[str] = Counter()
        """Of workers that have ended."""
        self.zombies: list[CopyWorker] = []
        self.workers = {(group, number): self._start(group) for group in groups for number in range(count)}

    def _start(self, group: str, transactional_id: str | None = None) -> CopyWorker:
        self._names += 1
        options = {
            **self._options,
            "group": group,
            "protocol": self._groups[group],
            "output": output_of(group),
            "transactional_id": transactional_id or f"{group}-{self._names}",
        }
        return CopyWorker(options, self._log)

    def replace(self, slot: tuple[str, int], *, same_id: bool) -> None:
        """kill -9; another one takes its place, with its transactional id or a new one."""
        worker = self.workers[slot]
        worker.kill()
        self.counts += worker.counts
        self.workers[slot] = self._start(slot[0], worker.options["transactional_id"] if same_id else None)

    def make_zombie(self, slot: tuple[str, int]) -> None:
        """Freeze a worker; another one takes its place and id."""
        worker = self.workers[slot]
        worker.freeze()
        self.zombies.append(worker)
        self.workers[slot] = self._start(slot[0], worker.options["transactional_id"])

    def tend(self) -> None:
        """Start those again that have ended. AssertionError if one ended for another reason."""
        for slot, worker in self.workers.items():
            code = worker.exit_code()
            if code is None:
                continue
            if code not in (FENCED_CODE, STUCK_CODE):
                raise AssertionError(f"a worker of {slot[0]} ended with code {code}; see {self._log}")
            self.counts["fenced" if code == FENCED_CODE else "stuck"] += 1
            self.replace(slot, same_id=True)

    def bury_zombies(self) -> list[int | None]:
        """The exit codes of all zombies, None for those that still run. Those that have ended are forgotten."""
        codes = [worker.exit_code() for worker in self.zombies]
        for worker in self.zombies:
            if worker.exit_code() is not None:
                self.counts += worker.counts
        self.zombies = [worker for worker in self.zombies if worker.exit_code() is None]
        return codes

    def total(self) -> Counter[str]:
        return sum((worker.counts for worker in self.workers.values()), self.counts.copy())

    def close(self) -> None:
        for worker in [*self.workers.values(), *self.zombies]:
            worker.kill()
            self.counts += worker.counts
        self.workers, self.zombies = {}, []


class Feeder(threading.Thread):
    """Produces to the input, idempotent, at `rate` records a second."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "feeder",
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 0,
                **QUICK_RETURN,
            }
        )
        self._rate = rate
        self._feeding = threading.Event()
        self._feeding.set()
        self._ended = threading.Event()

    def run(self) -> None:
        number = 0
        last, due = time.monotonic(), 0.0
        while not self._ended.is_set():
            self._producer.poll(0.02)
            now = time.monotonic()
            due = min(due + (now - last) * self._rate, self._rate / 2) if self._feeding.is_set() else 0.0
            last = now
            for _ in range(int(due)):
                self._producer.produce(INPUT, b"%d" % number, partition=number % PARTITIONS)
                number += 1
            due -= int(due)

    def pause(self) -> None:
        self._feeding.clear()
        assert self._producer.flush(60) == 0, "records of the input were not delivered"

    def resume(self) -> None:
        self._feeding.set()

    def stop(self) -> None:
        self._ended.set()
        self.join(10)
        self._producer.purge()


class CommittedReader(threading.Thread):
    """Reads the outputs of all groups with isolation.level=read_committed, from the beginning."""

    def __init__(self, bootstrap: str, copies: dict[str, Copies]) -> None:
        super().__init__(daemon=True)
        self._of_topic = {output_of(group): of_group for group, of_group in copies.items()}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "client.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **QUICK_RETURN,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, p, OFFSET_BEGINNING) for topic in self._of_topic for p in range(PARTITIONS)]
        )
        self._ended = threading.Event()
        self.lock = threading.Lock()
        """Held while records are added to the copies."""

    def run(self) -> None:
        while not self._ended.is_set():
            got = [message for message in self._consumer.consume(500, 0.1) if message.error() is None]
            with self.lock:
                for message in got:
                    self._of_topic[message.topic()].add(message.partition(), message.offset(), message.value().decode())

    def stop(self) -> None:
        self._ended.set()
        self.join(10)
        self._consumer.close()
