"""A process with one confluent-kafka consumer a group, each committing as fast as its rate allows, without waiting.

Started by `crash_clients.py`. Reads commands as lines on stdin and answers on stdout with JSON: `report N` is answered
with the state of all its members, `pause` and `resume` stop and start commits, `killed` restarts the measurement of the
server's outage. The process ends when its stdin ends.

The committed offsets are arbitrary numbers; the topic is empty, and no member reads it. A member continues from
the committed offset, so the offsets rise in each partition under every owner.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections import Counter
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from crash_ledger import Place, place_from

OPEN_LIMIT = 150
"""Commits that a member has under way."""
QUIET_S = 2.0
"""How long a member that has lost partitions waits for the answers to its commits, at most. librdkafka gives partitions
up when no commit is under way. On a busy machine that never happened to a member that went on committing: the group
removed it, and it never noticed."""


class Member:
    def __init__(self, options: dict[str, Any], group: dict[str, Any], number: int) -> None:
        self.group: str = group["name"]
        self.topic: str = options["topic"]
        self.places: dict[int, Place] = {}
        self.unread: set[int] = set()
        """Assigned, and what is committed is not yet known."""
        self.assigned: list[int] = []
        self.assigns = 0
        self.revokes = 0
        self.acks = 0
        self.silence_s = 0.0
        """The longest time between two acknowledged commits, since the server was killed last."""
        self._answered_at = time.monotonic()
        self.heard_at = 0.0
        """When the last commit that was acknowledged was sent. Heartbeats that were sent before it have been answered,
        too, because the answers of a connection come in turn."""
        self._sent_at: dict[tuple[int, int], float] = {}
        """Of the commits under way, by partition and offset."""
        self.errors: Counter[str] = Counter()
        self.violations: list[str] = []
        self._turn = 0
        self._quiet_until = 0.0
        self._incremental = group["strategy"] in ("cooperative-sticky", "consumer")
        self.fatals = 0
        self._fatal = False
        self._config = {
            "bootstrap.servers": options["bootstrap"],
            "group.id": self.group,
            "client.id": f"worker-{number}",
            "enable.auto.commit": False,
            "max.poll.interval.ms": options["rebalance_ms"],
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 300,
            # Before it joins, librdkafka 2.16 asks for the topic's metadata. If the connection breaks meanwhile, it can
            # wait for the next periodic refresh, by default for 5 minutes.
            "topic.metadata.refresh.interval.ms": 2_000,
            "on_commit": self._committed,
            "error_cb": self._failed,
        }
        if group["strategy"] == "consumer":
            self._config["group.protocol"] = "consumer"
        else:
            self._config["session.timeout.ms"] = options["session_ms"]
            self._config["heartbeat.interval.ms"] = options["heartbeat_ms"]
            self._config["partition.assignment.strategy"] = group["strategy"]
        if group["static"]:
            self._config["group.instance.id"] = f"instance-{number}"
        self.consumer = self._subscribed()

    def _subscribed(self) -> Consumer:
        consumer = Consumer(self._config)
        consumer.subscribe([self.topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        return consumer

    # -- callbacks

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigns += 1
        for partition in partitions:
            partition.offset = OFFSET_END
        if self._incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        new = [partition.partition for partition in partitions]
        self.assigned = sorted({*self.assigned, *new} if self._incremental else new)
        self.unread.update(new)

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revokes += 1
        self._quiet_until = time.monotonic() + QUIET_S
        gone = {partition.partition for partition in partitions}
        self.assigned = [partition for partition in self.assigned if partition not in gone]
        self.unread -= gone

    def _committed(self, error: Any, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            place = self.places[partition.partition]
            failure = error or partition.error
            sent_at = self._sent_at.pop((partition.partition, partition.offset), 0.0)
            if failure is None:
                self.heard_at = max(self.heard_at, sent_at)
                place.acknowledged(partition.offset)
                self.acks += 1
            else:
                place.failed(partition.offset)
                self.errors[failure.name()] += 1
            if failure is None or failure.code() > 0:  # the server has answered; librdkafka's own errors are negative
                now = time.monotonic()
                self.silence_s = max(self.silence_s, now - self._answered_at)
                self._answered_at = now

    def _failed(self, error: Any) -> None:
        self.errors[error.name()] += 1
        self._fatal = self._fatal or error.fatal() or error.code() == KafkaError._FATAL

    # -- work

    def poll(self) -> None:
        message = self.consumer.poll(0)
        if message is not None and message.error():
            self._failed(message.error())
        if self._fatal:
            self._begin_again()

    def _begin_again(self) -> None:
        """Restart the consumer, as an application would. After an outage beyond its session, librdkafka joins as a new
        member and sends the commits of the old one again; those of a static member are fenced, which is fatal to it."""
        self.consumer.close()
        self._fatal = False
        self.fatals += 1
        self.assigned = []
        self.unread.clear()
        for place in self.places.values():
            for offset in list(place.open):
                place.failed(offset)
        self._sent_at.clear()
        self.consumer = self._subscribed()

    def read_committed(self) -> None:
        wanted = [TopicPartition(self.topic, partition) for partition in self.unread]
        try:
            found = self.consumer.committed(wanted, timeout=0.5)
        except KafkaException as error:
            self.errors[error.args[0].name()] += 1
            return
        generation = self.generation()
        for partition in found:
            if partition.error is not None or partition.partition not in self.unread:
                continue
            offset = max(0, partition.offset)
            before = self.places.get(partition.partition)
            if before is not None and offset < before.least():
                self.violations.append(
                    f"{self.group}-{partition.partition}: was served offset {offset} after {before.least()}"
                )
            self.places[partition.partition] = place_from(offset, generation, before)
            self.unread.discard(partition.partition)

    def commit_some(self, count: int) -> None:
        ready = [partition for partition in self.assigned if partition not in self.unread]
        if not ready or (self._sent_at and time.monotonic() < self._quiet_until):
            return
        room = OPEN_LIMIT - sum(len(self.places[partition].open) for partition in ready)
        for _ in range(min(count, room)):
            self._turn += 1
            partition = ready[self._turn % len(ready)]
            place = self.places[partition]
            offset = place.next()
            self._sent_at[partition, offset] = time.monotonic()
            try:
                self.consumer.commit(offsets=[TopicPartition(self.topic, partition, offset)], asynchronous=True)
            except KafkaException as error:
                place.failed(offset)
                self.errors[error.args[0].name()] += 1
                return

    # -- what it tells

    def generation(self) -> int:
        """The generation or member epoch, after a magic word in librdkafka's metadata for transactions."""
        metadata = self.consumer.consumer_group_metadata()
        data = bytes(metadata) if metadata is not None else b""
        return int(struct.unpack_from("=i", data, 7)[0]) if data.startswith(b"CGMDv2:") else -1

    def report(self) -> dict[str, Any]:
        generation = self.generation()
        for partition in self.assigned:
            if partition in self.places and partition not in self.unread:
                self.places[partition].generation = generation
        return {
            "group": self.group,
            "member": self.consumer.memberid(),
            "generation": generation,
            "assigned": self.assigned,
            "unread": sorted(self.unread),
            "assigns": self.assigns,
            "revokes": self.revokes,
            "acks": self.acks,
            "silence_s": self.silence_s,
            "heard_at": self.heard_at,
            "fatals": self.fatals,
            "errors": self.errors,
            "violations": self.violations,
            "places": {
                partition: {
                    "generation": place.generation,
                    "least": place.least(),
                    "last": place.last,
                    "sent": place.sent,
                    "acks": place.acks,
                    "open": len(place.open),
                    "possible": place.possible()[:50],
                }
                for partition, place in self.places.items()
            },
        }


