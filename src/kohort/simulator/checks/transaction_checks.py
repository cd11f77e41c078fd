"""Transactions: an independent fold of the durable records of LEDGER and `__transaction_state`, and what must hold.

| promise | when it is checked |
| --- | --- |
| the records of a transaction are committed whole, on all partitions at one instant | each marker (1) |
| each position of a transactional id has one committed transaction, and the positions have no gap | the same |
| an answered commit is in the log, an answered abort never | at the end |
| a reader of committed records sees all of them and no others | each answer to an auditor |
| the last stable offset never falls, and is at or below the high watermark | each Fetch |
| an answer to a reader is not older than its question | each Fetch |
| records of a producer are in the order of its sequence numbers, without gap or repetition | each commit |
| after an answer to InitProducerId, nothing of an older epoch is appended | each commit |
| a producer id with its epoch is given once | each answer |
| a decision stays until all markers are written; coordinator epochs of markers only rise | each commit |
| the position committed with the records is the group's offset | at the end |

(1) If the decision was written ahead of the markers: when the end of the transaction is written.

In the terms of Adya's isolation levels: readers that see exactly what is committed read nothing aborted (G1a) and
nothing intermediate within a partition (G1b). Over several partitions, a reader that has seen one part of a transaction
and asks for another one gets it, because all parts became durable at one instant (but see (1)), and no answer is older
than its question. A circular flow of information (G1c) needs two transactions that have each read what the other wrote
before its own end: one of them has read what was not committed. list_append.py looks for the same without the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohort.broker.broker import Broker
from kohort.simulator.actors.history import Read
from kohort.simulator.actors.transactor import Transactor, group_of
from kohort.simulator.checks.ledger import Ledger
from kohort.simulator.plan import LEDGER, TOPICS_OF_TRANSACTIONS
from kohort.simulator.world.network import Asked
from kohort.simulator.world.world import Millis, Violation
from kohort.storage.protocol import Append, Operation
from kohort.wire.batches import BatchHeader, check_crc, decode_records, read_header
from kohort.wire.codec import decode
from kohort.wire.markers import read_marker
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.transaction_records import TransactionLogKey, TransactionLogValue

TRANSACTIONS_TOPIC = "__transaction_state"
STATES, PREPARED = range(6), (2, 3)
"""Numbers of all states, and of those between a decision and its end, in Kafka's records."""
FOLLOWS = {2: (4,), 3: (5,)}
"""What follows a decision."""
Producer = tuple[int, int]
"""Producer id and epoch."""


@dataclass(slots=True)
class PartitionFold:
    end: int = 0
    open: dict[int, list[Read]] = field(default_factory=dict)
    """By producer id: the records of its open transaction."""
    committed: list[Read] = field(default_factory=list)
    """Of transactions whose COMMIT marker is durable, in the order of the markers."""
    aborted: list[Read] = field(default_factory=list)
    sequences: dict[int, Producer] = field(default_factory=dict)
    """By producer id: the epoch and the sequence number that follow."""
    coordinator_epochs: dict[int, int] = field(default_factory=dict)
    """By producer id: that of its newest marker."""
    stable_seen: int = 0
    """The last stable offset of the newest answer."""
    stable_since: list[tuple[Millis, int]] = field(default_factory=lambda: [(0, 0)])
    """The last stable offset, and since when it has been durable."""

    @property
    def stable(self) -> int:
        return min((records[0][0] for records in self.open.values()), default=self.end)

    def note_stable(self, now: Millis) -> None:
        if self.stable != self.stable_since[-1][1]:
            self.stable_since.append((now, self.stable))

    def stable_before(self, time: Millis) -> int:
        return self.stable_since[max(bisect_left(self.stable_since, (time, 0)) - 1, 0)][1]


@dataclass(slots=True)
class Moved:
    """What the log has of one position of a transactional id."""

    name: str
    parts: int
    seen: set[int] = field(default_factory=set)
    amount: int = 0


