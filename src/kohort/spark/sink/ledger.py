"""Which batches of a query are written: offsets of consumer groups that no consumer uses.

The ledger of an application (a query's id, or the option txnAppId) has one entry for its newest batch, and one for each
of its transactions. An offset is the number of a batch.

    group                            partition      offset   metadata
    kohort-sink-APPLICATION          0              batch    how many tasks and transactions the batch has
    kohort-sink-APPLICATION/BLOCK    task in block  batch    (none)

The second kind is part of the transaction that holds the task's rows, so it is there if and only if the rows are. The
first kind is the decision to commit a batch; it is durable before the first of the batch's transactions is committed,
and is written in a transaction of its own, which fences an older driver of the application.

An offset must belong to a partition that exists. The ledger's topic is that and nothing else: it has no records, so no
tool sees a lag. A block is as many tasks as the topic has partitions, PARTITIONS.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from kohort.client.admin.groups import Committed, committed
from kohort.client.admin.topics import create_topic, topics
from kohort.client.errors import ServerError, check
from kohort.client.metadata import TopicPartition
from kohort.client.transactions import TransactionalWriter
from kohort.client.wire.routing import Router
from kohort.spark.options.values import OptionError
from kohort.wire.errors import ErrorCode

PREFIX = "kohort-sink-"
"""Of all transactional ids and groups, for rules of access."""
PARTITIONS = 32


class Decision(NamedTuple):
    """A batch whose transactions may be committed."""

    batch: int
    tasks: int
    """How many tasks divided the rows."""
    transactions: int
    """How many of them had rows."""


def transactional_id(application: str, task: int) -> str:
    return f"{PREFIX}{application}/{task}"


def marker(topic: str, application: str, task: int) -> tuple[str, TopicPartition]:
    """The group and the partition of a task's entry."""
    return f"{PREFIX}{application}/{task // PARTITIONS}", (topic, task % PARTITIONS)


def ensure_topic(router: Router, topic: str) -> None:
    """Create the ledger's topic if it is missing. Raises OptionError if it has too few partitions, KafkaError."""

    def partitions() -> int:
        found = topics(router, [topic], internal=True, create=False)[topic]
        check(found.error, f"topic {topic}")
        return len(found.partitions)

    if topics(router, [topic], internal=True, create=False)[topic].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        try:
            create_topic(router, topic, PARTITIONS, -1, {})
        except ServerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    count = router.retrying(partitions)  # a broker learns of a new topic a moment later
    if count < PARTITIONS:
        raise OptionError(
            f"option ledgerTopic: {topic} has {count} partitions; it needs {PARTITIONS} partitions and no records"
        )


class Ledger:
    """The ledger as the driver of an application sees it. The constructor fences older drivers. Raises KafkaError."""

    def __init__(self, router: Router, topic: str, application: str, timeout_ms: int) -> None:
        self._router = router
        self._topic = topic
        self._application = application
        self._group = PREFIX + application
        self._timeout_ms = timeout_ms
        self._writer = TransactionalWriter(router, self._group, timeout_ms=timeout_ms)
        self._writer.init()

    def newest(self) -> Decision | None:
        """The newest decision."""
        place = (self._topic, 0)
        entry = committed(self._router, self._group, [place], stable=True).get(place)
        return None if entry is None else Decision(entry.offset, **json.loads(entry.metadata))

    def decide(self, decision: Decision) -> None:
        """Make a decision durable. Once for each Ledger."""
        metadata = json.dumps({"tasks": decision.tasks, "transactions": decision.transactions})
        entry = Committed(decision.batch, metadata=metadata)
        self._writer.begin()
        self._writer.send_offsets(self._group, {(self._topic, 0): entry})
        self._writer.commit()

    def written(self, batch: int, tasks: int) -> set[int]:
        """Which of the first tasks of a batch have committed their rows.

        Their entries are decided, because newer attempts have begun or `fence` was called. The pending entries of the
        newer attempts do not count.
        """
        found = set()
        for first in range(0, tasks, PARTITIONS):
            group, _ = marker(self._topic, self._application, first)
            block = range(first, min(first + PARTITIONS, tasks))
            places = {marker(self._topic, self._application, task)[1]: task for task in block}
            entries = committed(self._router, group, places)
            found |= {task for place, task in places.items() if place in entries and entries[place].offset == batch}
        return found

    def fence(self, tasks: Iterable[int]) -> None:
        """Abort the open transactions of tasks, and let no other process end them."""
        for task in tasks:
            name = transactional_id(self._application, task)
            TransactionalWriter(self._router, name, timeout_ms=self._timeout_ms).init()