def commands() -> SimpleQueue[list[str]]:
    lines: SimpleQueue[list[str]] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line.split())
        lines.put(["end"])

    threading.Thread(target=read, daemon=True).start()
    return lines


def work(members: list[Member], rate: float) -> None:
    """Commits at `rate` a second over all members, until the command to end."""
    lines = commands()
    paused = False
    last = time.monotonic()
    due = 0.0
    while True:
        try:
            match lines.get_nowait():
                case ["report", number]:
                    for member in members:
                        member.poll()
                    print(json.dumps({"report": int(number), "members": [m.report() for m in members]}), flush=True)
                case ["killed"]:
                    for member in members:
                        member.silence_s = 0.0
                case ["pause"]:
                    paused = True
                case ["resume"]:
                    paused = False
                case _:
                    return
        except Empty:
            pass
        now = time.monotonic()
        due = min(due + (now - last) * rate / len(members), OPEN_LIMIT)
        last = now
        for member in members:
            member.poll()
            if member.unread:
                member.read_committed()
            if not paused:
                member.commit_some(int(due))
        due -= int(due)
        time.sleep(0.003)


def main() -> None:
    options = json.loads(sys.argv[1])
    members = [Member(options, group, options["number"]) for group in options["groups"]]
    work(members, options["rate"])


if __name__ == "__main__":
    main()