class TransactionChecks:
    def __init__(self, ledger: Ledger) -> None:
        self.partitions = [PartitionFold() for _ in range(TOPICS_OF_TRANSACTIONS[LEDGER])]
        self.transactors: list[Transactor] = []
        self._ledger = ledger
        self._states: dict[str, TransactionLogValue] = {}
        """The durable state of each transactional id."""
        self._moves: defaultdict[str, dict[int, Moved]] = defaultdict(dict)
        """By transactional id and position."""
        self._given: dict[Producer, str] = {}
        """Producers that clients were told of, and the transactional id."""
        self._lowest: dict[int, int] = {}
        """By producer id: the lowest epoch that may still write."""
        self._initialised: dict[int, int] = {}
        """The same, as answered in this turn: earlier requests of the turn may have written."""

    # -- a turn

    def committed(self, broker: Broker, operations: Iterable[Operation], now: Millis) -> None:
        """The turn is durable."""
        catalog = broker.state.catalog.topics
        ledger, states = catalog.get(LEDGER), catalog.get(TRANSACTIONS_TOPIC)
        touched: set[str] = set()
        for operation in operations:
            if not isinstance(operation, Append):
                continue
            if ledger is not None and operation.log.topic_id == ledger.topic_id:
                for batch in operation.batches:
                    touched |= self._append(self.partitions[operation.log.partition], batch.data)
            elif states is not None and operation.log.topic_id == states.topic_id:
                for batch in operation.batches:
                    touched |= self._decide(batch.data)
        for transactional_id in sorted(touched):
            self._check_whole(transactional_id)
        for fold in self.partitions:
            fold.note_stable(now)
        for producer_id, epoch in self._initialised.items():
            self._lowest[producer_id] = max(epoch, self._lowest.get(producer_id, 0))
        self._initialised.clear()

    def _append(self, fold: PartitionFold, data: bytes) -> set[str]:
        """Returns the transactional ids whose committed records have changed."""
        header = read_header(data)
        if header.base_offset < fold.end:
            raise Violation("offsets only rise", f"{LEDGER}: {header.base_offset} after {fold.end}")
        if not check_crc(data, header):
            raise Violation("the log has what was sent", f"{LEDGER}: {header.base_offset} does not match its CRC")
        fold.end = header.last_offset + 1
        if header.is_control:
            return self._mark(fold, data, header)
        reads = [(record.offset, record.value or b"") for record in decode_records(data, header)]
        if header.producer_id < 0 or not header.is_transactional:
            raise Violation("the log has what was sent", f"{LEDGER}: a batch without transaction at {fold.end}")
        self._check_order(fold, header)
        fold.open.setdefault(header.producer_id, []).extend(reads)
        return set()

    def _check_order(self, fold: PartitionFold, header: BatchHeader) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        if epoch < self._lowest.get(producer_id, 0):
            text = f"producer {producer_id} writes at {epoch}, {self._lowest[producer_id]} was given"
            raise Violation("a fenced producer writes nothing", text)
        known, expected = fold.sequences.get(producer_id, (epoch, 0))
        if epoch < known or header.base_sequence != (expected if epoch == known else 0):
            text = f"producer {producer_id}: {epoch}/{header.base_sequence} after {known}/{expected}"
            raise Violation("a producer's records are in order", text)
        fold.sequences[producer_id] = (epoch, header.base_sequence + header.record_count)

    def _mark(self, fold: PartitionFold, data: bytes, header: BatchHeader) -> set[str]:
        marker = read_marker(data, header)
        assert marker is not None, "a control batch of LEDGER is a marker"
        known, expected = fold.sequences.get(marker.producer_id, (marker.epoch, 0))
        if marker.epoch < known:
            raise Violation("epochs of markers only rise", f"{marker} after {known}")
        if marker.coordinator_epoch < fold.coordinator_epochs.get(marker.producer_id, 0):
            raise Violation("coordinator epochs only rise", f"{marker} after {fold.coordinator_epochs}")
        fold.coordinator_epochs[marker.producer_id] = marker.coordinator_epoch
        fold.sequences[marker.producer_id] = (marker.epoch, expected if marker.epoch == known else 0)
        reads = fold.open.pop(marker.producer_id, [])
        if not marker.committed:
            fold.aborted += reads
            return set()
        fold.committed += reads
        return {self._move(value.decode()) for _, value in reads}

    def _move(self, value: str) -> str:
        transactional_id, position, name, part, parts, amount = value.split("|")
        moves = self._moves[transactional_id]
        moved = moves.setdefault(int(position), Moved(name, int(parts)))
        if moved.name != name or int(part) in moved.seen:
            text = f"{transactional_id} at {position}: {moved.name} and {name}, part {part}"
            raise Violation("a position has one committed transaction", text)
        moved.seen.add(int(part))
        moved.amount += int(amount)
        return transactional_id

    def _decide(self, data: bytes) -> set[str]:
        """Records of `__transaction_state`."""
        changed = set()
        for record in decode_records(data):
            assert record.key is not None
            name = decode(TransactionLogKey, 0, record.key, 2).transactional_id
            changed.add(name)
            former = self._states.get(name)
            if record.value is None:
                if former is not None and former.transaction_status in PREPARED:
                    raise Violation("a decision stays", f"{name}: {former} is forgotten")
                self._states.pop(name, None)
                continue
            value = decode(TransactionLogValue, int.from_bytes(record.value[:2], "big"), record.value, 2)
            if former is not None and _falls(former, value):
                raise Violation("epochs only rise", f"{name}: {former} is followed by {value}")
            if former is not None and value.transaction_status not in FOLLOWS.get(former.transaction_status, STATES):
                raise Violation("a decision stays", f"{name}: {former} is followed by {value}")
            self._states[name] = value
        return changed

    def _check_whole(self, transactional_id: str) -> None:
        state = self._states.get(transactional_id)
        if state is not None and state.transaction_status in PREPARED:
            return  # the decision is durable, not all markers are
        moves = self._moves[transactional_id]
        for position, moved in moves.items():
            if len(moved.seen) < moved.parts or moved.amount:
                text = f"{transactional_id} at {position}: parts {sorted(moved.seen)} of {moved.parts}"
                raise Violation("a transaction is committed whole", text)
        if moves and sorted(moves) != list(range(len(moves))):
            raise Violation("positions have no gap", f"{transactional_id}: {sorted(moves)}")

    # -- answers

    def answered(self, asked: Asked, response: Any) -> None:
        match request := asked.request:
            case InitProducerIdRequest() if request.transactional_id and not response.error_code:
                self._give(request.transactional_id, (response.producer_id, response.producer_epoch))
                self._initialised[response.producer_id] = response.producer_epoch
            case EndTxnRequest() if asked.version >= 5 and not response.error_code:
                self._give(request.transactional_id, (response.producer_id, response.producer_epoch), again=True)
            case FetchRequest():
                for topic in response.responses:
                    if topic.topic == LEDGER:
                        for partition in topic.partitions:
                            self._check_stable(partition, asked.asked_at)

    def _give(self, transactional_id: str, producer: Producer, *, again: bool = False) -> None:
        """`again`: the answer may repeat an earlier one."""
        owner = self._given.get(producer)
        if owner is not None and (owner != transactional_id or not again):
            raise Violation("a producer's epoch is given once", f"{producer} to {owner} and {transactional_id}")
        self._given[producer] = transactional_id

    def _check_stable(self, answer: Any, asked_at: Millis) -> None:
        if answer.error_code:
            return
        fold = self.partitions[answer.partition_index]
        stable = answer.last_stable_offset
        if not fold.stable_seen <= stable <= min(answer.high_watermark, fold.stable):
            text = (
                f"{LEDGER}-{answer.partition_index}: {stable} after {fold.stable_seen}, the high watermark is "
                f"{answer.high_watermark}, the first open record {fold.stable}"
            )
            raise Violation("the last stable offset only rises, up to the first open transaction", text)
        fold.stable_seen = stable
        if stable < fold.stable_before(asked_at):
            text = f"{LEDGER}-{answer.partition_index}: {stable}, but {fold.stable_before(asked_at)} when it was asked"
            raise Violation("a reader's answer is not older than its question", text)

    def read(self, partition: int, first: int, end: int, reads: Sequence[Read]) -> None:
        """An auditor took these records for the committed ones from `first` to `end`."""
        fold = self.partitions[partition]
        expected = sorted(read for read in fold.committed if first <= read[0] < end)
        if end > fold.stable or list(reads) != expected:
            missing, wrong = set(expected) - set(reads), set(reads) - set(expected)
            text = f"{LEDGER}-{partition} from {first} to {end}: lacks {sorted(missing)}, has {sorted(wrong)}"
            raise Violation("readers see what is committed, and all of it", text)

    # -- the end

    def unsettled(self) -> str:
        """Why a transaction has not ended after the healing; "" if all have."""
        for index, fold in enumerate(self.partitions):
            if fold.open:
                return f"{LEDGER}-{index}: transactions of {sorted(fold.open)} are open"
        left = [name for name, state in self._states.items() if state.transaction_status in (1, *PREPARED)]
        return f"the transactions of {left} do not end" if left else ""

    def check_end(self, broker: Broker) -> None:
        names = {name for moves in self._moves.values() for name in (moved.name for moved in moves.values())}
        for transactor in self.transactors:
            moves = self._moves[transactor.id]
            for position, name in transactor.committed:
                if position not in moves or moves[position].name != name:
                    text = f"{transactor.id} at {position}: {name} was answered, the log has {moves.get(position)}"
                    raise Violation("an answered commit is in the log", text)
            if wrong := names.intersection(transactor.aborted):
                raise Violation("an answered abort is never committed", f"{transactor.id}: {sorted(wrong)}")
            group = group_of(transactor.id)
            fold = self._ledger.folds[broker.state.shard_of(group)]
            value = fold.offsets.get(group, {}).get((LEDGER, 0))
            position = 0 if value is None else value.offset
            if position != len(moves):
                text = f"{transactor.id}: the position is {position}, {len(moves)} transactions are committed"
                raise Violation("records and offsets are committed together", text)


def _falls(former: TransactionLogValue, value: TransactionLogValue) -> bool:
    return former.producer_id == value.producer_id and value.producer_epoch < former.producer_epoch
