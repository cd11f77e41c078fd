"""kill -9 of a server and of its clients under transactions that copy a topic: each input record once in the output.

Workers of two groups, one of each protocol, consume the input and produce, send offsets and commit in transactions. A
cycle: load; SIGKILL of the server at a moment that the seed chose; a pause; the server starts again (and is perhaps
killed while it starts). All the time, and after each cycle:

- a reader of committed records has each copy at most once, in order, and nothing of an aborted transaction;
- committed offsets and output agree: what the output has is committed, and what is committed is in the output;
- workers have copied what the input had when the server was ready, and the last stable offset of each partition, also
  of `__consumer_offsets`, has reached the end that it had then.

Now and then the feeder pauses. Then all input is copied, no transaction is open, and the last stable offsets are the
ends. At the end, after one more start, other readers read the whole output again, and find each copy exactly once.

Kinds of cycles: `load`; `start`, the server is killed also while it starts; `worker`, a worker is killed, and another
one takes its transactional id; `lost`, the other one takes a new id, so that the transaction has to time out; `frozen`,
a worker stands still until the group has removed it, and goes on; `zombie`, another worker takes the id of one that
stands still, which goes on and must be fenced. Half of the starts end transactions in two phases, which a server does
otherwise only for those of many partitions.

Workers may meet INVALID_TXN_STATE, which ends their producer: the first request of a transaction was lost with the
server, the records timed out, and the coordinator has nothing to abort (docs/how-to/transactions.md).
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from crash_clients import wait_until
from crash_copiers import INPUT, PARTITIONS, CommittedReader, CopyWorkers, Feeder, output_of
from crash_copies import ABORTED, Copies
from crash_copy_worker import FENCED_CODE, STUCK_CODE
from crash_cycles import kill_while_starting, kinds_of, repeatable
from crash_server import CrashServer, of_directory

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.records import next_position, records

GROUPS = {"classic": "classic", "consumer": "consumer"}
"""Their protocols."""
OFFSETS, OFFSETS_PARTITIONS = "__consumer_offsets", 3
SESSION_MS = 3_000
TRANSACTION_MS = 6_000
PATIENCE_S = 60.0
"""A session, a transaction's timeout and a rebalance are enough, unless clients get hardly any CPU; figures say it."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.storm.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "3",
    "log.retention.check.interval.ms": "400",  # compaction never rests
    "offsets.topic.history.bytes": "20000",  # nor does that of committed offsets
    "log.format": "logfmt",
}
TWO_PHASES = "from kohort.broker.transactions import endings; endings.MARKERS_AT_ONCE = 2; "
KINDS = ["load"] * 9 + ["start"] * 3 + ["worker"] * 3 + ["lost"] * 2 + ["frozen"] * 2 + ["zombie"]
"""Of twenty cycles."""
Place = tuple[str, int]


@dataclass(slots=True)
class Figures:
    kills: int = 0
    kills_while_starting: int = 0
    kills_of_workers: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    in_two_phases: int = 0
    """Starts."""
    settled: list[float] = field(default_factory=list)
    """Seconds from ready until everything of before was copied and stable."""
    agreed: int = 0
    """Comparisons of a partition's committed offset with the output."""
    exact: int = 0
    """Pauses with all input copied."""
    zombies_fenced: int = 0
    inputs: int = 0
    copies: int = 0
    """In all outputs, as read at the end."""
    aborted_records: int = 0
    """Of the outputs, which no reader of committed records may get."""
    workers: Counter[str] = field(default_factory=Counter)


