"""Dead letters: each record that a share group gives up has one, in the commit that archives it or before.

They are read from the committed batches, and known by their headers. A record that an operator has delivered again may
be given up again, and has another one then.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.broker import Broker
from kohort.coordinator.shares.events import ShareKey
from kohort.simulator.actors.overseer import DEAD_JOBS, are_dead_letters_on
from kohort.simulator.world.world import Violation
from kohort.storage.protocol import Append, Operation
from kohort.wire.batches import decode_records, read_header

PREFIX = "__dlq.errors."
Letter = tuple[str, int, int]
"""Group, partition and offset."""


class DeadLetterChecks:
    def __init__(self) -> None:
        self._letters: set[Letter] = set()
        """Written, of records that were not delivered again since."""
        self._archived: list[Letter] = []
        """In this turn."""
        self._groups: set[str] = set()
        """Those whose dead letters could be written before this turn. Nobody takes this back."""
        self.written = 0

    def archived(self, key: ShareKey, offset: int) -> None:
        self._archived.append((key.group, key.partition, offset))

    def reopened(self, key: ShareKey, offset: int) -> None:
        self._letters.discard((key.group, key.partition, offset))

    def committed(self, broker: Broker, operations: Iterable[Operation], groups: Iterable[str]) -> None:
        """The turn is durable, and what it archived is told."""
        topic = broker.state.catalog.topics.get(DEAD_JOBS)
        if topic is not None:
            for operation in operations:
                if isinstance(operation, Append) and operation.log.topic_id == topic.topic_id:
                    for batch in operation.batches:
                        self._read(batch.data)
        for letter in self._archived:
            if letter[0] in self._groups and letter not in self._letters:
                raise Violation.of(letter[0], "what is given up has a dead letter", f"{letter[1]}, offset {letter[2]}")
        self._archived.clear()
        self._groups.update(group for group in groups if are_dead_letters_on(broker.state, group))

    def _read(self, data: bytes) -> None:
        for record in decode_records(data, read_header(data)):
            told = {name: value for name, value in record.headers if name.startswith(PREFIX)}
            group, partition, offset = (
                (told.get(f"{PREFIX}{name}") or b"").decode() for name in ("group", "partition", "offset")
            )
            letter = group, int(partition), int(offset)
            if letter in self._letters:
                raise Violation.of(group, "a record has one dead letter", f"{partition}, offset {offset}")
            self._letters.add(letter)
            self.written += 1
