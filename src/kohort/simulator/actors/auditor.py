"""A consumer that reads committed records only, with Kafka's filter: the list of aborted transactions in each answer.

It reads the partitions of LEDGER from their starts, batch by batch. What it takes for committed must be what the log's
markers say (checks/transaction_checks.py): nothing aborted, nothing open, nothing skipped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kohort.simulator.actors.history import History, Poll, Read
from kohort.simulator.actors.workload import Paced
from kohort.simulator.plan import LEDGER, TOPICS_OF_TRANSACTIONS
from kohort.simulator.world.network import Link
from kohort.wire.batches import decode_records, split_batches
from kohort.wire.markers import read_marker
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

READ_COMMITTED = 1
PARTITIONS = range(TOPICS_OF_TRANSACTIONS[LEDGER])
CUT = "cut"


class Auditor(Paced):
    """A restless one sends fetches before others are answered, and sometimes reads a partition again."""

    check: Callable[[int, int, int, Sequence[Read]], None]
    """Told a partition, the first offset and the end of what was read, and the committed records there."""
    history: History
    """Of all transactional clients of the run."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.at = dict.fromkeys(PARTITIONS, 0)
        """The next offset of each partition."""
        self.polls: list[Poll] = []
        """Of the present run through the partitions."""
        self._asked = False
        self._random_of_cuts = self.world.random(f"cuts/{self.name}")

    def start(self) -> None:
        self._begin_run()
        super().start()

    def _begin_run(self) -> None:
        self.polls = []
        self.history.polls.append(self.polls)

    def act(self, link: Link) -> None:
        partition = self.random.choice([*self.at])
        leader = self._leader(partition)
        if link.broker_id != leader:
            link.close()
            link = self.link = self.connect(leader)
            self._asked = False
        restless = self.options["restless"]
        if self._asked and (not restless or self.random.random() < 0.8):
            return
        self._asked = True
        if self.options["cuts"] and self._random_of_cuts.random() < 0.2:
            link.ask(fetch_committed(self.at, 1), 11, CUT)
            return
        if restless and self.random.random() < 0.05:
            self.at[partition] = 0
            self._begin_run()
        first, size = self.at[partition], self.random.choice((300, 10_000))
        max_wait_ms = self.random.choice((0, 300, 2_000)) if restless else 0
        link.ask(fetch_committed({partition: first}, size, max_wait_ms), 11, (partition, first))

    def on_cut(self, link: Link) -> None:
        self._asked = False
        super().on_cut(link)

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        self._asked = False
        if tag == CUT:
            self._cut(response)
            return
        [answer] = response.responses[0].partitions if response.responses else [None]
        if answer is None or answer.error_code or not answer.records:
            return
        partition, first = tag
        end, reads = committed_in(answer.records, answer.aborted_transactions or (), first)
        self.check(partition, first, end, reads)
        if self.at[partition] == first:
            self.at[partition] = end
            self.polls.append(Poll(partition, first, end, reads))

    def _cut(self, response: Any) -> None:
        """All partitions at one instant."""
        answers = response.responses[0].partitions if response.responses else ()
        if len(answers) == len(PARTITIONS) and not any(answer.error_code for answer in answers):
            by_partition = sorted(answers, key=lambda answer: answer.partition_index)
            self.history.cuts.append(tuple((each.last_stable_offset, each.high_watermark) for each in by_partition))

    def _leader(self, partition: int) -> int:
        broker = self.process.broker
        topic = broker.state.topic(LEDGER) if broker is not None else None
        return self.any_broker() if topic is None else topic.partitions[partition].leader


def fetch_committed(offsets: Mapping[int, int], size: int, max_wait_ms: int = 0) -> FetchRequest:
    """Committed records of LEDGER, from these offsets of its partitions on."""
    partitions = tuple(
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)
        for partition, offset in offsets.items()
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10_000,
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=(FetchTopic(topic=LEDGER, partitions=partitions),),
    )


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