class TransactionRun:
    def __init__(
        self,
        directory: Path,
        cycles: int,
        seed: int,
        rate: float = 400,
        workers: int = 2,
        say: Callable[[str], None] = print,
        server: Callable[[Path, dict[str, str]], CrashServer] = of_directory,
    ) -> None:
        """`rate`: input records a second; `workers`: of each group."""
        self.figures = Figures()
        self._cycles = cycles
        self._seed = seed
        self._say = say
        self._directory = directory
        self._server = server(directory, SETTINGS)
        self._copies = {group: Copies(group) for group in GROUPS}
        self._workers: CopyWorkers
        self._count = workers
        self._feeder = Feeder(self._server.address, rate)
        self._reader: CommittedReader
        self._start_s = 0.6
        self._in_two_phases = False
        self._at_end: list[Callable[[], None]] = []
        self._outputs = [(output_of(group), partition) for group in GROUPS for partition in range(PARTITIONS)]
        self._places = [*self._outputs, *((OFFSETS, partition) for partition in range(OFFSETS_PARTITIONS))]
        """Partitions with transactions."""

    # -- the whole

    def run(self) -> Figures:
        """Raises Violation, its message with what it takes to repeat the run."""
        with repeatable("--transactions", self._cycles, self._seed, self._directory):
            try:
                self._begin()
                for cycle, kind in enumerate(kinds_of(KINDS, self._cycles, self._seed)):
                    self._cycle(cycle, kind)
                self._check_quiet()
                self._check_all_again()
            finally:
                self._end()
        return self.figures

    def _begin(self) -> None:
        self._start(random.Random(f"{self._seed} first start"))
        with Cluster(self._server.address) as cluster:
            for topic in (INPUT, *map(output_of, GROUPS)):
                cluster.create_topic(topic, PARTITIONS)
        options = {
            "bootstrap": self._server.address,
            "input": INPUT,
            "partitions": PARTITIONS,
            "session_ms": SESSION_MS,
            "heartbeat_ms": 300,
            "transaction_ms": TRANSACTION_MS,
        }
        self._workers = CopyWorkers(GROUPS, self._count, options, self._directory / "workers.log")
        self._at_end.append(self._workers.close)
        self._reader = CommittedReader(self._server.address, self._copies)
        for thread in (self._feeder, self._reader):
            thread.start()
            self._at_end.append(thread.stop)
        self._settle()

    def _end(self) -> None:
        self.figures.kills = self._server.kills
        for stop in self._at_end:
            stop()
        self._server.stop()
        if self._at_end:
            self.figures.workers = self._workers.counts

    # -- a cycle

    def _cycle(self, cycle: int, kind: str) -> None:
        chance = random.Random(f"{self._seed} cycle {cycle}")
        before = self._workers.total()
        self._wait_for_input()
        frozen = self._harm_a_worker(kind, chance)
        time.sleep(chance.uniform(0.2, 1.5))
        self._server.kill()
        killed = time.monotonic()
        time.sleep(chance.uniform(0, 0.4))
        if kind == "start":
            phases = partial(chance.choice, (TWO_PHASES, ""))
            self.figures.kills_while_starting += kill_while_starting(self._server, chance, self._start_s, phases)
        self._start(chance)
        outage = self._server.ready_at - killed
        for thaw in frozen:
            thaw()
        settled = self._settle()
        self.figures.settled.append(settled)
        self._check_agreement()
        self._check_zombies()
        self.figures.kinds[kind] += 1
        if cycle % 10 == 9:
            self._check_quiet()
        done = self._workers.total()
        self._say(
            f"cycle {cycle + 1:3} {kind:6} {done['committed'] - before['committed']:4} transactions committed, "
            f"{done['aborted'] - before['aborted']:3} aborted, down {outage:4.1f} s, all copied after {settled:4.1f} s"
        )

    def _wait_for_input(self) -> None:
        """librdkafka's producer may need seconds after a restart. Without its records a cycle would have nothing to do,
        and be so short that the next one has nothing either."""
        places = [(INPUT, partition) for partition in range(PARTITIONS)]
        with Cluster(self._server.address) as cluster:
            before = self._ends(cluster, places)
        self._until(lambda cluster: self._ends(cluster, places) != before, "new records of the input")

    def _harm_a_worker(self, kind: str, chance: random.Random) -> list[Callable[[], None]]:
        """Returns what ends the harm once the server is there again."""
        slot = chance.choice(list(self._workers.workers))
        match kind:
            case "worker" | "lost":
                time.sleep(chance.uniform(0, 0.5))
                self._workers.replace(slot, same_id=kind == "worker")
                self.figures.kills_of_workers += 1
            case "frozen":
                worker = self._workers.workers[slot]
                worker.freeze()
                time.sleep(SESSION_MS / 1000 + 0.5)
                if chance.random() < 0.5:
                    worker.thaw()
                else:
                    return [worker.thaw]
            case "zombie":
                zombie = self._workers.workers[slot]
                self._workers.make_zombie(slot)
                return [zombie.thaw]
        return []

    def _start(self, chance: random.Random) -> None:
        self._in_two_phases = chance.random() < 0.5
        self.figures.in_two_phases += self._in_two_phases
        began = time.monotonic()
        self._server.spawn(TWO_PHASES if self._in_two_phases else "")
        self._server.wait_ready()
        self._start_s = self._server.ready_at - began

    # -- checks

    def _until(self, condition: Callable[[Cluster], bool], what: str) -> float:
        """Seconds until it was true. Meanwhile fenced workers are started again, and violations seen at once."""

        def holds() -> bool:
            if not self._server.is_running():
                raise AssertionError("the server ended by itself; see its log")
            self._workers.tend()
            self._check_copies()
            with suppress(KafkaError), Cluster(self._server.address) as cluster:
                return condition(cluster)
            return False

        return wait_until(holds, PATIENCE_S, what)

    def _settle(self) -> float:
        """Wait until all groups have copied what the input has now, and what is open now is decided."""
        with Cluster(self._server.address) as cluster:
            inputs = self._ends(cluster, [(INPUT, partition) for partition in range(PARTITIONS)])
            ends = self._ends(cluster, self._places)

        def settled(cluster: Cluster) -> bool:
            stable = cluster.offsets(self._places, isolation="read_committed")
            return all(stable[place] >= end for place, end in ends.items()) and all(
                self._is_copied(cluster, group, inputs) for group in GROUPS
            )

        try:
            return self._until(settled, "everything copied and the last stable offsets moved on")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._story(inputs, ends)}") from error

    def _ends(self, cluster: Cluster, places: list[Place]) -> dict[Place, int]:
        return cluster.offsets(places)

    def _is_copied(self, cluster: Cluster, group: str, inputs: dict[Place, int]) -> bool:
        committed = cluster.committed(group)
        return all(not end or (at in committed and committed[at].offset >= end) for at, end in inputs.items())

    def _story(self, inputs: dict[Place, int], ends: dict[Place, int]) -> str:
        for worker in self._workers.workers.values():
            worker.print_stack()
        with suppress(KafkaError), Cluster(self._server.address) as cluster:
            committed = {group: {at[1]: c.offset for at, c in cluster.committed(group).items()} for group in GROUPS}
            stable = cluster.offsets(self._places, isolation="read_committed")
            late = {place: (stable[place], end) for place, end in ends.items() if stable[place] < end}
            missing = {group: [of.first_missing(p) for p in range(PARTITIONS)] for group, of in self._copies.items()}
            return (
                f"\n  input {inputs}\n  committed {committed}\n  first without a copy {missing}"
                f"\n  last stable offsets behind {late}\n  workers {dict(self._workers.total())}"
                f"\n  open {cluster.open_transactions(self._places)}"
                f"\n  {[(g, d.state, len(d.members)) for g, d in cluster.describe_groups(GROUPS).items()]}"
            )
        return "the server does not answer"

    def _check_copies(self) -> None:
        if violations := [found for copies in self._copies.values() for found in copies.violations]:
            raise AssertionError("; ".join(violations[:5]))

    def _check_agreement(self) -> None:
        """What the reader has is committed; and what is committed, the reader gets."""
        with self._reader.lock:
            seen = {(group, p): self._copies[group].last(p) for group in GROUPS for p in range(PARTITIONS)}
        found: dict[tuple[str, int], int] = {}

        def committed(cluster: Cluster) -> bool:
            for group in GROUPS:
                found.update({(group, at[1]): c.offset for at, c in cluster.committed(group).items()})
            return all(found.get(place, 0) > last for place, last in seen.items())

        if self._in_two_phases:  # markers of one transaction are in several turns
            self._until(committed, "offsets committed for what the output has")
        else:
            with Cluster(self._server.address) as cluster:
                assert committed(cluster), f"the output has {seen}, committed is {found}"
        self._until(
            lambda _: all(self._copies[group].first_missing(p) >= at for (group, p), at in found.items()),
            f"copies in the output of what is committed: {found}",
        )
        self.figures.agreed += len(found)

    def _check_zombies(self) -> None:
        """Every zombie that has gone on has learned that it is fenced."""
        self._until(
            lambda _: all(worker.exit_code() is not None for worker in self._workers.zombies), "every zombie fenced"
        )
        codes = self._workers.bury_zombies()
        assert set(codes) <= {FENCED_CODE, STUCK_CODE}, f"zombies ended with {codes}"
        self.figures.zombies_fenced += codes.count(FENCED_CODE)

    def _check_quiet(self) -> None:
        """The feeder pauses; in the end all input is copied, and nothing is open."""
        self._feeder.pause()
        self._settle()

        def nothing_open(cluster: Cluster) -> bool:
            ends = self._ends(cluster, self._places)
            return cluster.offsets(self._places, isolation="read_committed") == ends and not cluster.open_transactions(
                self._places
            )

        self._until(nothing_open, "no open transaction, and the last stable offsets at the ends")
        with Cluster(self._server.address) as cluster:
            inputs = self._ends(cluster, [(INPUT, partition) for partition in range(PARTITIONS)])
            for group in GROUPS:
                committed = cluster.committed(group)
                assert {at: committed[at].offset for at in inputs} == inputs, f"{group}: {committed}, not {inputs}"
        self._until(
            lambda _: all(
                of.first_missing(partition) == end
                for of in self._copies.values()
                for (_, partition), end in inputs.items()
            ),
            "the reader has all copies",
        )
        self.figures.exact += 1
        self.figures.inputs = sum(inputs.values())
        self._feeder.resume()

    def _check_all_again(self) -> None:
        """After one more start, the whole output is read again: by librdkafka and by the client library."""
        self._feeder.pause()
        self._settle()
        self._workers.close()
        self._server.kill()
        self._start(random.Random(f"{self._seed} last start"))
        with Cluster(self._server.address) as cluster:
            inputs = self._ends(cluster, [(INPUT, partition) for partition in range(PARTITIONS)])
            ends = self._ends(cluster, self._outputs)
            self.figures.inputs = sum(inputs.values())
            for read in (self._read_by_librdkafka, self._read_by_the_library):
                again = {output_of(group): Copies(group) for group in GROUPS}
                read(cluster, again, ends)
                for copies in again.values():
                    assert not copies.violations, f"read again: {copies.violations[:5]}"
                    expected = {partition: set(range(end)) for (_, partition), end in inputs.items() if end}
                    assert copies.seen == expected, f"{copies.group}: read again, the copies are not the input"
                self.figures.copies = sum(copies.total() for copies in again.values())
            self.figures.aborted_records = self._count_aborted(cluster, ends)

    def _read_by_librdkafka(self, cluster: Cluster, copies: dict[str, Copies], ends: dict[Place, int]) -> None:
        settings = {"bootstrap.servers": self._server.address, "group.id": "again", "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in ends])
        left = set(ends)
        began = time.monotonic()
        while left:
            assert time.monotonic() - began < PATIENCE_S, f"not at the ends: {left}"
            for message in consumer.consume(500, 1):
                if message.error() is not None:  # the end of a partition; what else there is, the client repeats
                    left.discard((message.topic(), message.partition()))
                    continue
                copies[message.topic()].add(message.partition(), message.offset(), message.value().decode())
        consumer.close()

    def _read_by_the_library(self, cluster: Cluster, copies: dict[str, Copies], ends: dict[Place, int]) -> None:
        at = dict.fromkeys(ends, 0)
        while behind := {place: position for place, position in at.items() if position < ends[place]}:
            for part in cluster.fetch(behind, isolation="read_committed"):
                place = (part.topic, part.partition)
                for record in records(part, at[place]):
                    copies[part.topic].add(part.partition, record.offset, (record.value or b"").decode())
                at[place] = next_position(part, at[place])

    def _count_aborted(self, cluster: Cluster, ends: dict[Place, int]) -> int:
        aborted, at = 0, dict.fromkeys(ends, 0)
        while behind := {place: position for place, position in at.items() if position < ends[place]}:
            for part in cluster.fetch(behind):
                place = (part.topic, part.partition)
                aborted += sum((r.value or b"").startswith(ABORTED.encode()) for r in records(part, at[place]))
                at[place] = next_position(part, at[place])
        return aborted

    # -- the result

    def told(self) -> str:
        """The figures, in lines."""
        figures = self.figures
        failures = {name: count for name, count in sorted(figures.workers.items()) if name.isupper() or name[0] == "_"}
        return "\n".join(
            [
                f"{sum(figures.kinds.values())} cycles ({dict(sorted(figures.kinds.items()))}), {figures.kills} kills "
                f"of the server, {figures.kills_while_starting} of them before it was ready, "
                f"{figures.kills_of_workers} of workers, {figures.zombies_fenced} zombies fenced; "
                f"{figures.in_two_phases} starts with two phases; "
                f"seed {self._seed}",
                f"{figures.workers['committed']:,} transactions committed, {figures.workers['aborted']:,} aborted",
                f"{figures.inputs:,} input records; {figures.copies:,} copies of {len(GROUPS)} groups read, each once; "
                f"{figures.aborted_records:,} records of deliberately aborted transactions beside them",
                f"{figures.agreed:,} committed offsets compared with the output, {figures.exact} times all was copied",
                f"copied and stable again: median {statistics.median(figures.settled):.1f} s, "
                f"worst {max(figures.settled):.1f} s after ready",
                f"what workers met: {failures}, fenced {figures.workers['fenced']}, "
                f"ended in a call that never returned {figures.workers['stuck']}, "
                f"begun again {figures.workers['begun again']}",
            ]
        )
