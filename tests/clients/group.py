"""Drives worker processes (worker.py) and waits for what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from produce import create_topic

CLIENTS = ("confluent", "kafka-python", "aiokafka")
WAIT_S = 30.0
SHORT_CONSUMER_SESSIONS = {
    "group_consumer_session_timeout_ms": 3_000,
    "group_consumer_min_session_timeout_ms": 1_000,
    "group_consumer_heartbeat_interval_ms": 1_000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_assignment_interval_ms": 0,
}
"""Settings of a server: it removes a killed member of a consumer group quickly."""
OWN_WORKER = (sys.executable, str(Path(__file__).with_name("worker.py")))


def until(holds: Callable[[], bool], what: str, timeout: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(0.02)


def kill_all_of(process: subprocess.Popen[str]) -> None:
    """SIGKILL to a process that was started in a session of its own, and to its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Worker:
    """One consumer process. `assigned`, `rebalances`, `records` and `errors` follow what it says."""

    def __init__(self, changed: threading.Condition, command: Sequence[str] = OWN_WORKER, **options: Any) -> None:
        self.name: str = options["name"]
        self.assigned: list[int] = []
        self.assignments: list[list[int]] = []
        """All that it ever had, in order."""
        self.records: list[tuple[int, int, str]] = []
        self.rebalances: list[str] = []
        self.commits = 0
        self.has_uncommitted = False
        self.errors: list[str] = []
        self.closed = False
        self._changed = changed
        self._process = subprocess.Popen(
            [*command, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._changed:
                if "assigned" in said:
                    self.assigned = said["assigned"]
                    self.assignments.append(self.assigned)
                if "rebalanced" in said:
                    self.rebalances.append(said["rebalanced"])
                if "records" in said:
                    self.records.extend((p, o, v) for p, o, v in said["records"])
                    self.has_uncommitted = True
                if "committed" in said:
                    self.commits += 1
                    self.has_uncommitted = False
                if "error" in said:
                    self.errors.append(said["error"])
                if "closed" in said:
                    self.closed = True
                self._changed.notify_all()

    def kill(self) -> None:
        """SIGKILL: no LeaveGroup, nothing committed on the way out."""
        kill_all_of(self._process)
        self._reader.join()

    def close(self) -> None:
        """Leave the group and end."""
        if self._process.poll() is None and self._process.stdin is not None:
            self._process.stdin.write("close\n")
            self._process.stdin.flush()
            try:
                self._process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                kill_all_of(self._process)
                raise AssertionError(f"{self.name} did not close within {WAIT_S} s") from None
        self._reader.join(WAIT_S)


class Group:
    """The workers of one consumer group."""

    def __init__(
        self, client: str, bootstrap: str, group: str, topic: str, *, cooperative: bool = False, **more: Any
    ) -> None:
        """`more`: options of worker.py, as session_timeout_ms; `command`, of another program that takes them."""
        self._options = {
            **more,
            "client": client,
            "bootstrap": bootstrap,
            "group": group,
            "topic": topic,
            "cooperative": cooperative,
        }
        self._changed = threading.Condition()
        self.workers: list[Worker] = []

    def start(
        self, name: str, *, instance: str | None = None, client: str | None = None, protocol: str | None = None
    ) -> Worker:
        """Start a member; of another client or protocol than the group's if said."""
        options = self._options | ({"client": client} if client else {}) | ({"protocol": protocol} if protocol else {})
        worker = Worker(self._changed, name=name, instance=instance, **options)
        self.workers.append(worker)
        return worker

    def share(self, sizes: list[int], *names: str) -> list[Worker]:
        """Start members, and wait until they have these numbers of partitions."""
        workers = [self.start(name) for name in names]
        self.wait_assigned(sizes, *workers)
        return workers

    def wait(self, condition: Callable[[], bool], what: str, timeout: float = WAIT_S) -> float:
        """Wait until `condition` holds; the seconds that it took. AssertionError, with the workers' story, if never."""
        began = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                story = [(w.name, w.assigned, len(w.records), w.commits, w.errors[-3:]) for w in self.workers]
                raise AssertionError(
                    f"not within {timeout} s: {what}; name, assigned, records, commits, errors: {story}"
                )
        return time.monotonic() - began

    def wait_assigned(self, sizes: list[int], *workers: Worker, timeout: float = WAIT_S) -> float:
        """Wait until the workers hold disjoint sets of partitions of these sizes (in any order)."""

        def settled() -> bool:
            held = [p for w in workers for p in w.assigned]
            return sorted(len(w.assigned) for w in workers) == sorted(sizes) and len(set(held)) == sum(sizes)

        return self.wait(settled, f"partitions {sizes} over {[w.name for w in workers]}", timeout)

    def errors(self) -> list[str]:
        return [error for worker in self.workers for error in worker.errors]

    def values(self) -> list[str]:
        return [value for worker in self.workers for _, _, value in worker.records]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()


def consumer_group(bootstrap: str, name: str, partitions: int) -> Group:
    """A group of the consumer protocol, and a new topic of its name."""
    create_topic(bootstrap, name, partitions)
    return Group("confluent", bootstrap, name, name, protocol="consumer")
