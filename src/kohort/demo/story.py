"""The demo from beginning to end. Each chapter is a method. The end of the story stops all that the chapters started.

One temporary directory holds everything: the server's data, the Parquet files and the checkpoint, the logs. The child
processes (a server, two workers, Spark's Java) end with this process, also when it is killed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from confluent_kafka import KafkaError as DeliveryError
from confluent_kafka import Message, Producer

from kohort.cli.connect import ClusterOptions
from kohort.cli.groups.app import describe
from kohort.cli.interrupt import interrupts
from kohort.cli.output import Column, number, print_table
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.demo import living
from kohort.demo.flights import FLIGHTS, flights_file, read_flights
from kohort.demo.handover import Handover, HandoverFailed
from kohort.demo.lake import Spark, contents, delays
from kohort.demo.screen import Advance, Screen
from kohort.demo.server_process import ServerFailed, ServerProcess
from kohort.demo.worker import Options
from kohort.demo.workers import Workers
from kohort.spark.lake.ingest import IngestFailed, IngestProgress, IngestSummary, ingest
from kohort.spark.runtime.java import JavaMissing

TOPIC = "flights"
PARTITIONS = 6
WORKERS_GROUP = "flights-workers"
LAKE_GROUP = "flights-lake"
WORKERS = ("worker-1", "worker-2")
"""The demo kills the second one."""
SESSION_TIMEOUT_MS = 6_000
READING_S = 14.0
"""Each worker reads at a pace at which it alone would need this long for all records."""
BATCHES = 4
REMOVED_S = 5.0
INTERRUPTED_WITHIN_S = 0.5
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


class DemoFailed(RuntimeError):
    """A chapter failed; the message says why."""


FAILURES = (DemoFailed, ServerFailed, HandoverFailed, IngestFailed, JavaMissing, KafkaError)
"""The exceptions that `run` raises for failures other than bugs of the demo."""


def run(*, records: int = FLIGHTS, keep: bool = False, console: bool = False) -> bool:
    """Run the demo. Returns True if all its checks hold. With `console`: no story, but groups that live on until the
    end is asked for, and the console."""
    flights_file()  # raises before anything starts
    directory = Path(tempfile.mkdtemp(prefix="kohort-demo-"))
    screen = Screen()
    try:
        with interrupts.careful(), ExitStack() as started:
            try:
                if console:
                    living.run(directory, records, screen)
                    return True
                return Story(directory, records, started, screen).tell(keep)
            except FAILURES:
                # Ctrl-C also ends a child that has not yet left this process group: its failure may be seen first.
                interrupts.wait(INTERRUPTED_WITHIN_S)
                interrupts.check()
                raise
            finally:
                interrupts.finish()
    except BaseException:
        if keep:
            screen.say(f"Kept in {directory}: logs, and what data there is")
        raise
    finally:
        if not keep:
            _remove(directory)


def _remove(directory: Path) -> None:
    """Repeat until nothing is left: a JVM that was interrupted during its start may still write there."""
    deadline = time.monotonic() + REMOVED_S
    shutil.rmtree(directory, ignore_errors=True)
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
        shutil.rmtree(directory, ignore_errors=True)


class Story:
    """The chapters, in order. `started` stops what they start, in reverse order."""

    def __init__(self, directory: Path, records: int, started: ExitStack, screen: Screen) -> None:
        self._directory = directory
        self._records = records
        self._started = started
        self._screen = screen
        self._bootstrap = ""
        self._checksum = 0
        self._ends: dict[int, int] = {}
        self._spark: Spark

    @property
    def _parquet(self) -> Path:
        return self._directory / TOPIC

    def tell(self, keep: bool) -> bool:
        began = time.monotonic()
        screen = self._screen
        screen.title(f"kohort demo: {self._records:,} flights, a group that loses a worker, and Spark")
        self._start_server()
        self._produce()
        handover, summary = self._read_twice()
        self._show_delays()
        self._describe_groups()
        passed = self._check(handover, summary)
        screen.say()
        screen.say(f"{time.monotonic() - began:.0f} s in all. Stopping what was started ...")
        self._started.close()
        self._say_what_next(keep)
        return passed

    def _start(self, part: ServerProcess | Workers | Handover | Spark) -> None:
        """Start a part of the demo. It is stopped at the end of the story, also if its start fails."""
        self._started.callback(part.stop)
        part.start()

    # -- chapters

    def _start_server(self) -> None:
        self._screen.chapter("A server, in a fresh data directory")
        settings = {"group.initial.rebalance.delay.ms": "1000"}
        server = ServerProcess(self._directory / "server", self._directory / "server.log", settings)
        self._start(server)
        self._bootstrap = server.bootstrap_servers
        self._screen.say(f"kohort serve (process {server.pid}) is ready at {self._bootstrap},")
        self._screen.say(f"after {server.ready['took_ms']} ms; its data: {server.ready['data_dir']}")

    def _produce(self) -> None:
        self._screen.chapter(f"Topic {TOPIC!r}: {PARTITIONS} partitions, a record for each flight")
        with Cluster(self._bootstrap, "kohort-demo") as cluster:
            cluster.create_topic(TOPIC, PARTITIONS)
            began = time.monotonic()
            size = self._produce_flights()
            took = time.monotonic() - began
            ends = cluster.offsets([(TOPIC, partition) for partition in range(PARTITIONS)])
        self._ends = {partition: end for (_, partition), end in ends.items()}
        self._screen.say(
            f"confluent-kafka produced {self._records:,} records ({size / 1e6:.0f} MB of JSON) in {took:.1f} s:"
        )
        self._screen.say(f"{self._records / took:,.0f} records/s, all of them acknowledged, that is, on disk")

    def _produce_flights(self) -> int:
        """Returns the number of bytes of all values."""
        failed: list[str] = []

        def delivered(error: DeliveryError | None, message: Message) -> None:
            if error is not None:
                failed.append(str(error))

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": "flights-producer",
                "linger.ms": 20,
                "compression.type": "lz4",
                "delivery.report.only.error": True,
                "on_delivery": delivered,
            }
        )
        size = 0
        with self._screen.bars(produced=self._records) as advance, _purged_on_failure(producer):
            for count, flight in enumerate(read_flights(self._records), 1):
                _produce(producer, flight.key, flight.value)
                size += len(flight.value)
                self._checksum += crc32(flight.value)  # as Spark computes it; the sum depends on no order
                if not count % 1000:
                    producer.poll(0)
                    advance("produced", count - len(producer))
                    interrupts.check()
            while producer.flush(0.1):
                interrupts.check()
                advance("produced", self._records - len(producer))
        if failed:
            raise DemoFailed(f"{len(failed)} records could not be produced: {failed[0]}")
        return size

    def _read_twice(self) -> tuple[Handover, IngestSummary]:
        self._screen.chapter("Read at the same time by two workers and by Spark, in a group each")
        self._screen.say(f"{WORKERS_GROUP}: two confluent-kafka processes that commit as they go;")
        self._screen.say(f"one of them will be killed halfway. {LAKE_GROUP}: Spark, to Parquet files.")
        self._screen.start_clock()
        where, pace = (self._bootstrap, WORKERS_GROUP, TOPIC), self._records / READING_S
        options = [Options(name, *where, pace, SESSION_TIMEOUT_MS) for name in WORKERS]
        workers = Workers(options, self._directory)
        self._start(workers)
        with self._screen.bars(workers=self._records, spark=self._records) as advance:
            handover = Handover(
                workers,
                WORKERS,
                self._bootstrap,
                WORKERS_GROUP,
                TOPIC,
                self._ends,
                tell=self._screen.at,
                advance=lambda committed: advance("workers", committed),
            )
            self._start(handover)
            summary = self._ingest(advance)
            handover.wait()
        workers.stop()
        self._tell_hand_over(handover)
        return handover, summary

    def _ingest(self, advance: Advance) -> IngestSummary:
        local = {"spark.local.dir": str(self._directory / "spark"), "spark.sql.warehouse.dir": str(self._directory)}
        self._spark = spark = Spark("kohort demo", self._directory / "spark.log", local)
        self._start(spark)
        self._screen.at(time.time(), "Spark's session is up")

        def progressed(progress: IngestProgress) -> None:
            advance("spark", progress.rows)
            done = f"batch {progress.batch + 1}: {progress.rows:,} rows, lag {progress.lag or 0:,}"
            self._screen.at(time.time(), f"Spark has finished {done}")

        return spark.call(
            lambda session: ingest(
                session,
                bootstrap_servers=self._bootstrap,
                topics=[TOPIC],
                output=self._parquet,
                checkpoint=self._directory / "checkpoint",
                group_id=LAKE_GROUP,
                max_offsets_per_trigger=-(-self._records // BATCHES),
                on_progress=progressed,
                stop=spark.stopping.is_set,
            )
        )

    def _tell_hand_over(self, handover: Handover) -> None:
        ledger = handover.ledger
        self._screen.say()
        for name in WORKERS:
            fate = "killed" if name == WORKERS[1] else "left its group when asked to"
            self._screen.say(f"{name} read {ledger.processed_by(name):,} records ({fate})")
        for partition, (committed, began) in sorted(handover.resumed().items()):
            self._screen.say(
                f"partition {partition}: {WORKERS[1]} had committed {committed:,}, {WORKERS[0]} went on at {began:,}"
            )
        twice = ledger.processed - ledger.distinct
        self._screen.say(f"Read twice: {twice:,} records (read, but not yet committed at the kill).")
        self._screen.say(f"Lost: {ledger.missing(self._ends):,}.")

    def _show_delays(self) -> None:
        self._screen.chapter("Spark aggregates the Parquet files: delay by carrier and month")
        began = time.monotonic()
        found = self._spark.call(lambda session: delays(session, self._parquet))
        self._screen.say(f"Mean arrival delay in minutes ({time.monotonic() - began:.1f} s);")
        self._screen.say("DEP and ARR: the whole year's mean departure and arrival delay")
        self._screen.say()
        columns = [Column(""), *map(number, MONTHS), number("DEP"), number("ARR")]
        print_table(columns, _delay_rows(found))

    def _describe_groups(self) -> None:
        self._screen.chapter("Both groups, as the command line shows them")
        self._screen.command(f"$ kohort groups describe {WORKERS_GROUP} {LAKE_GROUP} -b {self._bootstrap}")
        self._screen.say()
        describe([WORKERS_GROUP, LAKE_GROUP], where=ClusterOptions(self._bootstrap))

    def _check(self, handover: Handover, summary: IngestSummary) -> bool:
        self._screen.chapter("Checks")
        held = self._spark.call(lambda session: contents(session, self._parquet))
        rows = sum(part.rows for part in held.values())
        offsets = sum(part.offsets for part in held.values())
        with Cluster(self._bootstrap, "kohort-demo") as cluster:
            lags = {group: self._lag(cluster, group) for group in (WORKERS_GROUP, LAKE_GROUP)}
        resumed = handover.resumed()
        missing = handover.ledger.missing(self._ends)
        checks = {
            f"Parquet rows = records produced: {rows:,} = {self._records:,}": rows == self._records,
            f"no record twice: {offsets:,} different offsets": offsets == rows,
            "each partition complete up to the end of its log": {p: part.last + 1 for p, part in held.items()}
            == {p: end for p, end in self._ends.items() if end},
            "checksum of the values in Parquet = that of the flights": sum(part.checksum for part in held.values())
            == self._checksum,
            f"the ingest's own count: {summary.rows:,} rows in {summary.batches} batches": summary.rows == rows,
            f"lag of {WORKERS_GROUP}: {lags[WORKERS_GROUP]}": lags[WORKERS_GROUP] == 0,
            f"lag of {LAKE_GROUP}: {lags[LAKE_GROUP]}": lags[LAKE_GROUP] == 0,
            f"records that no worker has read: {missing}": missing == 0,
            f"{WORKERS[0]} went on from the committed offsets": bool(resumed)
            and all(committed == began for committed, began in resumed.values()),
        }
        for text, passed in checks.items():
            self._screen.check(passed, text)
        return all(checks.values())

    def _lag(self, cluster: Cluster, group: str) -> int:
        committed = cluster.committed(group)
        return sum(
            end - (committed[TOPIC, partition].offset if (TOPIC, partition) in committed else 0)
            for partition, end in self._ends.items()
        )

    def _say_what_next(self, keep: bool) -> None:
        kohort = "kohort" if shutil.which("kohort") else os.path.relpath(sys.argv[0])
        if keep:
            self._screen.say(f"Kept in {self._directory}:")
            self._screen.say(f"the server's data in server/, Parquet files in {TOPIC}/, checkpoint/, the logs")
            server = f"serve --data-dir {self._directory}/server"
            then = [
                f"groups describe {WORKERS_GROUP}",
                f"consume {TOPIC} --from-beginning -n 3",
                f"pipeline ingest --topics {TOPIC} --to {self._directory}/again",
            ]
        else:
            server = "serve"
            then = [
                "topics create orders --partitions 6",
                "produce orders              # a record a line; Ctrl-D ends it",
                "pipeline ingest --topics orders --to lake --group billing",
                "groups describe billing",
            ]
        self._screen.chapter("What to try next")
        self._screen.command(f"{kohort} {server}")
        self._screen.say("and in another terminal:")
        for arguments in then:
            self._screen.command(f"{kohort} {arguments}")
        if not keep:
            self._screen.say("With --keep the demo keeps its data, so that you can inspect it.")


@contextmanager
def _purged_on_failure(producer: Producer) -> Iterator[None]:
    """Empty the producer's queue after a failure; a producer that ends with records in its queue warns on stderr."""
    try:
        yield
    except BaseException:
        producer.purge()
        producer.poll(0)
        raise


def _produce(producer: Producer, key: str, value: bytes) -> None:
    while True:
        try:
            return producer.produce(TOPIC, value, key)
        except BufferError:
            producer.poll(0.05)  # the queue is full: wait until the server has taken some
            interrupts.check()


def _delay_rows(found: list[Any]) -> list[list[str]]:
    """A row for each carrier, the most punctual first, and one for all of them together."""
    by_month = {(delay.carrier, delay.month): delay for delay in found}
    years = [delay for delay in found if delay.month is None]
    rows = []
    for year in sorted(years, key=lambda delay: (delay.carrier is None, delay.arrival)):
        months = [by_month.get((year.carrier, month)) for month in range(1, 13)]
        arrivals = [str(round(delay.arrival)) if delay else "" for delay in months]
        rows.append([year.carrier or "all", *arrivals, f"{year.departure:.1f}", f"{year.arrival:.1f}"])
    return rows
