"""A transactional producer that reads, processes and writes: each transaction moves an amount between partitions, and
commits the position up to which it has read.

The position is a committed offset of a group of the transactional id's own, on partition 0 of LEDGER. A transaction at
position P writes records that say P, and commits P + 1 with them. So every position has exactly one committed
transaction, whatever fails, and the amounts of the committed records sum to zero (checks/transaction_checks.py).

The client follows the rules of real ones: it repeats a request whose answer does not come, on a new connection; it
aborts on an error that can be aborted, and initialises its producer again on a fatal one. Version 2 has a new epoch for
each transaction (KIP-890), version 1 keeps its epoch. Two actors with the same id are zombies to each other.

It learns positions only from the group: after every failure it fetches the stable offset again.

Some also read: a transaction polls committed records of INPUTS, and commits with its own position the offsets up to
which it has read. Such a transaction is one of a history of appends to lists (actors/history.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from kohort.simulator.actors.auditor import committed_in, fetch_committed
from kohort.simulator.actors.history import Element, History, Poll, Read, Sent, Transaction
from kohort.simulator.actors.workload import Paced
from kohort.simulator.plan import LEDGER, TOPICS_OF_TRANSACTIONS
from kohort.simulator.world.network import Link
from kohort.simulator.world.world import START_MS
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.schemas.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

PARTITIONS = TOPICS_OF_TRANSACTIONS[LEDGER]
INPUTS = (1, 2)
"""Partitions of LEDGER that are read. The group's offset on partition 0 is the number of committed transactions."""
_E = ErrorCode
AGAIN = frozenset((3, 5, 6, 7, 14, 15, 16, 19, 51, 88))
"""Errors on which a client sends the same request again."""
ABORTS = frozenset((_E.TRANSACTION_ABORTABLE, _E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.UNKNOWN_MEMBER_ID))
AGAIN_MS = 100
NO_OFFSET = -1

Step = Callable[[], None]


def group_of(transactional_id: str) -> str:
    """The group that holds the position of a transactional id."""
    return f"of-{transactional_id}"


