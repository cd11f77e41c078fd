"""kill -9 of a server and of its clients under a share group: no record is finished twice, and none is lost.

Workers take records of a topic and accept most of them, give some back and reject some. A cycle: load; SIGKILL of the
server at a moment that the seed chose; a pause; the server starts again (and is perhaps killed while it starts). After
each cycle the group has finished what the topic had when the server was ready. All the time:

- the broker confirms the end of a record to one worker at most: a finished record is not delivered again;
- what the group has finished, a worker has tried to finish: no record is left out.

Now and then the feeder pauses. Then nothing is left to finish and nothing is locked.

Kinds of cycles: `load`; `start`, the server is killed also while it starts; `worker`, a worker is killed with what it
holds; `frozen`, a worker stands still until its locks have ended, and goes on, before the server is killed or after.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_clients import WorkerProcess, wait_until
from crash_copiers import INPUT, PARTITIONS, Feeder
from crash_cycles import kill_while_starting, kinds_of, repeatable
from crash_queue_worker import Place
from crash_server import CrashServer, of_directory

from kohort.client.admin.share_groups import ShareOffset
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError

GROUP = "queue"
LOCK_MS = 2_000
DELIVERIES = 25
"""So many that only a worker archives a record."""
PATIENCE_S = 60.0
SOME = 50
"""Records that are finished before a cycle does harm."""
SETTINGS = {
    "group.share.enable": "true",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.max.delivery.count.limit": str(DELIVERIES),
    "group.share.delivery.count.limit": str(DELIVERIES),
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "log.format": "logfmt",
}
KINDS = ["load"] * 5 + ["start"] * 2 + ["worker"] * 2 + ["frozen"]
"""Of ten cycles."""


class Ledger:
    """What the workers said."""

    def __init__(self) -> None:
        self.tried: set[Place] = set()
        self.done: dict[Place, str] = {}
        """The worker to which the broker said it."""
        self.twice: list[str] = []
        self.failed: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, worker: str, what: str, about: Any) -> None:
        with self._lock:
            if what == "failed":
                self.failed[about] += 1
                return
            for partition, offset in about:
                place = partition, offset
                if what == "try":
                    self.tried.add(place)
                elif place in self.done:
                    self.twice.append(f"{INPUT}[{partition}] {offset} was finished for {self.done[place]} and {worker}")
                else:
                    self.done[place] = worker

    def untried(self, starts: dict[int, int]) -> list[Place]:
        """What no worker has tried to finish, below these offsets."""
        with self._lock:
            return [place for p, start in starts.items() for at in range(start) if (place := (p, at)) not in self.tried]


class Worker(WorkerProcess):
    def __init__(self, name: str, bootstrap: str, ledger: Ledger, log: Path) -> None:
        self._name = name
        self._ledger = ledger
        options = {"bootstrap": bootstrap, "group": GROUP, "topic": INPUT, "name": name, "lock_s": LOCK_MS / 1000}
        super().__init__("crash_queue_worker.py", options, log)

    def take(self, said: Any) -> None:
        self._ledger.take(self._name, *said)


@dataclass(slots=True)
class Figures:
    kills: int = 0
    kills_while_starting: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    settled: list[float] = field(default_factory=list)
    """Seconds from ready until everything of before was finished."""
    quiet: int = 0
    """Pauses with all records finished."""
    records: int = 0
    confirmed: int = 0
    """Records that the broker has said to be finished. The answers for others were lost."""


class QueueRun:
    def __init__(
        self,
        directory: Path,
        cycles: int,
        seed: int,
        rate: float = 400,
        workers: int = 4,
        say: Callable[[str], None] = print,
        server: Callable[[Path, dict[str, str]], CrashServer] = of_directory,
    ) -> None:
        """`rate`: records a second."""
        self.figures = Figures()
        self._cycles = cycles
        self._seed = seed
        self._say = say
        self._directory = directory
        self._server = server(directory, SETTINGS)
        self._ledger = Ledger()
        self._count = workers
        self._workers: list[Worker] = []
        self._names = 0
        self._feeder = Feeder(self._server.address, rate)
        self._start_s = 0.6

    # -- the whole

    def run(self) -> Figures:
        """Raises Violation, its message with what it takes to repeat the run."""
        with repeatable("--queues", self._cycles, self._seed, self._directory):
            try:
                self._begin()
                for cycle, kind in enumerate(kinds_of(KINDS, self._cycles, self._seed)):
                    self._cycle(cycle, kind)
                self._check_quiet()
            finally:
                self._end()
        return self.figures

    def _begin(self) -> None:
        self._start()
        with Cluster(self._server.address) as cluster:
            cluster.create_topic(INPUT, PARTITIONS)
            cluster.alter_group_configs(GROUP, {"share.auto.offset.reset": "earliest"})
        self._workers = [self._new_worker() for _ in range(self._count)]
        self._feeder.start()
        self._until(lambda cluster: len(self._starts(cluster)) == PARTITIONS, "workers that read")

    def _new_worker(self) -> Worker:
        self._names += 1
        return Worker(f"worker-{self._names}", self._server.address, self._ledger, self._directory / "workers.log")

    def _end(self) -> None:
        self.figures.kills = self._server.kills
        self.figures.confirmed = len(self._ledger.done)
        if self._feeder.is_alive():
            self._feeder.stop()
        for worker in self._workers:
            worker.kill()
        self._server.stop()

    # -- a cycle

    def _cycle(self, cycle: int, kind: str) -> None:
        chance = random.Random(f"{self._seed} cycle {cycle}")
        before = len(self._ledger.done)
        # librdkafka's producer may need seconds after a restart. Without its records there would be nothing to lose.
        self._until(lambda _: len(self._ledger.done) > before + SOME, "records that workers finish")
        frozen = self._harm_a_worker(kind, chance)
        time.sleep(chance.uniform(0.2, 1.5))
        self._server.kill()
        killed = time.monotonic()
        time.sleep(chance.uniform(0, 0.4))
        if kind == "start":
            self.figures.kills_while_starting += kill_while_starting(self._server, chance, self._start_s)
        self._start()
        outage = self._server.ready_at - killed
        for worker in frozen:
            worker.thaw()
        settled = self._settle()
        self.figures.settled.append(settled)
        self.figures.kinds[kind] += 1
        if cycle % 10 == 9:
            self._check_quiet()
        self._say(
            f"cycle {cycle + 1:3} {kind:6} {len(self._ledger.done) - before:5} records finished, "
            f"down {outage:4.1f} s, all of before finished after {settled:4.1f} s"
        )

    def _harm_a_worker(self, kind: str, chance: random.Random) -> list[Worker]:
        """Returns those that go on once the server is there again."""
        slot = chance.randrange(self._count)
        if kind == "worker":
            time.sleep(chance.uniform(0, 0.5))
            self._workers[slot].kill()
            self._workers[slot] = self._new_worker()
        elif kind == "frozen":
            self._workers[slot].freeze()
            time.sleep(LOCK_MS / 1000 + 0.5)
            if chance.random() < 0.5:
                return [self._workers[slot]]
            self._workers[slot].thaw()
        return []

    def _start(self) -> None:
        began = time.monotonic()
        self._server.spawn()
        self._server.wait_ready()
        self._start_s = self._server.ready_at - began

    # -- checks

    def _until(self, condition: Callable[[Cluster], bool], what: str) -> float:
        """Seconds until it was true. Violations are seen at once."""

        def holds() -> bool:
            assert self._server.is_running(), "the server ended by itself; see its log"
            ended = [code for worker in self._workers if (code := worker.exit_code()) is not None]
            assert not ended, f"workers ended with {ended}; see {self._directory / 'workers.log'}"
            assert not self._ledger.twice, "; ".join(self._ledger.twice[:5])
            with suppress(KafkaError), Cluster(self._server.address) as cluster:
                return condition(cluster)
            return False

        try:
            return wait_until(holds, PATIENCE_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n  {self._story()}") from error

    def _offsets(self, cluster: Cluster) -> dict[int, ShareOffset]:
        [offsets] = cluster.share_groups.offsets([GROUP]).values()
        return {place[1]: one for place, one in offsets.partitions.items()}

    def _starts(self, cluster: Cluster) -> dict[int, int]:
        """Everything below is finished."""
        return {number: one.start for number, one in self._offsets(cluster).items() if one.start is not None}

    def _ends(self, cluster: Cluster) -> dict[int, int]:
        found = cluster.offsets([(INPUT, partition) for partition in range(PARTITIONS)])
        return {partition: end for (_, partition), end in found.items()}

    def _settle(self) -> float:
        """Wait until the group has finished what the topic has now, and compare that with what workers tried."""
        with Cluster(self._server.address) as cluster:
            ends = self._ends(cluster)

        def finished(cluster: Cluster) -> bool:
            starts = self._starts(cluster)
            return all(starts.get(partition, -1) >= end for partition, end in ends.items())

        took = self._until(finished, f"records up to {ends} finished")
        self._until(lambda _: not self._ledger.untried(ends), f"words of workers about all records up to {ends}")
        return took

    def _check_quiet(self) -> None:
        """The feeder pauses; in the end all records are finished, and none is locked."""
        self._feeder.pause()
        self._settle()

        def idle(cluster: Cluster) -> bool:
            return all(one.lag == 0 and not one.in_flight for one in self._offsets(cluster).values())

        self._until(idle, "no record is left or locked")
        with Cluster(self._server.address) as cluster:
            self.figures.records = sum(self._ends(cluster).values())
        self.figures.quiet += 1
        self._feeder.resume()

    def _story(self) -> str:
        with suppress(KafkaError), Cluster(self._server.address) as cluster:
            starts, ends = self._starts(cluster), self._ends(cluster)
            held = {number: one.in_flight for number, one in self._offsets(cluster).items()}
            untried = self._ledger.untried(starts)[:10]
            return f"starts {starts}, ends {ends}, in flight {held}, untried {untried}, {dict(self._ledger.failed)}"
        return "the server does not answer"

    # -- the result

    def told(self) -> str:
        """The figures, in lines."""
        figures = self.figures
        return "\n".join(
            [
                f"{sum(figures.kinds.values())} cycles ({dict(sorted(figures.kinds.items()))}), {figures.kills} kills "
                f"of the server, {figures.kills_while_starting} of them before it was ready, "
                f"{figures.kinds['worker']} of workers; seed {self._seed}",
                f"{figures.records:,} records finished, {figures.confirmed:,} confirmed to a worker, none twice",
                f"{figures.quiet} times all were finished and none locked",
                f"finished again: median {statistics.median(figures.settled):.1f} s, "
                f"worst {max(figures.settled):.1f} s after ready",
                f"what workers met: {dict(sorted(self._ledger.failed.items()))}",
            ]
        )
