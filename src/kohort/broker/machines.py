"""The state machines of the broker, each with the log that it owns (coordinator/state_machine.py).

The records of a step are applied at once. When the turn ends, they are appended to the machine's log as one batch. A
machine has a number, by which parked requests and deadlines refer to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.broker.topics.topic_store import TopicStore
from kohort.broker.turn_builder import TurnBuilder
from kohort.broker.waits.shard_deadlines import ShardDeadlines
from kohort.coordinator.events import Effects, Event, Record, RequestId
from kohort.coordinator.state_machine import LogName, StateMachine

LARGE_RECORD = 65_536
"""Bytes of a record. A group's record, with all its members, may be that large."""


class StateMachines:
    def __init__(self, turn: TurnBuilder, topics: TopicStore, more_effects: Callable[[int, Effects], None]) -> None:
        """`more_effects` takes what a step's effects hold besides records and replies."""
        self.by_log: dict[LogName, int] = {}
        self.deadlines = ShardDeadlines()
        self._machines: list[StateMachine] = []
        self._turn = turn
        self._topics = topics
        self._more_effects = more_effects
        self._decided: dict[int, dict[object, Record]] = {}
        """Records of this turn. Of each large key only the newest record is kept: the turn is durable as a whole, and a
        thousand static members that return at once would write their whole group a thousand times."""

    def add(self, machine: StateMachine) -> int:
        """Returns its number."""
        number = self.by_log[machine.log] = len(self._machines)
        self._machines.append(machine)
        return number

    def ask(self, number: int, event: Event, awaited: RequestId | None = None) -> Any:
        """Let a machine take a step. Returns the body of the reply to `awaited`; None when it was parked.

        Replies to other requests are collected in the turn."""
        turn = self._turn
        machine = self._machines[number]
        effects = machine.step(event, turn.now)
        if effects.records:
            collected = self._decided.setdefault(number, {})
            for record in effects.records:
                machine.apply(record, turn.now)
                slot = record.key if len(record.value or b"") >= LARGE_RECORD else object()
                collected.pop(slot, None)
                collected[slot] = record
        if effects.journal or effects.tasks or effects.holds_over:
            self._more_effects(number, effects)
        self.deadlines.set(number, machine.next_deadline())
        found = None
        for reply in effects.replies:
            if reply.request_id == awaited:
                found = reply.body
            else:
                turn.replies.append(reply)
        return found

    def ask_all(self, event: Event) -> None:
        for number in range(len(self._machines)):
            self.ask(number, event)

    def has_decided(self, number: int) -> bool:
        """True if records of the machine wait for the end of the turn: they must be appended before any others."""
        return number in self._decided

    def append_decided(self) -> None:
        """At the end of a turn: one batch for each log that records were decided for."""
        for number, records in self._decided.items():
            partition = self._topics.partition_named(self._machines[number].log)
            self._turn.append_records(partition, tuple(records.values()))
        self._decided.clear()

    def validate(self) -> None:
        """Raises AssertionError; for tests and the simulator."""
        for machine in self._machines:
            machine.validate()
