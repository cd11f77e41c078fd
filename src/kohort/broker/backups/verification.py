"""Reads everything that is stored, and starts from it as a server does, without a write.

1. Every batch of every log is read: the storage compares rows and batches with their checksums.
2. The metadata log is applied, and each partition is opened with its transactions and producers.
3. The log of each state machine is applied, and the journal is read.
4. The first turn is made, and the invariants are checked; the turn is dropped.

A log with a damaged batch is left out of the later steps, because its fault is known. Whatever goes wrong in a step is
a fault: code that reads damaged data may fail in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from kohort.broker.backups.contents import Contents, contents_of
from kohort.broker.journal.topic import read_journal
from kohort.broker.start import add_machines, load, open_partitions, read_catalog, write_first_records
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import JOURNAL_TOPIC, METADATA_LOG
from kohort.storage.protocol import DamagedBatch, LogInfo, LogKey, Storage

READ_BYTES = 4 * 1024 * 1024
METADATA = "metadata"


class Fault(msgspec.Struct, frozen=True):
    where: str
    """A partition, "metadata", or the file."""
    what: str


class Verification:
    """`state` belongs to a broker that was made for this, and is not loaded."""

    def __init__(self, state: BrokerState, storage: Storage, path: Path) -> None:
        self.faults: list[Fault] = []
        self.contents: Contents | None = None
        """None if the logs could not be applied."""
        self._state = state
        self._storage = storage
        self._prefix = f"{path} is damaged: "
        self._bad: set[LogKey] = set()
        """Logs with a damaged batch."""

    def run(self) -> None:
        infos = self._storage.logs()
        self._read_log(METADATA, next((info for info in infos if info.key == METADATA_LOG), None))
        logs: list[dict[LogKey, LogInfo] | None] = []
        if METADATA_LOG not in self._bad:
            self._try(METADATA, lambda: logs.append(read_catalog(self._state)))
        names = {topic.topic_id: topic.name for topic in self._state.catalog.topics.values()}
        for info in infos:
            if info.key != METADATA_LOG:
                topic = names.get(info.key.topic_id, info.key.topic_id.hex())
                self._read_log(f"{topic}-{info.key.partition}", info)
        if logs and logs[0] is not None:
            found = logs[0]
            if self._try(METADATA, lambda: open_partitions(self._state, found)):
                self._open_partitions()
                self._start()

    def _read_log(self, name: str, info: LogInfo | None) -> None:
        if info is None:
            return
        before = len(self.faults)
        self._try(name, lambda: self.faults.extend(Fault(name, self._told(what)) for what in self._damage_of(info)))
        if len(self.faults) > before:
            self._bad.add(info.key)

    def _damage_of(self, info: LogInfo) -> Iterator[str]:
        """Reads the log. After a failed read, batches are read one by one, and the damaged one is passed."""
        offset, size = info.start_offset, READ_BYTES
        while True:
            try:
                batches = self._storage.read(info.key, offset, size)
            except DamagedBatch as error:
                if size:
                    size = 0
                    continue
                yield str(error)
                offset, size = next(self._storage.batches(info.key, offset)).last_offset + 1, READ_BYTES
                continue
            if not batches:
                return
            offset = batches[-1].last_offset + 1

    def _open_partitions(self) -> None:
        """What partitions read when they are first used."""
        for topic in self._state.catalog.topics.values():
            for index, partition in enumerate(self._state.topics.partitions[topic.topic_id]):
                if partition.log not in self._bad:
                    self._try(f"{topic.name}-{index}", partial(partition.producer_states, self._state.now))

    def _start(self) -> None:
        state = self._state
        for machine in add_machines(state):
            if state.topics.partition_named(machine.log).log not in self._bad:
                self._try(str(machine.log), partial(load, state, machine))
        self.contents = contents_of(state)
        journal = state.topic(JOURNAL_TOPIC)
        if journal is not None and journal.log_key(0) not in self._bad:
            self._try(JOURNAL_TOPIC, partial(read_journal, state))
        if not self.faults and self._try("groups and transactions", self._first_turn):
            self.faults += [Fault(JOURNAL_TOPIC, complaint.what) for complaint in state.end_turn(()).complaints]

    def _first_turn(self) -> None:
        self._state.turn.begin(self._state.now)
        write_first_records(self._state)
        self._state.machines.validate()

    def _try(self, where: str, step: Callable[[], object]) -> bool:
        """False if the step fails, which is a fault."""
        try:
            step()
        except Exception as error:
            self.faults.append(Fault(where, self._told(str(error) or type(error).__name__)))
            return False
        return True

    def _told(self, what: str) -> str:
        return " ".join(what.removeprefix(self._prefix).split())
