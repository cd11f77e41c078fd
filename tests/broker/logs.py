"""A partition on the memory engine; the test makes the turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kohort.broker.logs.partition import Appended, Partition
from kohort.broker.logs.time_search import Search
from kohort.broker.topics.topic_configs import TopicSettings, resolve
from kohort.config import Config
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import CreateLog, LogKey, Operation, Storage
from kohort.wire.batches import NewRecord, Record, decode_records, encode_batch, read_header
from kohort.wire.markers import Marker, read_marker

LOG = LogKey(bytes(range(16)), 0)
NOW = 1_700_000_000_000


def settings(**configs: Any) -> TopicSettings:
    """Topic settings from attribute-style names: `cleanup_policy="compact"`."""
    return resolve({name.replace("_", "."): str(value) for name, value in configs.items()}, Config())


def batch(*records: tuple[bytes | None, bytes | None] | bytes, timestamp: int = NOW, **fields: Any) -> bytes:
    """A produced batch of (key, value) pairs or values, a millisecond apart."""
    pairs = [(None, record) if isinstance(record, bytes) else record for record in records]
    return encode_batch([NewRecord(*pair, timestamp + index) for index, pair in enumerate(pairs)], **fields)


def committed_records(partition: Partition, offset: int = 0, max_bytes: int = 1) -> list[Record]:
    seen: list[Record] = []
    offset = max(offset, partition.start_offset)
    while batches := partition.read(offset, max_bytes, committed=True):
        headers = [read_header(data) for data in batches]
        end = headers[-1].last_offset + 1
        aborted = sorted(partition.aborted_in(offset, end), key=lambda one: one.first_offset)
        dropped: set[int] = set()
        for header, data in zip(headers, batches, strict=True):
            while aborted and aborted[0].first_offset <= header.last_offset:
                dropped.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(data)
                if marker is not None and not marker.committed:
                    dropped.discard(marker.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                seen += [record for record in decode_records(data) if record.offset >= offset]
        offset = end
    return seen


class OneLog:
    """A partition and its engine. `produce` is a turn of its own; `append` only decides."""

    def __init__(self, storage: Storage | None = None, **configs: Any) -> None:
        self.storage = storage or MemoryStorage()
        self.settings = settings(**configs)
        self.pending: list[Operation] = []
        if self.storage.log_info(LOG) is None:
            self.storage.commit([CreateLog(LOG)], self.storage.acquire())
        self.partition = self.opened()

    def opened(self, leader_epoch: int = 0) -> Partition:
        info = self.storage.log_info(LOG)
        return Partition(LOG, self.settings, leader_epoch, self.storage, info)

    def restart(self, leader_epoch: int = 0) -> None:
        self.partition = self.opened(leader_epoch)

    def append(self, data: bytes, now: int = NOW) -> Appended:
        appended = self.partition.append(data, now)
        self.pending.extend(appended.operations)
        return appended

    def commit(self, operations: Sequence[Operation] = ()) -> None:
        self.storage.commit([*self.pending, *operations], self.storage.acquire())
        self.pending.clear()
        self.partition.committed()

    def produce(self, data: bytes, now: int = NOW) -> Appended:
        appended = self.append(data, now)
        self.commit()
        return appended

    def mark(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        version: int = 0,
        now: int = NOW,
        decide_only: bool = False,
    ) -> Appended:
        """A marker, in a turn of its own unless it is to be decided only."""
        marker = Marker(producer_id, epoch, commit, coordinator_epoch)
        appended = self.partition.append_marker(marker, now, version=version)
        self.pending.extend(appended.operations)
        if not decide_only:
            self.commit()
        return appended

    def trim(self, offset: int, now: int = NOW) -> None:
        trim = self.partition.trim(offset, now)
        assert trim
        self.commit(trim)

    def committed(self, offset: int = 0) -> list[Record]:
        """What a consumer of committed records sees, from `offset` on: it fetches one batch at a time, and drops
        records as Kafka's clients do."""
        return committed_records(self.partition, offset)

    def latest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the latest record."""
        found = self.partition.first_record(None, Search())
        return found and (found.offset, found.timestamp)

    def first_since(self, timestamp: int) -> int | None:
        """The offset of the first record at this time or later."""
        found = self.partition.first_record(timestamp, Search())
        return found and found.offset