class Transactor(Paced):
    check: Callable[[int, int, int, Sequence[Read]], None]
    """Told what a poll has read, like that of an auditor."""
    history: History
    """Of all transactional clients of the run."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.id: str = self.options["id"]
        self.version: int = self.options["version"]
        self.committed: list[tuple[int, str]] = []
        """Position and transaction of each commit that was answered with success."""
        self.aborted: list[str] = []
        """Transactions whose abort was answered with success."""
        self._producer = (-1, -1)
        """Producer id and epoch."""
        self._sequences: dict[int, int] = {}
        """By partition: the number of the next record."""
        self._position = 0
        self._read_up_to: dict[int, int] = {}
        """By partition of INPUTS: the next offset that it reads. Empty for a transactor that does not read."""
        self._transaction: Transaction
        self._random_of_reads = self.world.random(f"reads/{self.name}")
        self._number = 0
        """Of transactions of this actor."""
        self._steps: list[Step] = []
        """What is left to do of the transaction."""
        self._asked = 0
        """Of requests: an answer to an earlier request is late."""
        self._links: dict[int, Link] = {}
        self._waiting: tuple[int, Any, int, Callable[[Any], None], Callable[[], int]] | None = None

    # -- the life of a client

    def act(self, link: Link) -> None:
        """Unused: each step schedules the next one."""

    def start(self) -> None:
        self.running = True
        self.soon(self.random.randrange(self.options["pace_ms"]), self._initialise)

    def end(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        super().end()

    def on_cut(self, link: Link) -> None:
        self._links = {broker: each for broker, each in self._links.items() if each is not link}

    def _ask(self, request: Any, version: int, broker: Callable[[], int], then: Callable[[Any], None]) -> None:
        """Send a request until its answer comes. `broker` tells where, each time."""
        self._asked += 1
        self._waiting = (self._asked, request, version, then, broker)
        self._send(self._asked)

    def _send(self, number: int) -> None:
        if self._waiting is None or self._waiting[0] != number:
            return
        _, request, version, _, broker = self._waiting
        node = broker()
        link = self._links.get(node)
        if link is None or not link.open:
            link = self._links[node] = self.connect(node)
        link.ask(request, version, number)
        self.soon(self.options["patience_ms"], self._impatient, number, link)

    def _impatient(self, number: int, link: Link) -> None:
        """The answer is overdue. The connection is left open half of the time: what travels on it still arrives."""
        if self._waiting is None or self._waiting[0] != number:
            return
        self._links = {broker: each for broker, each in self._links.items() if each is not link}
        if self.random.random() < 0.5:
            link.close()
        self._send(number)

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        if self._waiting is not None and self._waiting[0] == tag:
            then, self._waiting = self._waiting[3], None
            then(response)

    def _again(self, step: Step) -> None:
        self.soon(AGAIN_MS, step)

    def _coordinator(self) -> int:
        broker = self.process.broker
        if broker is None or self.random.random() < 0.05:
            return self.any_broker()
        return broker.state.transactions.coordinator_of(self.id) or self.any_broker()

    def _leader(self, partition: int) -> int:
        broker = self.process.broker
        topic = broker.state.topic(LEDGER) if broker is not None else None
        if topic is None or self.random.random() < 0.02:
            return self.any_broker()
        return topic.partitions[partition].leader

    def _group_coordinator(self) -> int:
        broker = self.process.broker
        if broker is None or not broker.state.shards or self.random.random() < 0.05:
            return self.any_broker()
        return broker.state.coordinator_of(broker.state.shard_of(group_of(self.id)))

    # -- the producer and its position

    def _initialise(self) -> None:
        """A new incarnation: the transaction of the former one is aborted."""
        self._sequences.clear()
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=(self.id,))
        self._ask(find, 4, self.any_broker, self._found)

    def _found(self, response: Any) -> None:
        if response.coordinators[0].error_code:
            self._again(self._initialise)
        else:
            timeout_ms = self.options["timeout_ms"]
            request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=timeout_ms)
            self._ask(request, 4, self._coordinator, self._initialised)

    def _initialised(self, response: Any) -> None:
        if response.error_code:
            self._again(self._initialise)
        else:
            self._producer = (response.producer_id, response.producer_epoch)
            self.tell(f"is producer {self._producer}")
            self._look_up()

    def _look_up(self) -> None:
        indexes = (0, *INPUTS) if self.options["reads"] else (0,)
        topic = OffsetFetchRequestTopics(name=LEDGER, partition_indexes=indexes)
        group = OffsetFetchRequestGroup(group_id=group_of(self.id), topics=(topic,))
        request = OffsetFetchRequest(groups=(group,), require_stable=True)
        self._ask(request, 8, self._group_coordinator, self._looked_up)

    def _looked_up(self, response: Any) -> None:
        [group] = response.groups
        partitions = () if group.error_code else group.topics[0].partitions
        if not partitions or any(partition.error_code for partition in partitions):
            self._again(self._look_up)
        else:
            offsets = {partition.partition_index: max(partition.committed_offset, 0) for partition in partitions}
            self._position = offsets.pop(0)
            self._read_up_to = offsets
            self._pause_and_begin()

    def _pause_and_begin(self) -> None:
        pace = self.options["pace_ms"]
        self.soon(self.random.randrange(pace // 4, pace * 2), self._begin)

    # -- a transaction

    def _begin(self) -> None:
        if self.random.random() < self.options["restarts"]:
            self._initialise()
            return
        self._number += 1
        name = f"{self.name}/{self._number}"
        self._transaction = self.history.begin(self.id, self._position, name)
        steps = [*self._writes(name), *((self._add_offsets,) if self.version == 1 else ()), self._commit_offsets]
        fate = self.random.random()
        if fate < 0.04:  # it does nothing for longer than its transaction may last
            idle = partial(self.soon, 2 * self.options["timeout_ms"], self._next)
            steps.insert(self.random.randrange(1, len(steps) + 1), idle)
        self._insert_polls(steps)
        self._steps = [*steps, partial(self._end, name, fate < 0.85)]
        self._next()

    def _writes(self, name: str) -> Iterator[Step]:
        partitions = self.random.sample(range(PARTITIONS), self.random.choice((1, 2, 2, 3)))
        if self.random.random() < 0.3:  # a reader between the two would see half of what it did there
            partitions.append(partitions[0])
        amounts = [self.random.randrange(-50, 50) for _ in partitions[1:]]
        for part, (partition, amount) in enumerate(zip(partitions, [-sum(amounts), *amounts], strict=True)):
            if self.version == 1:
                yield partial(self._add, partition)
            element = Element(self.id, self._position, name, part, len(partitions), amount)
            yield partial(self._produce, partition, element.value)

    def _insert_polls(self, steps: list[Step]) -> None:
        """Before, between and after the writes. The last step commits the offsets."""
        random = self._random_of_reads
        for _ in range(random.choice((0, 1, 1, 2)) if self._read_up_to else 0):
            steps.insert(random.randrange(len(steps)), partial(self._poll, random.choice(INPUTS)))

    def _next(self) -> None:
        self._steps.pop(0)()

    def _concluded(self, error: int, step: Step) -> None:
        """Go on, repeat the step, abort, or begin anew."""
        if not error:
            self._next()
        elif error in AGAIN:
            self._again(step)
        elif error in ABORTS:
            self._end("", False)
        else:
            self.tell(f"is refused: {ErrorCode(error).name}")
            self._again(self._initialise)

    def _add(self, partition: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=LEDGER, partitions=(partition,)),),
        )

        def then(response: Any) -> None:
            [result] = response.results_by_topic_v3_and_below[0].results_by_partition
            self._concluded(result.partition_error_code, lambda: self._add(partition))

        self._ask(request, 3, self._coordinator, then)

    def _poll(self, partition: int) -> None:
        first = self._read_up_to[partition]
        size = self._random_of_reads.choice((300, 2_000, 10_000))

        def then(response: Any) -> None:
            [answer] = response.responses[0].partitions if response.responses else [None]
            if answer is None or answer.error_code:
                self._again(partial(self._poll, partition))
                return
            end, reads = committed_in(answer.records or b"", answer.aborted_transactions or (), first)
            self.check(partition, first, end, reads)
            self._read_up_to[partition] = end
            self._transaction.polls.append(Poll(partition, first, end, reads))
            self._next()

        self._ask(fetch_committed({partition: first}, size), 11, lambda: self._leader(partition), then)

    def _produce(self, partition: int, value: bytes) -> None:
        sequence = self._sequences.get(partition, 0)
        batch = encode_batch(
            [NewRecord(None, value, START_MS + self.world.now)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
            compression=self.options["codec"],
        )
        data = TopicProduceData(name=LEDGER, partition_data=(PartitionProduceData(index=partition, records=batch),))
        request = ProduceRequest(transactional_id=self.id, acks=-1, timeout_ms=1_000, topic_data=(data,))

        def again() -> None:
            self._ask(request, 12 if self.version == 2 else 11, lambda: self._leader(partition), then)

        def then(response: Any) -> None:
            [answer] = response.responses[0].partition_responses
            if not answer.error_code:
                self._sequences[partition] = sequence + 1
                self._transaction.sends.append(Sent(partition, answer.base_offset, value))
            self._concluded(answer.error_code, again)

        again()

    def _add_offsets(self) -> None:
        pid, epoch = self._producer
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=pid, producer_epoch=epoch, group_id=group_of(self.id)
        )

        def then(response: Any) -> None:
            self._concluded(response.error_code, self._add_offsets)

        self._ask(request, 3, self._coordinator, then)

    def _commit_offsets(self) -> None:
        offsets = {0: self._position + 1, **self._read_up_to}
        partitions = tuple(
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index, offset in offsets.items()
        )
        pid, epoch = self._producer
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group_of(self.id),
            producer_id=pid,
            producer_epoch=epoch,
            topics=(TxnOffsetCommitRequestTopic(name=LEDGER, partitions=partitions),),
        )

        def then(response: Any) -> None:
            errors = [partition.error_code for partition in response.topics[0].partitions]
            self._concluded(max(errors), self._commit_offsets)

        self._ask(request, 5 if self.version == 2 else 3, self._group_coordinator, then)

    def _end(self, name: str, commits: bool) -> None:
        """`name` is empty if a failed transaction is aborted, whatever it has written."""
        self._transaction.asks |= commits
        pid, epoch = self._producer
        request = EndTxnRequest(transactional_id=self.id, producer_id=pid, producer_epoch=epoch, committed=commits)

        def again() -> None:
            self._ask(request, 5 if self.version == 2 else 4, self._coordinator, then)

        def then(response: Any) -> None:
            if response.error_code in AGAIN:
                self._again(again)
            elif response.error_code:
                self.tell(f"its end is refused: {ErrorCode(response.error_code).name}")
                self._again(self._initialise)
            else:
                if self.version == 2:
                    self._producer = (response.producer_id, response.producer_epoch)
                    self._sequences.clear()
                self._ended(name, commits)

        again()

    def _ended(self, name: str, commits: bool) -> None:
        self._transaction.committed, self._transaction.aborted = commits, not commits
        if commits:
            self.committed.append((self._position, name))
            self._position += 1
            self._pause_and_begin()
        else:
            self.aborted.extend(filter(None, (name,)))
            self._look_up()
