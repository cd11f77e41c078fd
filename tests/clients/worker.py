"""A consumer in a process of its own, for tests that kill consumers: it reports its events on stdout, as JSON lines.

Started by `group.py` as `python worker.py '{"client": "confluent", "bootstrap": …, "group": …, "topic": …}'`.
It consumes, commits synchronously after every batch, and on a line "close" on stdin leaves its group and ends.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

SESSION_TIMEOUT_MS = 2_000
HEARTBEAT_INTERVAL_MS = 300
"""Defaults, which the options override."""


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def commands() -> queue.Queue[str]:
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line.strip())
        lines.put("close")

    threading.Thread(target=read, daemon=True).start()
    return lines


def asked_to_close(lines: queue.Queue[str]) -> bool:
    try:
        return lines.get_nowait() == "close"
    except queue.Empty:
        return False


def telling(listener: type) -> Any:
    """A listener, of the client's own class, that reports each rebalance."""

    class Telling(listener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say(rebalanced="assign")

        def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:  # both clients call it before the first join, too
                say(rebalanced="revoke")

    return Telling()


def consume(poll: Callable[[], list[Any]], assignment: Callable[[], Iterable[Any]], commit: Callable[[], Any]) -> None:
    """`poll` returns records: partition, offset and value."""
    lines = commands()
    assigned: list[int] | None = None
    while not asked_to_close(lines):
        records = poll()
        now = sorted(p.partition for p in assignment())
        if now != assigned:
            assigned = now
            say(assigned=assigned)
        if records:
            say(records=records)
            try:
                commit()
                say(committed=True)
            except Exception as error:
                say(error=repr(error))


def run_confluent(options: dict[str, Any]) -> None:
    from confluent_kafka import Consumer

    of_protocol: dict[str, Any] = {"group.protocol": "consumer"}
    if options.get("protocol") != "consumer":
        of_protocol = {
            "session.timeout.ms": options["session_timeout_ms"],
            "heartbeat.interval.ms": options["heartbeat_interval_ms"],
            "partition.assignment.strategy": "cooperative-sticky" if options["cooperative"] else "range",
        }
    consumer = Consumer(
        {
            "bootstrap.servers": options["bootstrap"],
            "group.id": options["group"],
            "client.id": options["name"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": max(20_000, options["session_timeout_ms"]),
            "topic.metadata.refresh.interval.ms": 1000,
            **of_protocol,
            **({"group.instance.id": options["instance"]} if options["instance"] else {}),
        }
    )
    moved = {
        f"on_{what}": lambda _, partitions, what=what: say(rebalanced=what) for what in ("assign", "revoke", "lost")
    }
    consumer.subscribe([options["topic"]], **moved)

    def poll() -> list[Any]:
        messages = consumer.consume(500, timeout=0.1)
        for message in messages:
            if message.error():
                say(error=str(message.error()))
        return [[m.partition(), m.offset(), m.value().decode()] for m in messages if not m.error()]

    consume(poll, consumer.assignment, lambda: consumer.commit(asynchronous=False))
    consumer.close()


def python_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The settings of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": options["bootstrap"],
        "group_id": options["group"],
        "client_id": options["name"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": options["session_timeout_ms"],
        "heartbeat_interval_ms": options["heartbeat_interval_ms"],
        "max_poll_interval_ms": max(20_000, options["session_timeout_ms"]),
        "group_instance_id": options["instance"],
        "metadata_max_age_ms": 1_000 if options.get("pattern") else 300_000,
    }


def subscribe(consumer: Any, options: dict[str, Any], listener: type) -> None:
    of_topics = {"pattern": options["topic"]} if options.get("pattern") else {"topics": [options["topic"]]}
    consumer.subscribe(**of_topics, listener=telling(listener))


def records_in(batches: dict[Any, Any]) -> list[Any]:
    return [[r.partition, r.offset, r.value.decode()] for batch in batches.values() for r in batch]


def run_kafka_python(options: dict[str, Any]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaConnectionError

    assignor = CooperativeStickyAssignor if options["cooperative"] else RangePartitionAssignor
    consumer = KafkaConsumer(**python_settings(options), partition_assignment_strategy=[assignor])
    subscribe(consumer, options, ConsumerRebalanceListener)

    def poll() -> list[Any]:
        # A poll of kafka-python 3.0.12 that ends while it joins for a topic forgets that join, and its assignment is
        # never taken. Polls are long, so that this is rare, and the next one is told to join.
        coordinator = consumer._coordinator
        if coordinator.rejoining and not coordinator.need_rejoin():
            coordinator.request_rejoin()
        try:
            return records_in(consumer.poll(timeout_ms=1_000, max_records=500))
        except KafkaConnectionError as error:  # it tells applications when no broker is there; it can be polled again
            say(error=repr(error))
            return []

    consume(poll, consumer.assignment, consumer.commit)
    consumer.close()


def run_aiokafka(options: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    async def started() -> Any:
        consumer = AIOKafkaConsumer(**python_settings(options), rebalance_timeout_ms=20_000)
        subscribe(consumer, options, ConsumerRebalanceListener)
        await consumer.start()
        return consumer

    with asyncio.Runner() as runner:
        consumer = runner.run(started())
        consume(
            lambda: records_in(runner.run(consumer.getmany(timeout_ms=100, max_records=500))),
            consumer.assignment,
            lambda: runner.run(consumer.commit()),
        )
        runner.run(consumer.stop())


def main() -> None:
    options = {
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        **json.loads(sys.argv[1]),
    }
    runs = {"confluent": run_confluent, "kafka-python": run_kafka_python, "aiokafka": run_aiokafka}
    runs[options["client"]](options)
    say(closed=True)


if __name__ == "__main__":
    main()
