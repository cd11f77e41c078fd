"""Backups of a server under load, and what must hold on the directories restored from them.

Members commit as fast as they are told to, in exchanges of a hundred commits, and numbers are drawn all the time: a
generation, a member epoch, a leader's token, a producer id. Meanwhile `kohort backup` runs, several times. Then the
server is killed, and each backup is verified, restored and served:

- each committed offset is at least what was acknowledged before the backup began, and no larger than what was sent
  before it ended;
- the members of before are fenced: none of their commits is accepted;
- the numbers that it gives are larger than all that were ever given, by the server that was backed up after the backup,
  and by the servers that were restored before.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_clients import wait_until
from crash_cycles import Violation
from crash_probes import FENCED_OFFSET, LONG_MS, Identity, Probe, commit, connect, join, leave, sync
from crash_server import PROGRAM, CrashServer

from kohort.broker.backups.raising import BEGIN_MS, EPOCH_MS
from kohort.client.cluster import Cluster
from kohort.client.coordination.blocking_election import blocking_lead
from kohort.client.wire.blocking_connection import Connection
from kohort.simulator.actors.offsets import commit_request
from kohort.wire.codec import encode_request
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TOPIC = "load"
PARTITIONS = 10
COMMITTERS = 4
IN_EXCHANGE = 100
PATIENCE_S = 60.0
PLACEHOLDER = 0x1122334455667788
ERROR_AT = -5
"""In the answer to a commit: the error of its partition, before the empty tags of the partition, the topic and all."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.storm.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "5",
    "log.retention.check.interval.ms": "400",  # compaction never rests
    "offsets.topic.history.bytes": "20000",  # nor does that of committed offsets
    "log.format": "logfmt",
}


class Committer(threading.Thread):
    """A member that commits rising offsets, partition after partition, without end."""

    def __init__(self, address: str, group: str, rate: float) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.sent: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.acknowledged: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.commits = 0
        """Acknowledged in all."""
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._every_s = IN_EXCHANGE / rate
        self._connection = connect(address)
        joined = join(self._connection, group, None, LONG_MS)
        self.member = Identity(group, joined.member_id, joined.generation_id)
        assert sync(self._connection, self.member, b"all").error_code == 0
        self._socket, self._frames, self._places = self._pipeline(address)

    def _pipeline(self, address: str) -> tuple[socket.socket, bytearray, list[int]]:
        """A connection, the requests of an exchange, and where the offset of each of them is."""
        host, _, port = address.rpartition(":")
        frames, places = bytearray(), []
        for at in range(IN_EXCHANGE):
            offsets = {(TOPIC, at % PARTITIONS): PLACEHOLDER}
            request = commit_request(self.group, self.member.generation, self.member.member_id, None, offsets)
            frame = encode_request(request, 8, at, "load")
            places.append(len(frames) + frame.index(struct.pack(">q", PLACEHOLDER)))
            frames += frame
        return socket.create_connection((host, int(port)), timeout=PATIENCE_S), frames, places

    def run(self) -> None:
        try:
            with self._socket, self._socket.makefile("rb") as answers:
                due = time.monotonic()
                while not self.stopping.wait(max(due - time.monotonic(), 0)):
                    due = max(due + self._every_s, time.monotonic() - 1)
                    self._exchange(answers)
        except BaseException as failure:
            self.failure = failure
            raise

    def _exchange(self, answers: Any) -> None:
        first = self.commits + 1
        for at, place in enumerate(self._places):
            struct.pack_into(">q", self._frames, place, first + at)
            self.sent[at % PARTITIONS] = first + at
        self._socket.sendall(self._frames)
        for at in range(IN_EXCHANGE):
            answer = answers.read(int.from_bytes(answers.read(4), "big"))
            assert answer[ERROR_AT : ERROR_AT + 2] == b"\0\0", f"{self.group}: a commit was answered {answer!r}"
            self.acknowledged[at % PARTITIONS] = first + at
        self.commits += IN_EXCHANGE

    def stop(self) -> None:
        self.stopping.set()
        self.join(PATIENCE_S)
        self._connection.close()


