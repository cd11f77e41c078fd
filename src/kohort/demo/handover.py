"""The loss of a worker: kill one of the group's two workers halfway, and show how the other one takes over.

`Handover` runs in a thread of its own beside the Spark ingest. It adds up the workers' events, kills one worker when
half of all records are committed, and asks the coordinator (DescribeGroups) whether that member is gone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from kohort.cli.interrupt import interrupts
from kohort.client.cluster import Cluster
from kohort.demo.ledger import Ledger
from kohort.demo.workers import Workers

POLL_S = 0.1
STALLED_S = 60.0
"""Without progress for this time, the demo fails and says what it waits for."""
SETTLED_S = 1.0
"""The wait after a kill, in which the server answers all requests of the worker."""


class HandoverFailed(RuntimeError):
    """The group did not reach the end of the topic; the message says how far it got."""


@dataclass(slots=True)
class Times:
    """Wall clock, in seconds since 1970; 0 before it happened."""

    killed: float = 0.0
    noticed: float = 0.0
    taken_over: float = 0.0


@dataclass
class Handover:
    """`start`, then `wait`. The thread calls `tell` with a time and a line for the screen."""

    workers: Workers
    names: tuple[str, str]
    bootstrap_servers: str
    group: str
    topic: str
    ends: dict[int, int]
    tell: Callable[[float, str], None]
    advance: Callable[[int], None]

    def __post_init__(self) -> None:
        self.ledger = Ledger()
        self.times = Times()
        self._survivor, self._victim = self.names
        self._records = sum(self.ends.values())
        self._left_behind: dict[int, int] = {}
        self._told_assignment: dict[str, tuple[int, ...]] = {}
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="handover", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop watching at once."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self) -> None:
        """Wait until the group has committed all records. Raises HandoverFailed."""
        while self._thread.is_alive():
            interrupts.check()
            self._thread.join(POLL_S)
        if self._failure is not None:
            raise self._failure

    # -- in the thread

    def _run(self) -> None:
        try:
            with Cluster(self.bootstrap_servers, "kohort-demo") as cluster:
                self._watch(cluster)
        except BaseException as error:
            self._failure = error

    def _watch(self, cluster: Cluster) -> None:
        look_at, before, since = 0.0, ("", 0), time.monotonic()
        while not (self.times.taken_over and self.ledger.committed_records >= self._records):
            if self._stop.is_set():
                return
            self._listen(POLL_S / 2)
            now = self._awaited(), self.ledger.committed_records
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > STALLED_S:
                reached = f"{now[1]:,} of {self._records:,} records committed"
                raise HandoverFailed(f"nothing has changed for {STALLED_S:.0f} s, {reached}: {now[0]}")
            if not self.times.killed:
                self._kill_at_half()
            elif not self.times.noticed and time.monotonic() >= look_at:
                self._look(cluster)
                look_at = time.monotonic() + POLL_S
            elif not self.times.taken_over:
                self._note_take_over()
            elif time.monotonic() >= look_at:
                self._note_last_commits(cluster)
                look_at = time.monotonic() + POLL_S

    def _awaited(self) -> str:
        if not self.times.killed:
            held = (f"{name} holds {len(self.ledger.held.get(name, ()))} partitions" for name in self.names)
            return f"waiting for both workers to share the topic ({', '.join(held)})"
        if not self.times.noticed:
            return f"waiting for the session of {self._victim} to end"
        if not self.times.taken_over:
            return f"waiting for {self._survivor} to hold all partitions"
        return f"waiting for the commits of {self._survivor}"

    def _listen(self, longest_s: float) -> None:
        """Process all events of the workers that have arrived."""
        try:
            worker, event = self.workers.said.get(timeout=longest_s)
            while True:
                if event is not None:
                    self.ledger.note(worker, event)
                elif not (self._stop.is_set() or (worker == self._victim and self.times.killed)):
                    raise HandoverFailed(f"{worker} ended unexpectedly: {self._last_line(worker)}")
                worker, event = self.workers.said.get_nowait()
        except queue.Empty:
            pass
        self.advance(self.ledger.committed_records)

    def _kill_at_half(self) -> None:
        held = self.ledger.held
        shared = all(held.get(name) for name in (self._survivor, self._victim))
        if shared and held != self._told_assignment:
            self._told_assignment = dict(held)
            for name in (self._survivor, self._victim):
                self.tell(self.ledger.held_since[name], f"{name} has partitions {', '.join(map(str, held[name]))}")
        uncommitted = self.ledger.uncommitted(self._victim)
        done = self.ledger.committed_records
        # A worker that joins late, on a loaded machine, may find nothing left to read.
        if shared and done * 2 >= self._records and (uncommitted or done >= self._records):
            self.times.killed = time.time()
            self.workers.kill(self._victim)
            committed = f"half is committed ({self.ledger.committed_records:,} records)"
            self.tell(self.times.killed, f"{committed}: {self._victim} gets SIGKILL,")
            self.tell(self.times.killed, f"while {uncommitted:,} records that it has read are not committed")

    def _look(self, cluster: Cluster) -> None:
        """Look whether the coordinator has expired the killed member."""
        if not self._left_behind and time.time() - self.times.killed >= SETTLED_S:
            self._left_behind = self._committed_by_victim(cluster)
        group = cluster.describe_groups([self.group])[self.group]
        if any(member.client_id == self._victim for member in group.members):
            return
        self.times.noticed = now = time.time()
        self.tell(now, f"its session has ended, {now - self.times.killed:.1f} s after the kill: rebalance")

    def _note_last_commits(self, cluster: Cluster) -> None:
        """Ask the coordinator what is committed: a killed worker may have committed without having reported it."""
        for (_, partition), committed in cluster.committed(self.group, [(self.topic, p) for p in self.ends]).items():
            known = self.ledger.committed.get(partition, 0)
            self.ledger.committed[partition] = max(known, committed.offset)

    def _committed_by_victim(self, cluster: Cluster) -> dict[int, int]:
        """Its last commits: until its session ends, no other member owns its partitions."""
        lost = [(self.topic, partition) for partition in self.ledger.held[self._victim]]
        committed = cluster.committed(self.group, lost)
        return {place[1]: committed[place].offset if place in committed else 0 for place in lost}

    def _note_take_over(self) -> None:
        if len(self.ledger.held.get(self._survivor, ())) < len(self.ends):
            return
        self.times.taken_over = since = self.ledger.held_since[self._survivor]
        after = f"{since - self.times.killed:.1f} s after the kill"
        self.tell(since, f"{self._survivor} holds all {len(self.ends)} partitions, {after}")

    # -- the outcome

    def resumed(self) -> dict[int, tuple[int, int]]:
        """For each partition of the killed worker: the offset committed for it, and where the survivor began."""
        began = {
            start.partition: start.offset
            for start in self.ledger.starts
            if start.worker == self._survivor and start.time >= self.times.taken_over
        }
        return {
            partition: (offset, began.get(partition, self.ends[partition]))
            for partition, offset in self._left_behind.items()
        }

    def _last_line(self, worker: str) -> str:
        lines = self.workers.log(worker).read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "its log is empty")
