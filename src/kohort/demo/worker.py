"""A plain confluent-kafka worker of a consumer group, as its own process: `python -m kohort.demo.worker '{…}'`.

It reads at a given pace, commits regularly, and writes its events to stdout, one JSON object a line:

    {"event": "assigned", "partitions": [0, 1, 2], "time": …}    all partitions that it owns now
    {"event": "processed", "ranges": {"0": [100, 180]}}           offsets, end excluded
    {"event": "committed", "offsets": {"0": 180}}                 after the coordinator has accepted the commit
    {"event": "failed", "error": …} and {"event": "stopped"}

When its stdin ends, because the parent closes it or dies, it commits, leaves the group and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

CHUNK = 500
POLL_S = 0.2
COMMIT_INTERVAL_S = 0.5
STOP_S = 15.0
"""Limit of an orderly end. Without a server, the last commit would wait for a minute."""
HEARTBEAT_INTERVAL_MS = 1_000


class Options(msgspec.Struct, frozen=True):
    """The parent's settings. `records_per_second` limits how fast this worker reads; `gives_up_in_s` is the time that
    it needs to give partitions up. The consumer protocol has its session timeout from the server."""

    name: str
    bootstrap_servers: str
    group: str
    topic: str
    records_per_second: float
    session_timeout_ms: int
    protocol: str = "classic"
    gives_up_in_s: float = 0.0


class Worker:
    """Owns the consumer. All runs in the thread that calls `run`, except the watch over stdin."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stop = threading.Event()
        self._stopped = threading.Event()
        session = {
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        }
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap_servers,
                "group.id": options.group,
                "client.id": options.name,
                "group.protocol": options.protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **(session if options.protocol == "classic" else {}),
            }
        )

    def run(self) -> None:
        threading.Thread(target=self._watch_stdin, daemon=True).start()
        self._consumer.subscribe([self._options.topic], on_assign=self._assigned, on_revoke=self._revoked)
        commit_at = time.monotonic() + COMMIT_INTERVAL_S
        while not self._stop.is_set():
            began = time.monotonic()
            count = self._process(self._consumer.consume(CHUNK, timeout=POLL_S))
            if time.monotonic() >= commit_at:
                self._commit()
                commit_at = time.monotonic() + COMMIT_INTERVAL_S
            self._stop.wait(max(0.0, began + count / self._options.records_per_second - time.monotonic()))
        self._commit()
        self._consumer.close()
        self._stopped.set()
        say("stopped")

    def _watch_stdin(self) -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        self._stop.set()
        if not self._stopped.wait(STOP_S):
            os._exit(1)

    def _process(self, messages: list[Message]) -> int:
        ranges: dict[int, list[int]] = {}
        for message in messages:
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None:
                say("failed", error=str(error))
            elif partition is not None and offset is not None:
                ranges.setdefault(partition, [offset, offset])[1] = offset + 1
        if ranges:
            say("processed", ranges=ranges)
        return sum(end - start for start, end in ranges.values())

    def _commit(self) -> None:
        """Commit what `consume` has returned of the partitions that this worker owns."""
        try:
            committed = self._consumer.commit(asynchronous=False) or ()
        except KafkaException as error:
            # A rebalance came first: the new owner of the partitions reads these records again.
            if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing is new
                say("failed", error=str(error))
            return
        say("committed", offsets={part.partition: part.offset for part in committed if part.offset >= 0})

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        say("assigned", partitions=sorted(p.partition for p in partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The last moment at which this worker may commit for these partitions."""
        time.sleep(self._options.gives_up_in_s)
        self._commit()
        say("assigned", partitions=[])


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "time": time.time(), **values}) + "\n")
    sys.stdout.flush()


def main() -> None:
    # Ctrl-C reaches the whole foreground process group; the parent decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(msgspec.json.decode(sys.argv[1], type=Options)).run()


if __name__ == "__main__":
    main()