class Numbers(Probe):
    """Draws numbers that must never be given twice, each kind larger than `highest`, which outlives servers."""

    def __init__(self, address: str, highest: dict[str, int]) -> None:
        super().__init__(address)
        self.highest = highest
        self.draws = 0

    def turn(self, connection: Connection) -> None:
        self._note("generation", self._generation(connection))
        self._note("member epoch", self._epoch(connection))
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self._note("producer id", connection.request(request, InitProducerIdResponse).producer_id)
        with blocking_lead(self.address, "leaders") as election:
            self._note("leader's token", next(iter(election)).token)
        self.draws += 1
        self.stopping.wait(0.02)

    def _note(self, kind: str, number: int) -> None:
        if number <= self.highest.get(kind, -1):
            self.violations.append(f"{kind} {number} was given after {self.highest[kind]}")
        self.highest[kind] = max(number, self.highest.get(kind, -1))

    def _generation(self, connection: Connection) -> int:
        joined = join(connection, "drawn", None, LONG_MS)
        assert joined.error_code == 0, joined
        leave(connection, Identity("drawn", joined.member_id, joined.generation_id))
        return joined.generation_id

    def _epoch(self, connection: Connection) -> int:
        member_id = str(uuid.uuid4())

        def heartbeat(epoch: int, **fields: Any) -> int:
            request = ConsumerGroupHeartbeatRequest(
                group_id="drawn-epochs", member_id=member_id, member_epoch=epoch, **fields
            )
            answer = connection.request(request, ConsumerGroupHeartbeatResponse)
            assert answer.error_code == 0, answer
            return answer.member_epoch

        fields = {"subscribed_topic_names": (TOPIC,), "topic_partitions": (), "rebalance_timeout_ms": 30_000}
        epoch = heartbeat(0, **fields)
        heartbeat(-1)
        return epoch


@dataclass(slots=True)
class Backup:
    file: Path
    least: dict[tuple[str, int], int]
    """Acknowledged before it began, by group and partition."""
    most: dict[tuple[str, int], int]
    """Sent before it had ended."""


@dataclass(slots=True)
class Figures:
    commits: int = 0
    seconds: float = 0.0
    backups_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    """Acknowledged commits a second while a backup runs."""
    sizes: list[int] = field(default_factory=list)
    largest_wal: int = 0
    checked: int = 0
    """Offsets compared."""
    draws: int = 0
    kinds: int = 0
    restored: int = 0


