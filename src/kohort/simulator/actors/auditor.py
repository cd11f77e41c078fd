"""A consumer that reads committed records only, with Kafka's filter: the list of aborted transactions in each answer.

It reads the partitions of LEDGER from their starts, batch by batch. What it takes for committed must be what the log's
markers say (checks/transaction_checks.py): nothing aborted, nothing open, nothing skipped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from kohort.simulator.actors.workload import Paced
from kohort.simulator.plan import LEDGER, TOPICS_OF_TRANSACTIONS
from kohort.simulator.world.network import Link
from kohort.wire.batches import decode_records, split_batches
from kohort.wire.markers import read_marker
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

READ_COMMITTED = 1
Read = tuple[int, bytes]
"""Offset and value."""


class Auditor(Paced):
    check: Callable[[int, int, int, Sequence[Read]], None]
    """Told a partition, the first offset and the end of what was read, and the committed records there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._at = dict.fromkeys(range(TOPICS_OF_TRANSACTIONS[LEDGER]), 0)
        """The next offset of each partition."""
        self._asked = False

    def act(self, link: Link) -> None:
        partition = self.random.choice([*self._at])
        leader = self._leader(partition)
        if link.broker_id != leader:
            link.close()
            link = self.link = self.connect(leader)
            self._asked = False
        if self._asked and self.random.random() < 0.8:
            return
        self._asked = True
        if self.random.random() < 0.05:
            self._at[partition] = 0
        asked = FetchPartition(
            partition=partition, fetch_offset=self._at[partition], partition_max_bytes=self.random.choice((300, 10_000))
        )
        request = FetchRequest(
            max_wait_ms=self.random.choice((0, 300, 2_000)),
            min_bytes=1,
            max_bytes=10_000,
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=(FetchTopic(topic=LEDGER, partitions=(asked,)),),
        )
        link.ask(request, 11, (partition, asked.fetch_offset))

    def on_cut(self, link: Link) -> None:
        self._asked = False
        super().on_cut(link)

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        self._asked = False
        [answer] = response.responses[0].partitions if response.responses else [None]
        if answer is None or answer.error_code or not answer.records:
            return
        partition, first = tag
        end, reads = committed_in(answer.records, answer.aborted_transactions or (), first)
        self.check(partition, first, end, reads)
        if self._at[partition] == first:
            self._at[partition] = end

    def _leader(self, partition: int) -> int:
        broker = self.process.broker
        topic = broker.state.topic(LEDGER) if broker is not None else None
        return self.any_broker() if topic is None else topic.partitions[partition].leader


def committed_in(data: bytes, aborted: Sequence[Any], first: int) -> tuple[int, list[Read]]:
    """The end of the batches and their committed records from `first` on, as Java's consumer finds them
    (CompletedFetch): an entry of the list counts from its first offset to the next ABORT marker of its producer."""
    pending = [(entry.first_offset, entry.producer_id) for entry in aborted]
    heapq.heapify(pending)
    dropped: set[int] = set()
    reads: list[Read] = []
    end = first
    for header, batch in split_batches(data, strict=False):
        while pending and pending[0][0] <= header.last_offset:
            dropped.add(heapq.heappop(pending)[1])
        end = header.last_offset + 1
        if header.is_control:
            marker = read_marker(batch, header)
            if marker is not None and not marker.committed:
                dropped.discard(marker.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            reads.extend((r.offset, r.value or b"") for r in decode_records(batch, header) if r.offset >= first)
    return end, reads
