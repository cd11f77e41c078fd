"""Ends transactions: writes the markers that a transaction shard has decided on, and says so to the shard.

In one turn: if the partitions of a transaction are few, the decision, all markers and the completion are one durable
commit. Nobody sees a part of it, and the producer may go on at once.

In two phases: the decision is durable first. Then each turn writes some markers, and the completion follows the last
one. Until then the shard refuses the producer's requests with 51. A restart begins again with the first marker, because
a repeated marker has no effect. So end transactions of many partitions, and those that the server ends by itself when a
turn has no room left for them.

A partition that was deleted gets no marker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from kohort.broker.group_shards import GroupShards
from kohort.broker.logs.partition import Appended
from kohort.broker.topics.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kohort.broker.topics.topic_store import TopicStore
from kohort.broker.turn_builder import TurnBuilder
from kohort.coordinator.events import Ending
from kohort.coordinator.journal.story import cut
from kohort.coordinator.journal.transaction_aborts import TransactionAborts
from kohort.coordinator.transactions.events import MarkersWritten
from kohort.wire.errors import ErrorCode
from kohort.wire.markers import Marker

MARKERS_AT_ONCE = 100
"""Markers of one transaction that are written in the turn of its decision: some milliseconds."""
MARKERS_A_TURN = 100
"""Markers that a turn writes for transactions in two phases."""
SHARE = 20
"""Markers of one such transaction before the next one has its share."""


class _UnderWay:
    """A transaction that ends in two phases."""

    __slots__ = ("ending", "turn", "version", "written")

    def __init__(self, ending: Ending, version: int, turn: int) -> None:
        self.ending = ending
        self.version = version
        self.written = 0
        """Markers written so far."""
        self.turn = turn
        """The number of the turn that has decided the outcome."""


class Endings:
    def __init__(self, topics: TopicStore, turn: TurnBuilder, groups: GroupShards, aborts: TransactionAborts) -> None:
        self.splits: Callable[[Ending], bool] = lambda ending: False
        """Which transactions end in two phases although they are small (the simulator's choice)."""
        self._topics = topics
        self._turn = turn
        self._groups = groups
        self._machines = groups.machines
        self._aborts = aborts
        self._under_way: OrderedDict[tuple[int, str], _UnderWay] = OrderedDict()
        """By the number of the shard among the machines and the transactional id; the next one first."""
        self._number_of_turn = 0
        self._left = MARKERS_A_TURN
        """Markers that this turn may still write for transactions that nobody has asked to end."""

    @property
    def busy(self) -> bool:
        """True if markers wait to be written."""
        return bool(self._under_way)

    def begin(self, number: int, ending: Ending, version: int) -> None:
        """Take a decision of the shard with this number. `version`: the transaction version of the producer."""
        self._tell(ending)
        count = len(ending.places)
        fits = count <= MARKERS_AT_ONCE
        if ending.cause in ("timed out", "loaded"):
            fits = count <= self._left
            self._left -= count if fits else 0
        if fits and not self.splits(ending):
            self._write(number, ending, version, 0, count)
            self._complete(number, ending)
        else:
            self._under_way[(number, ending.transactional_id)] = _UnderWay(ending, version, self._number_of_turn + 1)

    def step(self) -> None:
        """Once a turn, behind its requests."""
        self._left = left = MARKERS_A_TURN
        self._number_of_turn += 1
        while self._under_way and left > 0:
            key, under_way = next(iter(self._under_way.items()))
            if under_way.turn >= self._number_of_turn:
                break  # the decision is not durable yet
            count = min(len(under_way.ending.places) - under_way.written, SHARE, left)
            self._write(key[0], under_way.ending, under_way.version, under_way.written, count)
            under_way.written += count
            left -= count
            if under_way.written == len(under_way.ending.places):
                del self._under_way[key]
                self._complete(key[0], under_way.ending)
                left -= 1
            else:
                self._under_way.move_to_end(key)

    def forget(self, number: int) -> None:
        """The shard with this number is unloaded. What is under way comes again with its load."""
        for key in [key for key in self._under_way if key[0] == number]:
            del self._under_way[key]

    def unwritten(self, number: int, transactional_id: str) -> tuple[tuple[str, int], ...]:
        """The partitions of a decided transaction that have no marker yet."""
        under_way = self._under_way.get((number, transactional_id))
        return () if under_way is None else under_way.ending.places[under_way.written :]

    def _write(self, number: int, ending: Ending, version: int, first: int, count: int) -> None:
        """Markers of `count` partitions, from the one with the index `first` on."""
        if not count:
            return
        marker = Marker(ending.producer_id, ending.epoch, ending.committed, self._coordinator_epoch(number))
        for topic, partition in ending.places[first : first + count]:
            appended = self._append(topic, partition, marker, version)
            if appended is not None and appended.error:
                # The partition has seen a newer marker: the transaction is over there.
                self._turn.tell(
                    "transaction marker refused",
                    transactional_id=cut(ending.transactional_id),
                    partition=f"{topic}-{partition}",
                    why=ErrorCode(appended.error).name,
                )

    def _append(self, name: str, index: int, marker: Marker, version: int) -> Appended | None:
        topic = self._topics.catalog.topics.get(name)
        partition = None if topic is None else self._topics.partition(topic, index)
        if partition is None:
            return None
        if name == OFFSETS_TOPIC:
            return self._groups.end_transaction(index, marker, version)
        return self._turn.append_marker(partition, marker, version)

    def _coordinator_epoch(self, number: int) -> int:
        """The leader epoch of the shard's partition."""
        index = self._machines.log_of(number).partition
        return self._topics.catalog.topics[TRANSACTIONS_TOPIC].partitions[index].leader_epoch

    def _complete(self, number: int, ending: Ending) -> None:
        written = MarkersWritten(ending.transactional_id, ending.producer_id, ending.epoch)
        self._machines.ask(number, cast(Any, written))

    def _tell(self, ending: Ending) -> None:
        """A line in the server's log, and a journal entry, for a transaction that its producer has not ended."""
        if ending.cause in ("fenced", "timed out"):
            client = ending.fenced_by
            by = {} if client is None else {"by_client_id": cut(client.client_id), "by_host": client.host}
            self._turn.tell(
                f"transaction {ending.cause}",
                transactional_id=cut(ending.transactional_id),
                producer_id=ending.producer_id,
                epoch=ending.epoch,
                partitions=len(ending.places),
                **by,
            )
            self._aborts.tell(ending, self._turn.now)