class BackupRun:
    def __init__(self, directory: Path, backups: int, rate: float = 20_000, say: Callable[[str], None] = print) -> None:
        self.figures = Figures()
        self._directory = directory
        self._count = backups
        self._rate = rate
        self._say = say
        self._highest: dict[str, int] = {}
        self._server = CrashServer(directory / "data", directory / "server.log", SETTINGS)
        self._committers: list[Committer] = []

    def run(self) -> Figures:
        """Raises Violation."""
        try:
            backups = self._load_and_back_up()
            for number, backup in enumerate(backups):
                self._restore(number, backup)
        except AssertionError as error:
            raise Violation(f"{error}\n  the data directory, backups and logs are kept: {self._directory}") from error
        return self.figures

    def _load_and_back_up(self) -> list[Backup]:
        self._server.spawn()
        try:
            self._server.wait_ready()
            with Cluster(self._server.address) as cluster:
                cluster.create_topic(TOPIC, PARTITIONS)
            self._committers = [
                Committer(self._server.address, f"load-{number}", self._rate / COMMITTERS)
                for number in range(COMMITTERS)
            ]
            numbers = Numbers(self._server.address, self._highest)
            for thread in (*self._committers, numbers):
                thread.start()
            try:
                began = time.monotonic()
                backups = [self._back_up(number, numbers) for number in range(self._count)]
                self._go_on(numbers)  # so that what is given after the last backup is not in any
                self.figures.seconds = time.monotonic() - began
            finally:
                for thread in (*self._committers, numbers):
                    thread.stop()
            self._check(numbers)
            self.figures.commits = self._commits()
            self.figures.draws, self.figures.kinds = numbers.draws, len(self._highest)
            self._server.kill()
            return backups
        finally:
            self._server.stop()

    def _commits(self) -> int:
        return sum(committer.commits for committer in self._committers)

    def _check(self, numbers: Numbers) -> None:
        assert not numbers.violations, "; ".join(numbers.violations[:5])
        for committer in self._committers:
            assert committer.failure is None, repr(committer.failure)

    def _go_on(self, numbers: Numbers) -> None:
        """Until some exchanges of each committer and some draws have come."""
        commits = {committer: committer.commits for committer in self._committers}
        draws = numbers.draws

        def is_done() -> bool:
            self._check(numbers)
            moved = all(committer.commits > before + 3 * IN_EXCHANGE for committer, before in commits.items())
            return moved and numbers.draws > draws + 2

        wait_until(is_done, PATIENCE_S, "commits and numbers go on", every_s=0.01)

    def _back_up(self, number: int, numbers: Numbers) -> Backup:
        self._go_on(numbers)
        file = self._directory / f"backup-{number}.db"
        least = {(one.group, place): offset for one in self._committers for place, offset in one.acknowledged.items()}
        commits, began = self._commits(), time.monotonic()
        arguments = ["backup", "--data-dir", str(self._server.data_dir), "--to", str(file), "-o", "json"]
        with subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE) as process:
            while process.poll() is None:
                wal = self._server.data_dir / "kohort.db-wal"
                self.figures.largest_wal = max(self.figures.largest_wal, wal.stat().st_size)
                time.sleep(0.01)
            seconds = time.monotonic() - began
            assert process.stdout is not None
            printed = process.stdout.read()
        assert process.returncode == 0, f"the backup ended with code {process.returncode}"
        most = {(one.group, place): offset for one in self._committers for place, offset in one.sent.items()}
        self.figures.backups_s.append(json.loads(printed)["took_ms"] / 1000)
        self.figures.rates.append((self._commits() - commits) / seconds)
        self.figures.sizes.append(file.stat().st_size)
        self._check(numbers)
        return Backup(file, least, most)

    def _wait_for_the_clock(self) -> None:
        """A restore gives numbers by the clock, and groups do not have two generations a second for long. The draws of
        the last restored server were quicker."""
        highest = max((n for kind, n in self._highest.items() if kind != "producer id"), default=0)
        wait_until(lambda: (time.time() * 1000 - BEGIN_MS) // EPOCH_MS > highest, PATIENCE_S, "the clock is ahead")

    def _restore(self, number: int, backup: Backup) -> None:
        self._wait_for_the_clock()
        directory = self._directory / f"restored-{number}"
        command = [sys.executable, "-c", PROGRAM, "restore", str(backup.file), "--to", str(directory)]
        done = subprocess.run(command, capture_output=True, text=True)  # it verifies the backup first
        assert done.returncode == 0, f"kohort restore ended with code {done.returncode}: {done.stderr}"
        server = CrashServer(directory, self._directory / f"restored-{number}.log", SETTINGS)
        server.spawn()
        try:
            server.wait_ready()
            self._check_offsets(server, backup)
            self._check_members(server)
            numbers = Numbers(server.address, self._highest)
            with closing(connect(server.address)) as connection:
                for _ in range(2):
                    numbers.turn(connection)
            assert not numbers.violations, f"restored from {backup.file.name}: {'; '.join(numbers.violations)}"
            self.figures.draws += numbers.draws
            server.kill()
        finally:
            server.stop()
        self.figures.restored += 1
        self._say(f"{backup.file.name}: restored, its offsets and numbers are right")
        shutil.rmtree(directory)
        backup.file.unlink()

    def _check_offsets(self, server: CrashServer, backup: Backup) -> None:
        with Cluster(server.address) as cluster:
            found = {one.group: cluster.committed(one.group) for one in self._committers}
        for (group, partition), least in backup.least.items():
            place = found[group].get((TOPIC, partition))
            offset, most = (0 if place is None else place.offset), backup.most[group, partition]
            if not least <= offset <= most:
                raise AssertionError(
                    f"{backup.file.name}, {group}-{partition}: {least} was acknowledged before it began and {most} "
                    f"sent before it ended; {offset} is committed"
                )
            self.figures.checked += 1

    def _check_members(self, server: CrashServer) -> None:
        with closing(connect(server.address)) as connection:
            for committer in self._committers:
                code = commit(connection, committer.member, TOPIC, 0, FENCED_OFFSET)
                assert code != 0, f"a commit of {committer.member}, who was a member before, was accepted"

    def told(self) -> str:
        figures = self.figures
        rate = figures.commits / figures.seconds
        return "\n".join(
            (
                f"{figures.commits:,} commits in {figures.seconds:.1f} s: {rate:,.0f} a second of {self._rate:,.0f}",
                f"{len(figures.backups_s)} backups: median {statistics.median(figures.backups_s):.2f} s, worst "
                f"{max(figures.backups_s):.2f} s, up to {max(figures.sizes):,} bytes; while they ran at least "
                f"{min(figures.rates):,.0f} commits a second, write-ahead log up to {figures.largest_wal:,} bytes",
                f"{figures.restored} restored: {figures.checked:,} offsets compared, {figures.draws:,} draws of "
                f"{figures.kinds} numbers, none given twice",
            )
        )
