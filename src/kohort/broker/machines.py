"""The state machines of the broker, each with the log that it owns (coordinator/state_machine.py).

The records of a step are applied at once. When the turn ends, they are appended to the machine's log as one batch. A
machine has a number, by which parked requests and deadlines refer to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from kohort.broker.logs.partition import Partition
from kohort.broker.topics.topic_store import TopicStore
from kohort.broker.turn_builder import TurnBuilder
from kohort.broker.waits.shard_deadlines import ShardDeadlines
from kohort.coordinator.events import Effects, Record, RequestId, TargetRecords
from kohort.coordinator.state_machine import LogName, StateMachine

MoreEffects = Callable[[int, Effects], None]
LARGE_RECORD = 65_536
"""Bytes of a record. A group's record, with all its members, may be that large."""


class StateMachines:
    def __init__(self, turn: TurnBuilder, topics: TopicStore) -> None:
        self.by_log: dict[LogName, int] = {}
        self.deadlines = ShardDeadlines()
        self._machines: list[StateMachine] = []
        self._turn = turn
        self._topics = topics
        self._takers: list[MoreEffects] = []
        self._newest_only: list[bool] = []
        self._decided: dict[int, dict[object, Record]] = {}
        """Records of this turn. Of each large key only the newest record is kept: the turn is durable as a whole, and a
        thousand static members that return at once would write their whole group a thousand times."""

    def add(self, machine: StateMachine, more_effects: MoreEffects, *, newest_only: bool = False) -> int:
        """Returns its number. `more_effects` takes what a step's effects hold besides records and replies.

        `newest_only`: of the records of a turn with the same key, only the newest is appended."""
        number = self.by_log[machine.log] = len(self._machines)
        self._machines.append(machine)
        self._takers.append(more_effects)
        self._newest_only.append(newest_only)
        return number

    def replace(self, number: int, machine: StateMachine) -> None:
        """Another machine for the same log, without state."""
        assert machine.log == self._machines[number].log
        assert number not in self._decided, "records of the former machine are not appended yet"
        self._machines[number] = machine
        self.deadlines.set(number, None)

    def log_of(self, number: int) -> LogName:
        return self._machines[number].log

    def ask(self, number: int, event: Any, awaited: RequestId | None = None) -> Any:
        """Let a machine take a step. Returns the body of the reply to `awaited`; None when it was parked.

        Replies to other requests are collected in the turn."""
        turn = self._turn
        machine = self._machines[number]
        effects = machine.step(event, turn.now)
        if effects.producer is not None:
            self._append_of_producer(number, cast(tuple[Record, ...], effects.records), effects.producer)
        elif effects.records:
            collected = self._decided.setdefault(number, {})
            newest_only = self._newest_only[number]
            for record in effects.records:
                machine.apply(record, turn.now)
                if isinstance(record, TargetRecords):
                    collected = self._append_target(number, record)
                    continue
                slot = record.key if newest_only or len(record.value or b"") >= LARGE_RECORD else object()
                collected.pop(slot, None)
                collected[slot] = record
        if effects.journal or effects.tasks or effects.holds_over or effects.endings or effects.shares:
            self._takers[number](number, effects)
        self.deadlines.set(number, machine.next_deadline())
        found = None
        for reply in effects.replies:
            if reply.request_id == awaited:
                found = reply.body
            else:
                turn.replies.append(reply)
        return found

    def ask_all(self, event: Any) -> None:
        for number in range(len(self._machines)):
            self.ask(number, event)

    def _append_of_producer(self, number: int, records: tuple[Record, ...], producer: tuple[int, int]) -> None:
        """The records of a producer's transaction are a batch of their own, behind what was decided before."""
        if not records:
            return
        appended = self._turn.append_records(self.flush(number), records, producer)
        assert not appended.error, "the producer was checked before"
        for record in records:
            self._machines[number].apply(record, self._turn.now)

    def _append_target(self, number: int, records: TargetRecords) -> dict[object, Record]:
        """Records that are encoded already are a batch of their own, behind what was decided before. Returns what the
        records after them are collected in."""
        partition = self.flush(number)
        self._turn.write(partition, partition.append_encoded(records.encoded, len(records.targets), self._turn.now))
        return self._decided.setdefault(number, {})

    def has_decided(self, number: int) -> bool:
        """True if records of the machine wait for the end of the turn: they must be appended before any others."""
        return number in self._decided

    def flush(self, number: int) -> Partition:
        """Append what a machine has decided in this turn, so that a batch of its own may follow. Returns the partition
        of the machine's log."""
        partition = self._topics.partition_named(self._machines[number].log)
        records = self._decided.pop(number, None)
        if records:
            self._turn.append_records(partition, tuple(records.values()))
        return partition

    def append_decided(self) -> None:
        """At the end of a turn: one batch for each log that records were decided for."""
        for number in list(self._decided):
            self.flush(number)

    def validate(self) -> None:
        """Raises AssertionError; for tests and the simulator."""
        for machine in self._machines:
            machine.validate()
